// drivers/engine/capture.cpp: captures and recordings; the rules are those of bp.graph.
#include "capture.h"

#include <algorithm>
#include <utility>

#include <backplane/driver/graph.h>
#include <backplane/driver/cxx/error.hpp>

#include "engine.h"

namespace backplane::driver {
namespace {

[[noreturn]] void illegal(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, text); }

const char* label_of(const Work& work) {
  if (work.name) return work.name;
  if (work.kind == BP_ACTIVITY_COPY) return "copy";
  if (work.kind == BP_ACTIVITY_FILL) return "fill";
  return work.kind == BP_ACTIVITY_KERNEL ? "host function" : "delay";
}

}  // namespace

Recording::~Recording() {
  for (Node& node : nodes_) {
    if (node.destroy) node.destroy(node.job);
  }
}

void Recording::run(std::vector<Recorder::Owned>& records) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int32_t status = device_.sticky();
    if (status != BP_OK) return;
    TimedWork timed(records.empty() ? nullptr : records[i].release());
    Job job = nodes_[i].job;
    job.run(job, status);
    timed.ran = true;
  }
}

std::string Recording::text() const {
  std::string text = "digraph recording {\n  node [shape=box];\n";
  for (size_t i = 0; i < nodes_.size(); ++i) {
    text += format("  n%zu [label=\"%zu: %s\\nstream %d\"];\n", i, i, label_of(nodes_[i].what), nodes_[i].stream);
    for (const size_t before : nodes_[i].after) text += format("  n%zu -> n%zu;\n", before, i);
  }
  return text + "}\n";
}

/// One that is under way. Under the mutex of Captures.
class Capture {
 public:
  Capture(uint64_t number, int32_t mode_of, Stream& began)
      : id(number),
        mode(mode_of),
        thread(std::this_thread::get_id()),
        origin(&began),
        recording(std::make_shared<Recording>(began.device())) {}

  bool valid() const { return why_.empty(); }
  const std::string& why() const { return why_; }
  /// The first reason counts.
  void spoil(const std::string& why) {
    if (valid()) why_ = why;
  }

  void add(const Stream& stream, Node&& node) {
    auto& [number, latest] = streams.at(&stream);
    node.stream = number;
    node.after.assign(latest.begin(), latest.end());
    latest = {recording->nodes().size()};
    recording->add(std::move(node));
  }

  /// True if the stream that began has waited for all work.
  bool joined() const {
    const auto& nodes = recording->nodes();
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

  struct Captured {
    int32_t number;
    std::set<size_t> latest;  // nodes that the stream's next one follows
  };

  const uint64_t id;
  const int32_t mode;
  const std::thread::id thread;
  const Stream* origin;  // NULL: destroyed
  std::shared_ptr<Recording> recording;
  std::unordered_map<const Stream*, Captured> streams;

 private:
  std::string why_;
};

Captures::Captures() = default;
Captures::~Captures() = default;

Capture* Captures::find(const Stream& stream) const {
  const auto found = streams_.find(&stream);
  return found == streams_.end() ? nullptr : found->second;
}

Capture* Captures::find(uint64_t id) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->id == id; });
  return found == all_.end() ? nullptr : found->get();
}

std::unique_ptr<Capture> Captures::take(Capture& capture) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.get() == &capture; });
  std::unique_ptr<Capture> taken = std::move(*found);
  all_.erase(found);
  for (const auto& [stream, unused] : taken->streams) streams_.erase(stream);
  under_way_.fetch_sub(1, std::memory_order_relaxed);
  return taken;
}

uint64_t Captures::begin(Stream& stream, int32_t mode) {
  if (mode < BP_CAPTURE_GLOBAL || mode > BP_CAPTURE_RELAXED) illegal("graph.capture_begin: no mode " + std::to_string(mode));
  if (&stream == &stream.device().default_stream()) {
    throw Error(BP_UNSUPPORTED, "graph.capture_begin: the default stream cannot capture; take another one");
  }
  std::lock_guard lock(mutex_);
  if (find(stream)) illegal("graph.capture_begin: the stream captures already");
  auto capture = std::make_unique<Capture>(++last_id_, mode, stream);
  capture->streams[&stream] = {0, {}};
  streams_[&stream] = capture.get();
  all_.push_back(std::move(capture));
  under_way_.fetch_add(1, std::memory_order_relaxed);
  return last_id_;
}

std::shared_ptr<const Recording> Captures::end(Stream& stream) {
  std::unique_ptr<Capture> ended;  // released outside the lock: it calls back
  {
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found || found->origin != &stream) illegal("graph.capture_end: no capture began on this stream");
    ended = take(*found);
  }
  if (!ended->valid()) illegal("graph.capture_end: the capture is invalid: " + ended->why());
  if (!ended->joined()) {
    illegal("graph.capture_end: work of another stream has not come back: the stream that began must wait for an event behind it");
  }
  return ended->recording;
}

