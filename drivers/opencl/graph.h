// drivers/opencl/graph.h: bp.graph by work that the driver keeps and queues again: a recording is a list of copies, fills and launches.
//
// OpenCL's own way, cl_khr_command_buffer, is provisional and cannot hold a step: README.md lists what is missing.
#pragma once

#include "../engine/kept_graphs.h"
#include "instance.h"

namespace backplane::driver::opencl {

struct GraphExec {
  const int32_t device;
  const std::shared_ptr<const KeptRecording<Recorded>> recording;
  std::mutex mutex{};  // over one launch: runs come in the order of the calls
  const Queue* on = nullptr;
  Event latest{};  // behind the latest run, which was queued there

  GraphExec(Device& of, std::shared_ptr<const KeptRecording<Recorded>> from) : device(of.index()), recording(std::move(from)) {}
};

class Graphs : public KeptGraphs<Instance, Recorded, GraphExec> {
 public:
  using KeptGraphs::KeptGraphs;
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec);
};

}  // namespace backplane::driver::opencl
