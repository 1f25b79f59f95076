// bindings/graphs.cpp: graphs of streams' work; a graph is passed as a capsule that owns it.
#include "graph/graph.h"

#include <utility>

#include "bindings/module.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

constexpr const char* kGraph = "backplane.Graph";

using Pool = std::pair<uint64_t, uint64_t>;

Graph& graph_of(const py::capsule& graph) {
  TORCH_CHECK_TYPE(PyCapsule_IsValid(graph.ptr(), kGraph) != 0, "the capsule does not contain a graph");
  return *graph.get_pointer<Graph>();
}

template <typename Use>
auto use_graph(const py::capsule& graph, const Use& use) {
  Graph& used = graph_of(graph);
  const py::gil_scoped_release no_gil;
  return use(used);
}

py::capsule make_graph(bool keep) {
  return py::capsule(new Graph(keep), kGraph, [](void* kept) {
    const py::gil_scoped_release no_gil;
    delete static_cast<Graph*>(kept);
  });
}

}  // namespace

void bind_graphs(py::module_& module) {
  def_quick(module, "make", make_graph);
  def_quick(module, "capture_begin", [](const py::capsule& graph, const Pool& pool, int64_t mode) {
    use_graph(graph, [&](Graph& used) { used.capture_begin({pool.first, pool.second}, static_cast<int32_t>(mode)); });
  });
  def_quick(module, "capture_end", [](const py::capsule& graph) { use_graph(graph, [](Graph& used) { used.capture_end(); }); });
  def_quick(module, "instantiate", [](const py::capsule& graph) { use_graph(graph, [](Graph& used) { used.instantiate(); }); });
  def_quick(module, "replay", [](const py::capsule& graph) { use_graph(graph, [](Graph& used) { used.replay(); }); });
  def_quick(module, "reset", [](const py::capsule& graph) { use_graph(graph, [](Graph& used) { used.reset(); }); });
  def_quick(module, "pool", [](const py::capsule& graph) -> Pool {
    const c10::MempoolId_t pool = graph_of(graph).pool();
    return {pool.first, pool.second};
  });
  def_quick(module, "enable_debug_mode", [](const py::capsule& graph) { graph_of(graph).enable_debug_mode(); });
  def_quick(module, "debug_dump",
            [](const py::capsule& graph, const std::string& path) { use_graph(graph, [&](Graph& used) { used.debug_dump(path); }); });
  def_quick(module, "new_pool", []() -> Pool {
    const c10::MempoolId_t pool = new_graph_pool();
    return {pool.first, pool.second};
  });
  def_quick(module, "capture_id", [](int64_t stream, int64_t device) { return capture_id(stream_of(stream, device)); });
}

}  // namespace backplane::bindings
