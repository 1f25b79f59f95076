// bindings/graphs.cpp: graphs of streams' work; a graph is passed as a capsule that owns it.
#include "graph/graph.h"

#include "bindings/module.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

constexpr Capsules<Graph> kGraphs{"backplane.Graph"};

}  // namespace

void bind_graphs(py::module_& module) {
  def_quick(module, "make", [](bool keep) { return kGraphs.hold(new Graph(keep)); });
  def_quick(module, "capture_begin", [](const py::capsule& graph, c10::MempoolId_t pool, int64_t mode) {
    kGraphs.use(graph, [&](Graph& used) { used.capture_begin(pool, static_cast<int32_t>(mode)); });
  });
  def_quick(module, "capture_end", [](const py::capsule& graph) { kGraphs.use(graph, [](Graph& used) { used.capture_end(); }); });
  def_quick(module, "instantiate", [](const py::capsule& graph) { kGraphs.use(graph, [](Graph& used) { used.instantiate(); }); });
  def_quick(module, "replay", [](const py::capsule& graph) { kGraphs.use(graph, [](Graph& used) { used.replay(); }); });
  def_quick(module, "reset", [](const py::capsule& graph) { kGraphs.use(graph, [](Graph& used) { used.reset(); }); });
  def_quick(module, "pool", [](const py::capsule& graph) -> c10::MempoolId_t { return kGraphs.get(graph).pool(); });
  def_quick(module, "enable_debug_mode", [](const py::capsule& graph) { kGraphs.get(graph).enable_debug_mode(); });
  def_quick(module, "debug_dump",
            [](const py::capsule& graph, const std::string& path) { kGraphs.use(graph, [&](Graph& used) { used.debug_dump(path); }); });
  def_quick(module, "new_pool", [] { return new_graph_pool(); });
}

}  // namespace backplane::bindings
