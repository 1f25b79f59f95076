// drivers/sim/graph.h: the entries of bp.graph: captures and recordings of the engine, and runs of them.
#pragma once

#include <cstdint>

#include <backplane/driver/graph.h>
#include <backplane/driver/cxx/live.hpp>

#include "devices.h"

namespace backplane::driver::sim {

class Graphs {
 public:
  explicit Graphs(Devices& devices);
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

  /// For close, when all work is complete: what callers have left.
  void release();

 private:
  struct Kept;
  struct Exec;

  Devices& devices_;
  SharedHandles<Kept> recordings_;
  SharedHandles<Exec> execs_;
};

}  // namespace backplane::driver::sim
