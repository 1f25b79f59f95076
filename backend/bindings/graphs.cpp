// bindings/graphs.cpp: graphs of streams' work; a graph is passed as a capsule that shares it with the results of its runs.
#include "graph/graph.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "bindings/module.h"
#include "inductor/graph_results.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

constexpr Capsules<std::shared_ptr<Graph>> kGraphs{"backplane.Graph"};
constexpr Capsules<GraphResults> kResults{"backplane.GraphResults"};

// Tensors in a list of arguments, and where their elements are.
using Addresses = std::vector<std::pair<Py_ssize_t, const void*>>;
constexpr Capsules<Addresses> kAddresses{"backplane.Addresses"};

const void* address_in(const py::list& arguments, Py_ssize_t i) {
  PyObject* argument = PyList_GetItem(arguments.ptr(), i);
  if (argument == nullptr) throw python_error();
  TORCH_CHECK_TYPE(THPVariable_Check(argument), "argument ", i, " is not a tensor");
  return THPVariable_Unpack(argument).const_data_ptr();
}

}  // namespace

void bind_graphs(py::module_& module) {
  def_quick(module, "make", [](bool keep) { return kGraphs.hold(new auto(std::make_shared<Graph>(keep))); });
  def_quick(module, "capture_begin", [](const py::capsule& graph, c10::MempoolId_t pool, int64_t mode) {
    kGraphs.use(graph, [&](auto& used) { used->capture_begin(pool, static_cast<int32_t>(mode)); });
  });
  def_quick(module, "capture_end", [](const py::capsule& graph) { kGraphs.use(graph, [](auto& used) { used->capture_end(); }); });
  def_quick(module, "instantiate", [](const py::capsule& graph) { kGraphs.use(graph, [](auto& used) { used->instantiate(); }); });
  def_quick(module, "replay", [](const py::capsule& graph) { kGraphs.use(graph, [](auto& used) { used->replay(); }); });
  def_quick(module, "reset", [](const py::capsule& graph) { kGraphs.use(graph, [](auto& used) { used->reset(); }); });
  def_quick(module, "pool", [](const py::capsule& graph) -> c10::MempoolId_t { return kGraphs.get(graph)->pool(); });
  def_quick(module, "enable_debug_mode", [](const py::capsule& graph) { kGraphs.get(graph)->enable_debug_mode(); });
  def_quick(module, "debug_dump",
            [](const py::capsule& graph, const std::string& path) { kGraphs.use(graph, [&](auto& used) { used->debug_dump(path); }); });
  def_quick(module, "new_pool", [] { return new_graph_pool(); });
  def_quick(module, "results",
            [](const py::capsule& graph, const std::vector<at::Tensor>& outputs, const std::vector<std::optional<at::Tensor>>& inputs) {
              return kResults.hold(new GraphResults(kGraphs.get(graph), outputs, inputs));
            });
  def_quick(module, "make_results",
            [](const py::capsule& results, const std::vector<at::Tensor>& inputs) { return kResults.get(results).make(inputs); });
  def_quick(module, "bytes_alive", [](const py::capsule& results) { return kResults.get(results).bytes_alive(); });
  def_quick(module, "wait_for_readers",
            [](const py::capsule& results) { kResults.use(results, [](GraphResults& used) { used.wait_for_readers(); }); });
  def_quick(module, "move_out", [](const py::capsule& results) { kResults.use(results, [](GraphResults& used) { used.move_out(); }); });
  def_blocking(module, "own_memory", [](const at::Tensor& tensor) { own_memory(tensor); });
  def_quick(module, "addresses", [](const std::vector<Py_ssize_t>& places, const py::list& arguments) {
    Addresses found;
    for (const Py_ssize_t i : places) found.emplace_back(i, address_in(arguments, i));
    return kAddresses.hold(new Addresses(std::move(found)));
  });
  def_quick(module, "are_at", [](const py::capsule& addresses, const py::list& arguments) {
    const Addresses& known = kAddresses.get(addresses);
    return std::all_of(known.begin(), known.end(), [&](const auto& one) { return address_in(arguments, one.first) == one.second; });
  });
  def_quick(module, "is_result", [](const at::Tensor& tensor) { return is_graph_result(tensor); });
}

}  // namespace backplane::bindings
