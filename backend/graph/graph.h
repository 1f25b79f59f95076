// graph/graph.h: a recording of a stream's work that is replayed as a whole, with the memory and the random numbers that it uses.
#pragma once

#include <backplane/driver/graph.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "random/graph_numbers.h"
#include "runtime/event.h"

namespace backplane {

// The implementation of torch.accelerator.Graph and torch.<device>.CUDAGraph. Any thread, one call at a time. Without the GIL.
//
// Memory that is allocated in the capture comes from the graph's private pool, on the device and pinned, and stays there until reset: a run
// writes to the same addresses. The caller keeps memory alive that it allocated before.
// Errors: RuntimeError; NotImplementedError for a driver without bp.graph; the driver's as in runtime/errors.h.
class Graph {
 public:
  // keep: the recording is kept after capture_end, which then does not instantiate.
  explicit Graph(bool keep) : keep_(keep) {}
  ~Graph();  // as reset, at any time; never throws
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // On the current stream. pool: the private pool to allocate from, {0, 0}: a new one. mode: BP_CAPTURE_*.
  void capture_begin(c10::MempoolId_t pool, int32_t mode);
  // Ends the capture in any case; after an error the graph is as before the capture.
  void capture_end();
  // Instantiates it. A no-op if that is done.
  void instantiate();
  // Queues one run on the current stream of the graph's device; random numbers continue from the generators' current offsets.
  void replay();
  // Releases everything; queued runs complete. The graph can then capture again.
  void reset();
  // -1 before the first capture.
  c10::DeviceIndex device() const { return device_; }
  // {0, 0} before the first capture.
  c10::MempoolId_t pool() const { return pool_; }
  // Keeps the recording of the next capture for debug_dump.
  void enable_debug_mode() { debug_ = true; }
  // Writes it to a file, in the driver's format (DOT).
  void debug_dump(const std::string& path);

 private:
  void release_pools();

  bool keep_;
  bool debug_ = false;
  std::optional<c10::Stream> capturing_;
  c10::DeviceIndex device_ = -1;
  c10::MempoolId_t pool_{0, 0};
  c10::MempoolId_t pinned_pool_{0, 0};
  bool has_pools_ = false;
  bp_recording* recording_ = nullptr;
  bp_graph_exec* exec_ = nullptr;
  std::unique_ptr<GraphNumbers> numbers_;
  Event last_run_;  // the next run's numbers are written after it
};

// An id that no pool has. Any thread.
c10::MempoolId_t new_graph_pool();

}  // namespace backplane
