// drivers/shims/emulate/event_records.h: bp.profile over a driver with streams and events: a timing event before and behind each piece of
// work, and for each device pairs of an event and the host's clock, between which times are converted in a line.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/profile.h>

#include "../../engine/recorder.h"
#include "inner.h"

namespace backplane::driver::emulate {

class EventRecords {
 public:
  explicit EventRecords(Inner& inner) : inner_(inner) {}

  void start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    if (!fn || (kinds >> BP_ACTIVITY_COUNT) != 0) {
      throw Error(BP_INVALID_ARGUMENT, "profile.start: fn must not be NULL, kinds are 1 << BP_ACTIVITY_*");
    }
    std::lock_guard lock(mutex_);
    if (fn_) throw Error(BP_INVALID_ARGUMENT, "profile.start: recording is on already");
    fn_ = fn;
    arg_ = arg;
    dropped_ = 0;
    graph_ = inner_.find<bp_graph>();
    static std::atomic<uint64_t> recordings{0};
    recording_.store(++recordings);
    kinds_.store(kinds);
  }

  void stop(uint64_t* dropped) {
    if (!dropped) throw Error(BP_INVALID_ARGUMENT, "profile.stop: dropped must not be NULL");
    std::lock_guard lock(mutex_);
    if (!fn_) throw Error(BP_INVALID_ARGUMENT, "profile.stop: recording is off");
    kinds_.store(0);
    recording_.store(0);
    for (auto& [device, clock] : clocks_) clock.end = clock.start ? pair(device) : std::nullopt;
    harvest(true);
    for (Span& span : done_) {
      const Clock& clock = clocks_[span.activity.device];
      span.activity.begin_ns = clock.host(span.begin_ns);
      span.activity.end_ns = std::max(clock.host(span.end_ns), span.activity.begin_ns);
    }
    hand_over(done_);
    hand_over(pending_);  // what has not ended, or cannot say when
    for (Span& span : pending_) release(span);
    pending_.clear();
    done_.clear();
    for (auto& [device, clock] : clocks_) {
      for (const auto& one : {clock.start, clock.end}) {
        if (one) destroy(device, one->event);
      }
    }
    clocks_.clear();
    for (const auto& [device, event] : free_) destroy(device, event);
    free_.clear();
    fn_ = nullptr;
    *dropped = dropped_;
  }

  void tag(uint64_t correlation) noexcept { said() = {recording_.load(std::memory_order_relaxed), correlation}; }

  /// Queues work by `body`, and keeps a record of it if that is wanted. What `body` throws goes on, and then there is none.
  template <class Body>
  void around(bp_activity work, bp_stream* stream, Body&& body) {
    if (!(kinds_.load(std::memory_order_relaxed) >> work.kind & 1)) [[likely]]
      return body();
    std::lock_guard order(order_of(stream));  // no other work of the stream comes between the events
    auto span = open(work, stream);
    if (!span) return body();
    try {
      body();
    } catch (...) {
      std::lock_guard lock(mutex_);
      release(*span);
      throw;
    }
    close(*span, stream);
  }

  // A vendor's own work, on the calling thread.
  void launch_begin(int32_t device, bp_stream* stream) {
    bp_activity work{};
    work.kind = BP_ACTIVITY_KERNEL;
    work.device = work.src_device = work.dst_device = device;
    if (kinds_.load(std::memory_order_relaxed) >> work.kind & 1) launch() = open(work, stream);
  }
  void launch_end(bp_stream* stream, const char* name) {
    std::optional<Span> span = std::exchange(launch(), std::nullopt);
    if (!span) return;
    if (name) {
      span->name = name;
      return close(*span, stream);
    }
    std::lock_guard lock(mutex_);
    release(*span);
  }

 private:
  struct Span {
    bp_activity activity{};
    bp_event *begin = nullptr, *end = nullptr;
    int64_t begin_ns = 0, end_ns = 0;  // since the device's first pair
    uint64_t recording = 0;
    std::string name;
  };
  /// An event and when it happened, by the host's clock.
  struct Pair {
    bp_event* event;
    int64_t host_ns;
  };
  struct Clock {
    std::optional<Pair> start, end;
    int64_t between_ns = 0;  // by the device's clock

    int64_t host(int64_t since) const {
      constexpr int64_t enough_ns = 100'000'000;  // over less the error of a pair is more than a clock's drift
      const double pace =
          between_ns < enough_ns ? 1.0 : static_cast<double>(end->host_ns - start->host_ns) / static_cast<double>(between_ns);
      return start->host_ns + static_cast<int64_t>(static_cast<double>(since) * pace);
    }
  };
  struct Said {
    uint64_t recording = 0, correlation = 0;
  };
  static Said& said() noexcept {
    thread_local Said said;
    return said;
  }
  static std::optional<Span>& launch() noexcept {
    thread_local std::optional<Span> open;
    return open;
  }
  std::mutex& order_of(const void* stream) { return orders_[reinterpret_cast<uintptr_t>(stream) / 64 % orders_.size()]; }

  /// A recording of bp.graph cannot hold events that are asked for times.
  bool captures(int32_t device, bp_stream* stream) {
    int32_t state = BP_CAPTURE_NONE;
    if (graph_) inner_.group(graph_->head, graph_->capture_status, device, stream, &state, static_cast<uint64_t*>(nullptr));
    return state != BP_CAPTURE_NONE;
  }

