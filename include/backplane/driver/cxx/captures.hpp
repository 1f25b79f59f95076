// backplane/driver/cxx/captures.hpp: the rules of bp.graph for a driver with streams and events: which streams capture, to whom a capture
// spreads, what is illegal in it. What a recording is, is the driver's.
//
//     captures_.begin(stream, &device, is_default, mode);                                           // capture_begin
//     if (captures_.any() && captures_.add(stream, Acme{...})) return;                              // what queues work
//     captures_.check_stream("stream_query", stream);                                               // what a capture cannot hold
//     if (captures_.wait(stream, &device, event.point)) return;                                      // stream_wait
//     auto ended = captures_.end(stream); ended.check();                                             // capture_end: ended.nodes
//
// Streams and devices are known by an address. Without a capture each question costs one load; within one everything goes under a single
// mutex, since a capture is made once and its recording runs often.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../graph.h"
#include "error.hpp"

namespace backplane::driver {

/// In an event of the driver's: where its latest record stands. `Captures` writes it.
class EventPoint {
 public:
  /// between_processes: others may record it, which no capture can hold.
  explicit EventPoint(bool between_processes = false) : between_processes_(between_processes), recorded_(between_processes) {}
  bool captured() const { return capture_.load(std::memory_order_acquire) != 0; }

 private:
  template <class>
  friend class Captures;

  const bool between_processes_;
  std::atomic<bool> recorded_;        // ever
  std::atomic<uint64_t> capture_{0};  // of the latest record; 0: it is in none
  std::set<size_t> before_;           // the latest nodes at that point; under the mutex of Captures
};

/// A piece of work of a capture, with what it follows.
template <class Work>
struct CapturedNode {
  Work work;
  int32_t stream;             // the n-th of the capture
  std::vector<size_t> after;  // numbers of the nodes that it must follow
};

/// DOT, for bp_graph.dump; label(work) names a node.
template <class Work, class Label>
std::string recording_text(const std::vector<CapturedNode<Work>>& nodes, Label&& label) {
  std::string text = "digraph recording {\n  node [shape=box];\n";
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string number = std::to_string(i);
    text +=
        "  n" + number + " [label=\"" + number + ": " + label(nodes[i].work) + "\\nstream " + std::to_string(nodes[i].stream) + "\"];\n";
    for (const size_t before : nodes[i].after) text += "  n" + std::to_string(before) + " -> n" + number + ";\n";
  }
  return text + "}\n";
}

/// Writes it. Throws Error(BP_INVALID_ARGUMENT).
inline void write_recording(const char* path, const std::string& text) {
  need(path, "graph.dump: path");
  FILE* const file = std::fopen(path, "w");
  const bool wrote = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file && std::fclose(file) != 0) || !wrote) {
    throw Error(BP_INVALID_ARGUMENT, std::string("graph.dump: ") + path + " cannot be written");
  }
}

/// All captures of a driver. Work: what it keeps of queued work; a driver whose runtime records by itself never calls add. Thread safe; no
/// Work is destroyed under the lock. What throws, throws Error.
template <class Work>
class Captures {
 public:
  /// In the order in which they were queued, which holds all that they wait for.
  using Nodes = std::vector<CapturedNode<Work>>;

  struct Ended {
    Nodes nodes;
    std::string why;  // it is invalid
    const void* origin;
    /// Throws if it is invalid.
    void check() const {
      if (!why.empty()) illegal("graph.capture_end: the capture is invalid: " + why);
    }
  };

  static constexpr const char* kNotJoined =
      "work of another stream has not come back: the stream that began must wait for an event behind it";

  /// Whether anything captures.
  bool any() const { return under_way_.load(std::memory_order_relaxed) != 0; }

  /// capture_begin; gives the id.
  uint64_t begin(const void* stream, const void* device, bool is_default, int32_t mode) {
    if (mode < BP_CAPTURE_GLOBAL || mode > BP_CAPTURE_RELAXED) illegal("graph.capture_begin: no mode " + std::to_string(mode));
    if (is_default) throw Error(BP_UNSUPPORTED, "graph.capture_begin: the default stream cannot capture; take another one");
    std::lock_guard lock(mutex_);
    if (find(stream)) illegal("graph.capture_begin: the stream captures already");
    auto capture = std::make_unique<Capture>();
    capture->id = ++last_id_;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->device = device;
    capture->streams[stream] = {0, {}};
    streams_[stream] = capture.get();
    all_.push_back(std::move(capture));
    under_way_.fetch_add(1, std::memory_order_relaxed);
    return last_id_;
  }

