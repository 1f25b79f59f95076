// drivers/vulkan/graph.h: bp.graph by command buffers: what a capture kept is recorded once, and each run submits it again.
#pragma once

#include "instance.h"

namespace backplane::driver::vulkan {

class Graphs {
 public:
  explicit Graphs(Instance& instance);
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id);
  void capture_end(int32_t device, bp_stream* stream, bp_recording** out);
  void capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id);
  void instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out);
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec);
  void recording_destroy(int32_t device, bp_recording* recording);
  void exec_destroy(int32_t device, bp_graph_exec* exec);
  void dump(int32_t device, bp_recording* recording, const char* path);

 private:
  struct Recording;
  struct Exec;

  Instance& instance_;
  SharedHandles<Recording> recordings_;
  SharedHandles<Exec> execs_;
};

}  // namespace backplane::driver::vulkan