int32_t Captures::status(const Stream& stream, uint64_t* id) {
  if (id) *id = 0;
  if (under_way_.load(std::memory_order_relaxed) == 0) return BP_CAPTURE_NONE;
  std::lock_guard lock(mutex_);
  const Capture* found = find(stream);
  if (!found) return BP_CAPTURE_NONE;
  if (id) *id = found->id;
  return found->valid() ? BP_CAPTURE_ACTIVE : BP_CAPTURE_INVALID;
}

bool Captures::take_node(Stream& stream, Node node) {
  {
    std::lock_guard lock(mutex_);
    Capture* found = find(stream);
    if (!found) return false;
    if (found->valid()) {
      found->add(stream, std::move(node));
      return true;
    }
  }
  if (node.destroy) node.destroy(node.job);
  return true;
}

bool Captures::record_event(Stream& stream, EngineEvent& event) {
  if (under_way_.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  std::lock_guard lock(mutex_);
  Capture* found = find(stream);
  if (!found) return false;
  if (event.shared) {
    found->spoil("event_record of an event that is shared between processes");
    illegal("event_record: an event that is shared between processes cannot be recorded in a capture");
  }
  auto point = std::make_shared<CapturedPoint>(CapturedPoint{found->id, found->streams.at(&stream).latest});
  std::lock_guard event_lock(event.mutex);
  event.point = std::move(point);
  event.captured.store(true, std::memory_order_release);
  return true;
}

bool Captures::wait(Stream& stream, EngineEvent& event) {
  if (under_way_.load(std::memory_order_relaxed) == 0 && !event.captured.load(std::memory_order_acquire)) [[likely]]
    return false;
  std::lock_guard lock(mutex_);
  Capture* own = find(stream);
  std::shared_ptr<const CapturedPoint> point;
  bool recorded = false;
  {
    std::lock_guard event_lock(event.mutex);
    point = event.point;
    recorded = event.latest || event.shared;
  }
  if (!point) {
    if (!own || !recorded) return own != nullptr;
    own->spoil("stream_wait for an event that was recorded outside of it");
    illegal("stream_wait: the stream captures, the event was recorded outside of that capture");
  }
  Capture* others = find(point->capture);
  if (!others) {
    if (own) own->spoil("stream_wait for an event of a capture that has ended");
    illegal("stream_wait: the event was recorded in a capture that has ended; record it anew");
  }
  if (own && own != others) {
    own->spoil("stream_wait for an event of another capture");
    others->spoil("stream_wait of a stream that captures something else");
    illegal("stream_wait: the stream and the event belong to two captures");
  }
  if (!own) {
    if (&stream.device() != &others->recording->device() || &stream == &stream.device().default_stream()) {
      others->spoil("stream_wait of a stream that cannot join: another device's, or the default one");
      illegal("stream_wait: a capture takes streams of one device, save its default stream");
    }
    others->streams[&stream] = {static_cast<int32_t>(others->streams.size()), {}};
    streams_[&stream] = others;
  }
  if (others->valid()) others->streams.at(&stream).latest.insert(point->before.begin(), point->before.end());
  return true;
}

void Captures::check_event(const char* call, EngineEvent& event) {
  if (!event.captured.load(std::memory_order_acquire)) [[likely]]
    return;
  std::lock_guard lock(mutex_);
  std::shared_ptr<const CapturedPoint> point;
  {
    std::lock_guard event_lock(event.mutex);
    point = event.point;
  }
  if (!point) return;
  if (Capture* found = find(point->capture)) found->spoil(std::string(call) + " of an event that was recorded in it");
  illegal(std::string(call) + ": the event's latest record is part of a graph, and nothing that can be waited for");
}

void Captures::drop(Stream& stream) {
  if (under_way_.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  std::unique_ptr<Capture> ended;
  std::lock_guard lock(mutex_);
  Capture* found = find(stream);
  if (!found) return;
  found->spoil("stream_destroy of a stream that captures");
  if (found->origin == &stream) {
    ended = take(*found);  // nobody can end it any more
  } else {
    found->streams.erase(&stream);
    streams_.erase(&stream);
  }
}

void Captures::refuse_on(const char* call, const Stream& stream) {
  std::lock_guard lock(mutex_);
  Capture* found = find(stream);
  if (!found) return;
  found->spoil(std::string(call) + " on a stream that captures");
  illegal(std::string(call) + ": the stream captures a graph, which cannot hold this");
}

void Captures::refuse_on(const char* call, const EngineDevice& device) {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (const auto& one : all_) {
    if (&one->recording->device() != &device) continue;
    one->spoil(std::string(call) + " of the device");
    any = true;
  }
  if (any) illegal(std::string(call) + ": a stream of the device captures a graph");
}

void Captures::refuse_wait(const char* call) {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (const auto& one : all_) {
    if (one->mode == BP_CAPTURE_RELAXED) continue;
    if (one->mode == BP_CAPTURE_THREAD && one->thread != std::this_thread::get_id()) continue;
    one->spoil(std::string(call) + ", which waits, in the mode " + (one->mode == BP_CAPTURE_GLOBAL ? "GLOBAL" : "THREAD"));
    any = true;
  }
  if (any) illegal(std::string(call) + ": a graph is being captured in a mode that allows no waits");
}

}  // namespace backplane::driver
