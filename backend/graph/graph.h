// graph/graph.h: a recording of a stream's work that runs as one, with the memory and the random numbers that it uses.
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

// What torch.accelerator.Graph and torch.<device>.CUDAGraph are made of. Any thread, one call at a time. Without the GIL.
//
// Memory that is allocated in the capture comes from the graph's private pool, on the device and pinned, and stays there until reset: a run
// writes to the same addresses. What the caller allocated before it keeps alive.
// Errors: RuntimeError; NotImplementedError for a driver without bp.graph; the driver's as in runtime/errors.h.
class Graph {
 public:
  // keep: the recording stays after capture_end, which then does not instantiate.
  explicit Graph(bool keep) : keep_(keep) {}
  ~Graph();  // as reset, at any time; never throws
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // On the current stream. pool: whose private pool it allocates from, {0, 0}: one of its own. mode: BP_CAPTURE_*.
  void capture_begin(c10::MempoolId_t pool, int32_t mode);
  // Ends it, whatever comes; after an error the graph is as before the capture.
  void capture_end();
  // Makes it ready to run. A no-op if it is.
  void instantiate();
  // Queues one run on the current stream of the graph's device; random numbers go on where the generators stand.
  void replay();
  // Gives everything back; runs that are queued complete. It may then capture anew.
  void reset();
  // {0, 0} before the first capture.
  c10::MempoolId_t pool() const { return pool_; }
  // Keep the recording of the next capture for debug_dump.
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
  Event last_run_;  // the next one's numbers are written behind it
};

// An id that no pool has. Any thread.
c10::MempoolId_t new_graph_pool();

}  // namespace backplane
