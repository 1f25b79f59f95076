// backplane/driver/cxx/event_profile.hpp: bp.profile for a driver with streams and events: a timing event before and behind each piece of
// work, and for each device pairs of an event and the host's clock, between which times are converted linearly.
//
//     class Acme : public Driver<Acme> {
//       void fill(int32_t device, bp_stream* stream, ...) {
//         profile_.around(EventProfile<>::work(BP_ACTIVITY_FILL, device, bytes), stream, [&] { acme_fill(...); });
//       }
//       EventProfile<> profile_{TableCalls{table()}};                                          // in the constructor:
//       offer<bp_profile>(profile_)
//
// Off, it costs a piece of work one load. On, two events, and a lock of the stream while the work is queued.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

#include "../../driver.h"
#include "../graph.h"
#include "../profile.h"
#include "error.hpp"
#include "groups.hpp"
#include "wait.hpp"

namespace backplane::driver {

/// The clock of records: CLOCK_REALTIME.
inline int64_t record_clock_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
/// The system's id of the calling thread.
inline int32_t record_thread() noexcept {
  static thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
  return id;
}

/// Throw for what start and stop refuse; is_on: a recording is on.
inline void check_profile_start(uint64_t kinds, bp_activity_callback fn, bool is_on) {
  if (!fn || (kinds >> BP_ACTIVITY_COUNT) != 0) {
    throw Error(BP_INVALID_ARGUMENT, "profile.start: fn must not be NULL, kinds are 1 << BP_ACTIVITY_*");
  }
  if (is_on) throw Error(BP_INVALID_ARGUMENT, "profile.start: recording is on already");
}
inline void check_profile_stop(const uint64_t* dropped, bool is_on) {
  if (!dropped) throw Error(BP_INVALID_ARGUMENT, "profile.stop: dropped must not be NULL");
  if (!is_on) throw Error(BP_INVALID_ARGUMENT, "profile.stop: recording is off");
}

/// How an EventProfile calls the driver: its own table.
struct TableCalls {
  const bp_driver* table;

  template <class... Params, class... Args>
  int32_t operator()(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) const {
    return (table->*slot)(table->self, static_cast<Params>(args)...);
  }
  std::optional<bp_graph> graphs() const { return find_group<bp_graph>(*table); }
};

/// Calls: as TableCalls; statuses, nothing thrown.
template <class Calls = TableCalls>
class EventProfile {
 public:
  explicit EventProfile(Calls calls) : calls_(calls) {}
  EventProfile(const EventProfile&) = delete;
  EventProfile& operator=(const EventProfile&) = delete;

  /// The description of the work in a record; of a copy with its devices.
  static bp_activity work(int32_t kind, int32_t device, uint64_t bytes = 0) { return copy(kind, device, device, device, bytes); }
  static bp_activity copy(int32_t device, int32_t dst_device, int32_t src_device, uint64_t bytes) {
    return copy(BP_ACTIVITY_COPY, device, dst_device, src_device, bytes);
  }

  // The entries. They throw Error.

  void start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    std::lock_guard lock(mutex_);
    check_profile_start(kinds, fn, fn_ != nullptr);
    fn_ = fn;
    arg_ = arg;
    dropped_ = 0;
    harvest_at_ = kKept;
    graph_ = calls_.graphs();
    static std::atomic<uint64_t> recordings{0};
    recording_.store(++recordings);
    kinds_.store(kinds);
  }

