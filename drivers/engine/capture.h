// drivers/engine/capture.h: work of streams that is recorded instead of run: what a capture is, whom it spreads to, what is illegal in it.
//
// Streams ask Captures before they queue. Without a capture that costs one load; within one everything goes under a single mutex, since a
// capture is made once and its recording runs often.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "recorder.h"
#include "stream.h"

namespace backplane::driver {

struct EngineEvent;

/// A piece of work that runs any number of times. `job` is copied for each run; `destroy` is called once with the original, may be NULL.
struct Node {
  Job job;
  void (*destroy)(Job& job);
  Work what;
  int32_t stream;             // the n-th of the capture
  std::vector<size_t> after;  // numbers of the nodes that it must follow
};

/// Nodes in the order in which they were queued, which holds all that they wait for.
class Recording {
 public:
  explicit Recording(EngineDevice& device) : device_(device) {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  EngineDevice& device() const { return device_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  void add(Node node) { nodes_.push_back(std::move(node)); }
  /// One run. After a fault the rest is skipped. Throws what the work throws. records: none, or one per node, NULL where nobody wants one.
  void run(std::vector<Recorder::Owned>& records) const;
  /// DOT.
  std::string text() const;

 private:
  EngineDevice& device_;
  std::vector<Node> nodes_;
};

/// The point of a capture at which an event was recorded.
struct CapturedPoint {
  uint64_t capture;         // its id
  std::set<size_t> before;  // the latest nodes at that point
};

class Capture;

/// All captures of an engine. Any thread.
class Captures {
 public:
  Captures();
  ~Captures();

  /// Throws as bp.graph's capture_begin and capture_end.
  uint64_t begin(Stream& stream, int32_t mode);
  std::shared_ptr<const Recording> end(Stream& stream);
  /// BP_CAPTURE_*, and the id.
  int32_t status(const Stream& stream, uint64_t* id);

  /// False if the stream does not capture: the caller queues the job. Else it was taken, with `again` in the place of what it runs, and
  /// `destroy`; each may be NULL.
  bool record(Stream& stream, const Work& what, const Job& job, void (*again)(Job& job, int32_t status), void (*destroy)(Job& job)) {
    if (under_way_.load(std::memory_order_relaxed) == 0) [[likely]]
      return false;
    Node node{job, destroy, what, 0, {}};
    if (again) node.job.run = again;
    return take_node(stream, std::move(node));
  }
  /// False if the stream does not capture. Else the event's latest record is a point of the capture from now on.
  bool record_event(Stream& stream, EngineEvent& event);
  /// False if neither the stream nor the event is captured. Else the wait is recorded, and the stream captures, too. Throws for what cannot
  /// be.
  bool wait(Stream& stream, EngineEvent& event);

  // What is illegal in a capture throws, and makes it invalid.

  /// A call on that stream.
  void check_stream(const char* call, const Stream& stream) {
    if (under_way_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      refuse_on(call, stream);
  }
  /// A call that waits, on any stream.
  void check_wait(const char* call, uint64_t timeout_ns = BP_NO_TIMEOUT) {
    if (under_way_.load(std::memory_order_relaxed) != 0 && timeout_ns != 0) [[unlikely]]
      refuse_wait(call);
  }
  /// A wait for all streams of a device.
  void check_device(const char* call, const EngineDevice& device) {
    if (under_way_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      refuse_on(call, device);
  }
  /// A call that looks at an event. With the event's mutex not held.
  void check_event(const char* call, EngineEvent& event);

  /// The stream is about to end.
  void drop(Stream& stream);

 private:
  bool take_node(Stream& stream, Node node);
  void refuse_on(const char* call, const Stream& stream);
  void refuse_on(const char* call, const EngineDevice& device);
  void refuse_wait(const char* call);
  /// With the mutex held. NULL: it does not capture.
  Capture* find(const Stream& stream) const;
  Capture* find(uint64_t id) const;
  std::unique_ptr<Capture> take(Capture& capture);

  std::atomic<int32_t> under_way_{0};
  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Capture>> all_;
  std::unordered_map<const Stream*, Capture*> streams_;
};

}  // namespace backplane::driver