  /// The event before the work. Nothing if the driver below has no event to give: the record is lost, the work is not. Nor is there one of
  /// what is captured: it does not run.
  std::optional<Span> open(bp_activity work, bp_stream* stream) {
    Span span;
    span.activity = work;
    bp_activity& activity = span.activity;
    activity.struct_size = sizeof activity;
    activity.stream = reinterpret_cast<uint64_t>(stream);
    activity.queued_ns = Recorder::now_ns();
    activity.thread = Recorder::thread();
    std::lock_guard lock(mutex_);
    if (!fn_ || captures(work.device, stream)) return std::nullopt;  // fn_: recording has ended meanwhile
    span.recording = recording_.load(std::memory_order_relaxed);
    if (said().recording == span.recording) activity.correlation = said().correlation;
    try {
      Clock& clock = clocks_[work.device];
      if (!clock.start) clock.start = pair(work.device);
      span.begin = event(work.device);
      span.end = event(work.device);
      inner_(&bp_driver::event_record, work.device, stream, span.begin, 0u);
      return span;
    } catch (const Error&) {
      ++dropped_;
      release(span);
      return std::nullopt;
    }
  }

  void close(Span& span, bp_stream* stream) {
    std::lock_guard lock(mutex_);
    if (span.recording != recording_.load(std::memory_order_relaxed)) return release(span);
    try {
      inner_(&bp_driver::event_record, span.activity.device, stream, span.end, 0u);
    } catch (const Error&) {
      ++dropped_;
      return release(span);
    }
    pending_.push_back(std::move(span));
    if (pending_.size() >= kKept) harvest(false);
  }

  // With the lock held from here on.

  /// Takes the times of what is complete. all: to the last one; else the oldest are enough.
  void harvest(bool all) {
    if (all) {
      for (auto& [device, clock] : clocks_) {
        if (clock.start && clock.end) clock.between_ns = elapsed(device, clock.start->event, clock.end->event).value_or(0);
      }
    }
    std::vector<Span> left;
    for (Span& span : pending_) {
      const int32_t device = span.activity.device;
      const Clock& clock = clocks_[device];
      const auto begin = clock.start ? elapsed(device, clock.start->event, span.begin) : std::nullopt;
      const auto end = begin ? elapsed(device, clock.start->event, span.end) : std::nullopt;
      if (!end) {
        left.push_back(std::move(span));
        continue;
      }
      span.begin_ns = *begin;
      span.end_ns = *end;
      release(span);
      done_.push_back(std::move(span));
    }
    pending_ = std::move(left);
  }

  std::optional<int64_t> elapsed(int32_t device, bp_event* start, bp_event* end) {
    int64_t ns = 0;
    try {
      if (inner_(&bp_driver::event_query, device, end) != BP_OK) return std::nullopt;
      if (inner_(&bp_driver::event_elapsed, device, start, end, &ns) != BP_OK) return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
    return ns;
  }

  bp_event* event(int32_t device) {
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.first == device; });
    bp_event* made = nullptr;
    if (found != free_.end()) {
      made = found->second;
      *found = free_.back();
      free_.pop_back();
    } else {
      inner_(&bp_driver::event_create, device, static_cast<uint32_t>(BP_EVENT_TIMING), &made);
    }
    return made;
  }
  void release(Span& span) {
    for (bp_event** one : {&span.begin, &span.end}) {
      if (*one) free_.emplace_back(span.activity.device, std::exchange(*one, nullptr));
    }
  }
  void destroy(int32_t device, bp_event* event) {
    try {
      inner_(&bp_driver::event_destroy, device, event);
    } catch (const Error&) {  // of a device in error; there is nothing to do about it
    }
  }

  /// The best of a few, on a stream of its own, where no work is in the way. Nothing if the device does not answer.
  std::optional<Pair> pair(int32_t device) {
    constexpr uint64_t patience_ns = 1'000'000'000;
    std::optional<Pair> best;
    bp_stream* stream = nullptr;
    int64_t width = INT64_MAX;
    try {
      inner_(&bp_driver::stream_create, device, 0, 0u, &stream);
      for (int i = 0; i < 5; ++i) {
        bp_event* one = event(device);
        const int64_t before = Recorder::now_ns();
        try {
          inner_(&bp_driver::event_record, device, stream, one, 0u);
          // Asked, not waited for: a wait is illegal while another thread captures.
          if (poll(patience_ns, [&] { return inner_(&bp_driver::event_query, device, one); }) != BP_OK) break;
        } catch (const Error&) {
          free_.emplace_back(device, one);
          break;
        }
        const int64_t after = Recorder::now_ns();
        if (after - before < width) {
          if (best) free_.emplace_back(device, best->event);
          width = after - before;
          best = Pair{one, before + width / 2};
        } else {
          free_.emplace_back(device, one);
        }
      }
    } catch (const Error&) {  // no stream, or no event
    }
    if (stream) {
      try {
        inner_(&bp_driver::stream_destroy, device, stream);
      } catch (const Error&) {
      }
    }
    return best;
  }

  void hand_over(const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      bp_activity activity = span.activity;
      if (!span.name.empty()) activity.name = span.name.c_str();
      const bp_activity* const one = &activity;
      fn_(arg_, &one, 1);
    }
  }

  static constexpr size_t kKept = 1024;  // spans whose events are out

  Inner& inner_;
  std::atomic<uint64_t> kinds_{0};  // 0: off
  std::atomic<uint64_t> recording_{0};
  std::array<std::mutex, 64> orders_;
  std::mutex mutex_;
  bp_activity_callback fn_ = nullptr;
  std::optional<bp_graph> graph_;  // of the driver below
  void* arg_ = nullptr;
  uint64_t dropped_ = 0;
  std::map<int32_t, Clock> clocks_;
  std::vector<Span> pending_, done_;
  std::vector<std::pair<int32_t, bp_event*>> free_;
};

}  // namespace backplane::driver::emulate