  void stop(uint64_t* dropped) {
    std::lock_guard lock(mutex_);
    check_profile_stop(dropped, fn_ != nullptr);
    kinds_.store(0);
    recording_.store(0);
    for (auto& [device, clock] : clocks_) clock.end = clock.start ? pair(device) : std::nullopt;
    harvest(true);
    for (Span& span : done_) {
      const Clock& clock = clocks_[span.activity.device];
      span.activity.begin_ns = clock.host(span.begin_ns);
      span.activity.end_ns = std::max(clock.host(span.end_ns), span.activity.begin_ns);
    }
    keep_apart();
    hand_over(done_);
    hand_over(pending_);  // without times
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

  /// Whether anything is recorded at the moment.
  bool is_on() const noexcept { return kinds_.load(std::memory_order_relaxed) != 0; }

  void tag(uint64_t correlation) noexcept { latest_tag() = {recording_.load(std::memory_order_relaxed), correlation}; }

  /// Queues work by `body`, and keeps a record of it if that is wanted. What `body` throws goes on, and then there is none. name: of a
  /// kernel; read before this returns.
  template <class Body>
  void around(const bp_activity& work, bp_stream* stream, Body&& body, const char* name = nullptr) {
    if (work.bytes == 0 && (work.kind == BP_ACTIVITY_COPY || work.kind == BP_ACTIVITY_FILL)) return body();
    if (!wants(work.kind)) [[likely]]
      return body();
    std::lock_guard order(order_of(stream));  // no other work of the stream comes between the events
    across({{work, stream, name}}, body);
  }

  struct Part {
    bp_activity work;
    bp_stream* stream;
    const char* name;
  };
  /// As around, for work on several streams that one call queues, and that may wait for other threads meanwhile: no stream is locked.
  template <class Body>
  void across(const std::vector<Part>& parts, Body&& body) {
    std::vector<std::pair<Span, bp_stream*>> open_spans;
    for (const Part& part : parts) {
      if (!wants(part.work.kind)) continue;
      if (auto span = open(part.work, part.stream)) {
        if (part.name) span->name = part.name;
        open_spans.emplace_back(std::move(*span), part.stream);
      }
    }
    try {
      body();
    } catch (...) {
      std::lock_guard lock(mutex_);
      for (auto& [span, stream] : open_spans) release(span);
      throw;
    }
    for (auto& [span, stream] : open_spans) close(span, stream);
  }

  // A vendor's own work, on the calling thread.
  void launch_begin(int32_t device, bp_stream* stream) {
    if (wants(BP_ACTIVITY_KERNEL)) launch() = open(work(BP_ACTIVITY_KERNEL, device), stream);
  }
  void launch_end(int32_t, bp_stream* stream, const char* name) {
    std::optional<Span> span = std::exchange(launch(), std::nullopt);
    if (!span) return;
    if (name) {
      span->name = name;
      return close(*span, stream);
    }
    std::lock_guard lock(mutex_);
    release(*span);
  }

  void range_push(const char*) { throw Error(BP_UNSUPPORTED, "profile: there are no ranges"); }
  void range_pop() { throw Error(BP_UNSUPPORTED, "profile: there are no ranges"); }
  void mark(const char*) { throw Error(BP_UNSUPPORTED, "profile: there are no ranges"); }

 private:
  bool wants(int32_t kind) const noexcept { return kinds_.load(std::memory_order_relaxed) >> kind & 1; }

  static bp_activity copy(int32_t kind, int32_t device, int32_t dst_device, int32_t src_device, uint64_t bytes) {
    auto made = sized<bp_activity>();
    made.kind = kind;
    made.device = device;
    made.bytes = bytes;
    made.src_device = src_device;
    made.dst_device = dst_device;
    return made;
  }

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
  struct Tag {
    uint64_t recording = 0, correlation = 0;
  };
  static Tag& latest_tag() noexcept {
    thread_local Tag latest;
    return latest;
  }
  static std::optional<Span>& launch() noexcept {
    thread_local std::optional<Span> open;
    return open;
  }
  std::mutex& order_of(const void* stream) { return orders_[reinterpret_cast<uintptr_t>(stream) / 64 % orders_.size()]; }

  /// A recording of bp.graph cannot hold events that are asked for times.
  bool captures(int32_t device, bp_stream* stream) {
    int32_t state = BP_CAPTURE_NONE;
    if (graph_) graph_->capture_status(graph_->head.self, device, stream, &state, nullptr);
    return state != BP_CAPTURE_NONE;
  }

  /// The event before the work. Nothing if the inner driver has no event to give: the record is lost, the work is not. Nor is there one of
  /// what is captured: it does not run.
  std::optional<Span> open(bp_activity work, bp_stream* stream) {
    Span span;
    span.activity = work;
    bp_activity& activity = span.activity;
    activity.stream = reinterpret_cast<uint64_t>(stream);
    activity.queued_ns = record_clock_ns();
    activity.thread = record_thread();
    std::lock_guard lock(mutex_);
    if (!fn_ || captures(work.device, stream)) return std::nullopt;  // fn_: recording has ended meanwhile
    span.recording = recording_.load(std::memory_order_relaxed);
    if (latest_tag().recording == span.recording) activity.correlation = latest_tag().correlation;
    Clock& clock = clocks_[work.device];
    if (!clock.start) clock.start = pair(work.device);
    span.begin = event(work.device);
    span.end = event(work.device);
    if (span.begin && span.end && record(work.device, stream, span.begin)) return span;
    ++dropped_;
    release(span);
    return std::nullopt;
  }

  void close(Span& span, bp_stream* stream) {
    std::lock_guard lock(mutex_);
    if (span.recording != recording_.load(std::memory_order_relaxed)) return release(span);
    if (!record(span.activity.device, stream, span.end)) {
      ++dropped_;
      return release(span);
    }
    pending_.push_back(std::move(span));
    if (pending_.size() < harvest_at_) return;
    harvest(false);
    harvest_at_ = std::max(kKept, 2 * pending_.size());  // what has not ended is not queried for each of the next pieces
  }

  // With the lock held from here on.

  /// Takes the times of what is complete. all: recording ends, and the clocks are compared first.
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
    if (calls_(&bp_driver::event_query, device, end) != BP_OK) return std::nullopt;
    if (calls_(&bp_driver::event_elapsed, device, start, end, &ns) != BP_OK) return std::nullopt;
    return ns;
  }

