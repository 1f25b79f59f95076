// drivers/vulkan/graph.h: bp.graph by command buffers: what a capture kept is recorded once, and each run submits it again.
#pragma once

#include <variant>

#include "../engine/kept_graphs.h"
#include "instance.h"

namespace backplane::driver::vulkan {

struct GraphExec {
  const int32_t device;
  const std::shared_ptr<const KeptRecording<Recorded>> recording;
  CommandPool pool;
  std::vector<std::variant<std::unique_ptr<Commands>, const Work*>> parts;  // that follow each other; a copy that the host does is Work
  std::mutex mutex{};                                                       // over one launch: runs come in the order of the calls
  Point latest{};                                                           // behind the latest run

  GraphExec(Device& on, std::shared_ptr<const KeptRecording<Recorded>> from);
};

class Graphs : public KeptGraphs<Instance, Recorded, GraphExec> {
 public:
  using KeptGraphs::KeptGraphs;
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec);
};

}  // namespace backplane::driver::vulkan
