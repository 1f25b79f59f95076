// drivers/opencl/graph.h: bp.graph by work that the driver keeps and queues again: a recording is a list of copies, fills and launches.
//
// OpenCL's own way, cl_khr_command_buffer, is provisional and cannot hold a step: README.md tells what it lacks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <backplane/driver/graph.h>
#include <backplane/driver/profile.h>
#include <backplane/driver/cxx/captures.hpp>

#include "runtime.h"

namespace backplane::driver::opencl {

/// A command that was not queued. `queue` queues it, any number of times.
struct Recorded {
  std::string label;
  bp_activity what;  // as a record of a profile tells it
  std::function<void(Queue& on)> queue;
};

/// The entries of the group, for a driver to derive from. They throw Error.
class Graphs {
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
  Graphs();
  ~Graphs();
  /// For close: what callers have left, while the runtime is there.
  void release_graphs();

  virtual Device& graph_device(int32_t device) = 0;
  virtual bool graph_profiled() = 0;
  /// Queues a command of a run, and keeps a record of it if one is wanted.
  virtual void graph_queue(const Recorded& command, bp_stream* stream, Queue& on) = 0;

  Captures<Recorded> captures_;  // streams are known by their handles, devices by their Device

 private:
  struct Recording;
  struct Exec;

  /// Throws for what is no live handle of the device.
  std::shared_ptr<Recording> find(Device& device, bp_recording* recording, const char* call) const;
  std::shared_ptr<Exec> find(Device& device, bp_graph_exec* exec, const char* call) const;

  mutable std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<Recording>> recordings_;
  std::unordered_map<void*, std::shared_ptr<Exec>> execs_;
};

}  // namespace backplane::driver::opencl