  /// nullptr if the driver has none to give.
  bp_event* event(int32_t device) {
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.first == device; });
    bp_event* made = nullptr;
    if (found == free_.end()) return calls_(&bp_driver::event_create, device, BP_EVENT_TIMING, &made) == BP_OK ? made : nullptr;
    made = found->second;
    *found = free_.back();
    free_.pop_back();
    return made;
  }
  bool record(int32_t device, bp_stream* stream, bp_event* event) {
    return calls_(&bp_driver::event_record, device, stream, event, 0u) == BP_OK;
  }
  void release(Span& span) {
    for (bp_event** one : {&span.begin, &span.end}) {
      if (*one) free_.emplace_back(span.activity.device, std::exchange(*one, nullptr));
    }
  }
  /// It may fail on a device in error, which is ignored.
  void destroy(int32_t device, bp_event* event) { calls_(&bp_driver::event_destroy, device, event); }

  /// The best of a few, on a separate stream, where no work delays it. Nothing if the device does not answer.
  std::optional<Pair> pair(int32_t device) {
    constexpr uint64_t timeout_ns = 1'000'000'000;
    std::optional<Pair> best;
    bp_stream* stream = nullptr;
    int64_t width = INT64_MAX;
    if (calls_(&bp_driver::stream_create, device, 0, 0u, &stream) != BP_OK) return best;
    for (int i = 0; i < 5; ++i) {
      bp_event* one = event(device);
      if (!one) break;
      const int64_t before = record_clock_ns();
      const auto ask = [&] { return calls_(&bp_driver::event_query, device, one); };  // a wait is illegal while another thread captures
      if (!record(device, stream, one) || poll(timeout_ns, ask) != BP_OK) {
        free_.emplace_back(device, one);
        break;
      }
      const int64_t after = record_clock_ns();
      if (after - before < width) {
        if (best) free_.emplace_back(device, best->event);
        width = after - before;
        best = Pair{one, before + width / 2};
      } else {
        free_.emplace_back(device, one);
      }
    }
    calls_(&bp_driver::stream_destroy, device, stream);
    return best;
  }

  /// Where the device's clock is coarser than its work, records of a stream may touch and do not overlap.
  void keep_apart() {
    std::sort(done_.begin(), done_.end(), [](const Span& a, const Span& b) { return a.activity.begin_ns < b.activity.begin_ns; });
    std::map<std::pair<int32_t, uint64_t>, int64_t> ends;
    for (Span& span : done_) {
      bp_activity& is = span.activity;
      int64_t& end = ends[{is.device, is.stream}];
      is.begin_ns = std::max(is.begin_ns, end);
      is.end_ns = end = std::max(is.end_ns, is.begin_ns);
    }
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

  const Calls calls_;
  std::atomic<uint64_t> kinds_{0};  // 0: off
  std::atomic<uint64_t> recording_{0};
  std::array<std::mutex, 64> orders_;
  std::mutex mutex_;
  bp_activity_callback fn_ = nullptr;
  std::optional<bp_graph> graph_;  // of the inner driver
  void* arg_ = nullptr;
  uint64_t dropped_ = 0;
  size_t harvest_at_ = kKept;
  std::map<int32_t, Clock> clocks_;
  std::vector<Span> pending_, done_;
  std::vector<std::pair<int32_t, bp_event*>> free_;
};

}  // namespace backplane::driver
