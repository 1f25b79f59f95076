// drivers/opencl/graph.cpp: captures, and runs that queue what was recorded, one command behind the other.
#include "graph.h"

#include <cstdio>
#include <optional>
#include <utility>

namespace backplane::driver::opencl {
namespace {

[[noreturn]] void bad_call(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, "graph." + text); }

void need_given(const void* pointer, const char* what) {
  if (!pointer) bad_call(std::string(what) + " must not be NULL");
}

}  // namespace

struct Graphs::Recording {
  const Device* device;
  Captures<Recorded>::Nodes nodes;
};

struct Graphs::Exec {
  std::shared_ptr<const Recording> recording;
  std::mutex mutex;  // over one launch: runs come in the order of the calls
  const Queue* on = nullptr;
  Event latest;  // behind the latest run, which was queued there
};

Graphs::Graphs() = default;
Graphs::~Graphs() = default;

void Graphs::release_graphs() {
  std::lock_guard lock(mutex_);
  execs_.clear();
  recordings_.clear();
}

std::shared_ptr<Graphs::Recording> Graphs::find(Device& device, bp_recording* recording, const char* call) const {
  std::lock_guard lock(mutex_);
  const auto found = recordings_.find(recording);
  if (found == recordings_.end() || found->second->device != &device) {
    bad_call(std::string(call) + format(": no recording of device %d", device.index()));
  }
  return found->second;
}

std::shared_ptr<Graphs::Exec> Graphs::find(Device& device, bp_graph_exec* exec, const char* call) const {
  std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end() || found->second->recording->device != &device) {
    bad_call(std::string(call) + format(": no graph of device %d that is ready to run", device.index()));
  }
  return found->second;
}

void Graphs::graph_capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  Device& on = graph_device(device);
  on.queue(stream);
  on.check();
  const uint64_t number = captures_.begin(stream, &on, stream == nullptr, mode);
  if (id) *id = number;
}

void Graphs::graph_capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  need_given(out, "capture_end: out");
  Device& on = graph_device(device);
  on.queue(stream);
  auto ended = captures_.end(stream);
  ended.check();
  on.check();
  auto kept = std::make_shared<Recording>(Recording{&on, std::move(ended.nodes)});
  std::lock_guard lock(mutex_);
  recordings_.emplace(kept.get(), kept);
  *out = reinterpret_cast<bp_recording*>(kept.get());
}

void Graphs::graph_capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
  need_given(out, "capture_status: out");
  graph_device(device);
  *out = captures_.status(stream, id);
}

void Graphs::graph_instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
  need_given(out, "instantiate: out");
  if (flags != 0) bad_call(format("instantiate: flags must be 0, not 0x%x", flags));
  Device& on = graph_device(device);
  auto made = std::make_shared<Exec>();
  made->recording = find(on, recording, "instantiate");
  on.check();
  std::lock_guard lock(mutex_);
  execs_.emplace(made.get(), made);
  *out = reinterpret_cast<bp_graph_exec*>(made.get());
}

void Graphs::graph_launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  Device& of = graph_device(device);
  const auto queue = of.queue(stream);
  of.check();
  captures_.check_stream("graph.launch", stream);
  const auto found = find(of, exec, "launch");
  std::lock_guard lock(found->mutex);
  std::optional<Queue::Batch> batch;
  if (!graph_profiled()) batch.emplace(*queue);  // a record has events of its own, between which this would wait for others
  if (found->on != queue.get() && found->latest) queue->wait_for(found->latest);
  for (const auto& node : found->recording->nodes) graph_queue(node.work, stream, *queue);
  found->latest = queue->marker();
  found->on = queue.get();
}

void Graphs::graph_recording_destroy(int32_t device, bp_recording* recording) {
  const auto last = find(graph_device(device), recording, "recording_destroy");
  std::lock_guard lock(mutex_);
  recordings_.erase(last.get());
}

void Graphs::graph_exec_destroy(int32_t device, bp_graph_exec* exec) {
  const auto last = find(graph_device(device), exec, "exec_destroy");
  std::lock_guard lock(mutex_);
  execs_.erase(last.get());
}

void Graphs::graph_dump(int32_t device, bp_recording* recording, const char* path) {
  need_given(path, "dump: path");
  const std::string text =
      recording_text(find(graph_device(device), recording, "dump")->nodes, [](const Recorded& one) { return one.label; });
  FILE* const file = std::fopen(path, "w");
  if (!file) bad_call(std::string("dump: ") + path + " cannot be written");
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) bad_call(std::string("dump: ") + path + " cannot be written");
}

}  // namespace backplane::driver::opencl