  /// capture_end: it ends for all its streams. Throws only where the stream began none.
  Ended end(const void* stream) {
    std::unique_ptr<Capture> taken;
    {
      std::lock_guard lock(mutex_);
      Capture* found = find(stream);
      if (!found || found->origin != stream) illegal("graph.capture_end: no capture began on this stream");
      taken = take(*found);
    }
    if (!taken->joined()) taken->spoil(kNotJoined);
    return {std::move(taken->nodes), taken->why, stream};
  }
  /// For close: a stream on which a capture began that nobody has ended, NULL if there is none.
  const void* any_origin(const void* device) const {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->device == device; });
    return found == all_.end() ? nullptr : (*found)->origin;
  }

  /// BP_CAPTURE_*, and the id.
  int32_t status(const void* stream, uint64_t* id = nullptr) const {
    if (id) *id = 0;
    if (!any()) return BP_CAPTURE_NONE;
    std::lock_guard lock(mutex_);
    const Capture* found = find(stream);
    if (!found) return BP_CAPTURE_NONE;
    if (id) *id = found->id;
    return found->valid() ? BP_CAPTURE_ACTIVE : BP_CAPTURE_INVALID;
  }

  /// False if the stream does not capture: the caller, who keeps the work, queues it. An invalid capture needs none of it.
  bool add(const void* stream, Work&& work) {
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found) return false;
    if (!found->valid()) return true;
    auto& [number, latest] = found->streams.at(stream);
    found->nodes.push_back({std::move(work), number, {latest.begin(), latest.end()}});
    latest = {found->nodes.size() - 1};
    return true;
  }

  /// False if the stream does not capture: the caller records the event. Else its latest record is a point of the capture from now on.
  bool record_event(const void* stream, EventPoint& event) {
    if (!any() && !event.captured()) {
      if (!event.recorded_.load(std::memory_order_relaxed)) event.recorded_.store(true, std::memory_order_relaxed);
      return false;
    }
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found) {
      event.recorded_.store(true, std::memory_order_relaxed);
      event.before_.clear();
      event.capture_.store(0, std::memory_order_release);
      return false;
    }
    if (event.between_processes_) {
      found->spoil("event_record of an event that is shared between processes");
      illegal("event_record: an event that is shared between processes cannot be recorded in a capture");
    }
    event.before_ = found->streams.at(stream).latest;
    event.capture_.store(found->id, std::memory_order_release);
    return true;
  }

  /// stream_wait. False if neither the stream nor the event is captured: the caller waits. Else the wait is recorded, and the stream
  /// captures, too; *unrecorded: there is nothing to wait for. device: the stream's, NULL for its default stream.
  bool wait(const void* stream, const void* device, const EventPoint& event, bool* unrecorded = nullptr) {
    if (!any() && !event.captured()) return false;
    std::lock_guard lock(mutex_);
    Capture* own = find(stream);
    const uint64_t point = event.capture_.load(std::memory_order_relaxed);
    if (point == 0) {
      if (own && event.recorded_.load(std::memory_order_relaxed)) {
        own->spoil("stream_wait for an event that was recorded outside of it");
        illegal("stream_wait: the stream captures, the event was recorded outside of that capture");
      }
      if (unrecorded) *unrecorded = own != nullptr;
      return own != nullptr;
    }
    Capture* others = find(point);
    if (!others) {
      if (own) own->spoil("stream_wait for an event of a capture that has ended");
      illegal("stream_wait: the event's latest record is part of a graph, and nothing that can be waited for");
    }
    if (own && own != others) {
      own->spoil("stream_wait for an event of another capture");
      others->spoil("stream_wait of a stream that captures something else");
      illegal("stream_wait: the stream and the event belong to two captures");
    }
    if (!own) {
      if (device != others->device) {
        others->spoil("stream_wait of a stream that cannot join: another device's, or the default one");
        illegal("stream_wait: a capture takes streams of one device, save its default stream");
      }
      others->streams[stream] = {static_cast<int32_t>(others->streams.size()), {}};
      streams_[stream] = others;
    }
    if (others->valid()) others->streams.at(stream).latest.insert(event.before_.begin(), event.before_.end());
    return true;
  }

  /// The runtime itself has refused something: the capture is invalid from now on. The first reason counts.
  void spoil(const void* stream, const std::string& why) {
    std::lock_guard lock(mutex_);
    if (Capture* found = find(stream)) found->spoil(why);
  }

  // What is illegal in a capture throws, and makes it invalid.

  /// A call on that stream.
  void check_stream(const char* call, const void* stream) {
    if (!any()) return;
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found) return;
    found->spoil(std::string(call) + " on a stream that captures");
    illegal(std::string(call) + ": the stream captures a graph, which cannot hold this");
  }
  /// A call that waits, on any stream.
  void check_wait(const char* call, uint64_t timeout_ns = BP_NO_TIMEOUT) {
    if (!any() || timeout_ns == 0) return;
    std::lock_guard lock(mutex_);
    bool spoilt = false;
    for (const auto& one : all_) {
      if (one->mode == BP_CAPTURE_RELAXED) continue;
      if (one->mode == BP_CAPTURE_THREAD && one->thread != std::this_thread::get_id()) continue;
      one->spoil(std::string(call) + ", which waits, in the mode " + (one->mode == BP_CAPTURE_GLOBAL ? "GLOBAL" : "THREAD"));
      spoilt = true;
    }
    if (spoilt) illegal(std::string(call) + ": a graph is being captured in a mode that allows no waits");
  }
  /// A wait for all streams of a device.
  void check_device(const char* call, const void* device) {
    if (!any()) return;
    std::lock_guard lock(mutex_);
    bool spoilt = false;
    for (const auto& one : all_) {
      if (one->device != device) continue;
      one->spoil(std::string(call) + " of the device");
      spoilt = true;
    }
    if (spoilt) illegal(std::string(call) + ": a stream of the device captures a graph");
  }
  /// A call that looks at an event.
  void check_event(const char* call, const EventPoint& event) {
    if (!event.captured()) return;
    std::lock_guard lock(mutex_);
    const uint64_t point = event.capture_.load(std::memory_order_relaxed);
    if (point == 0) return;
    if (Capture* found = find(point)) found->spoil(std::string(call) + " of an event that was recorded in it");
    illegal(std::string(call) + ": the event's latest record is part of a graph, and nothing that can be waited for");
  }

  /// The stream is about to end: its capture is invalid, and ends if it began there. The stream on which its capture began, or NULL: it
  /// does not capture.
  const void* drop(const void* stream) {
    if (!any()) return nullptr;
    std::unique_ptr<Capture> ended;  // released behind the lock
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found) return nullptr;
    const void* origin = found->origin;
    found->spoil("stream_destroy of a stream that captures");
    if (origin == stream) {
      ended = take(*found);  // nobody can end it any more
    } else {
      found->streams.erase(stream);
      streams_.erase(stream);
    }
    return origin;
  }

 private:
  struct Member {
    int32_t number = 0;
    std::set<size_t> latest;  // nodes that the stream's next one follows
  };
  struct Capture {
    uint64_t id = 0;
    int32_t mode = 0;
    std::thread::id thread;
    const void *origin = nullptr, *device = nullptr;
    std::unordered_map<const void*, Member> streams;
    Nodes nodes;
    std::string why;

    bool valid() const { return why.empty(); }
    void spoil(const std::string& reason) {
      if (valid()) why = reason;
    }
    /// True if the stream that began has waited for all work.
    bool joined() const {
      std::vector<bool> reached(nodes.size());
      const auto& latest = streams.at(origin).latest;
      std::vector<size_t> open(latest.begin(), latest.end());
      while (!open.empty()) {
        const size_t at = open.back();
        open.pop_back();
        if (reached[at]) continue;
        reached[at] = true;
        open.insert(open.end(), nodes[at].after.begin(), nodes[at].after.end());
      }
      return std::all_of(reached.begin(), reached.end(), [](bool one) { return one; });
    }
  };

  [[noreturn]] static void illegal(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, text); }

  // With the mutex held. NULL: there is none.
  Capture* find(const void* stream) const {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : found->second;
  }
  Capture* find(uint64_t id) const {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->id == id; });
    return found == all_.end() ? nullptr : found->get();
  }
  std::unique_ptr<Capture> take(Capture& capture) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.get() == &capture; });
    std::unique_ptr<Capture> taken = std::move(*found);
    all_.erase(found);
    for (const auto& member : taken->streams) streams_.erase(member.first);
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    return taken;
  }

  std::atomic<int32_t> under_way_{0};
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::vector<std::unique_ptr<Capture>> all_;
  std::unordered_map<const void*, Capture*> streams_;
};

}  // namespace backplane::driver
