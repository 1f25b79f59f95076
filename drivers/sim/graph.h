// drivers/sim/graph.h: the entries of bp.graph: captures and recordings of the engine, and runs of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include <backplane/driver/graph.h>

#include "devices.h"

namespace backplane::driver::sim {

class Graphs : public virtual Devices {
 public:
  void graph_capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id);
  void graph_capture_end(int32_t device, bp_stream* stream, bp_recording** out);
  void graph_capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id);
  void graph_instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out);
  void graph_launch(int32_t device, bp_stream* stream, bp_graph_exec* exec);
  void graph_recording_destroy(int32_t device, bp_recording* recording);
  void graph_exec_destroy(int32_t device, bp_graph_exec* exec);
  void graph_dump(int32_t device, bp_recording* recording, const char* path);

 protected:
  explicit Graphs(const Host& host);
  ~Graphs();
  /// When all work is complete: what callers have left.
  void release_graphs();

 private:
  struct Kept;
  struct Exec;

  /// Throws for what is no live handle of the device.
  Kept& find(int32_t device, bp_recording* recording, const char* call);
  Exec& find(int32_t device, bp_graph_exec* exec, const char* call);

  std::mutex mutex_;
  std::unordered_set<Kept*> recordings_;
  std::unordered_set<Exec*> execs_;
};

}  // namespace backplane::driver::sim
