// drivers/opencl/graph.cpp: captures, and runs that queue what was recorded, one command behind the other.
#include "graph.h"

#include <optional>
#include <utility>

namespace backplane::driver::opencl {
namespace {

constexpr char kNoRecording[] = "graph: no recording of this device";
constexpr char kNoExec[] = "graph: no graph of this device that is ready to run";

}  // namespace

struct Graphs::Recording {
  const int32_t device;
  Captures<Recorded>::Nodes nodes;
};

struct Graphs::Exec {
  const int32_t device;
  const std::shared_ptr<const Recording> recording;
  std::mutex mutex{};  // over one launch: runs come in the order of the calls
  const Queue* on = nullptr;
  Event latest{};  // behind the latest run, which was queued there
};

Graphs::Graphs(Instance& instance) : instance_(instance) {}
Graphs::~Graphs() = default;

void Graphs::capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  Device& on = instance_.at(device);
  on.queue(stream);
  on.check();
  const uint64_t number = instance_.captures.begin(stream, &on, stream == nullptr, mode);
  if (id) *id = number;
}

void Graphs::capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  need(out, "graph.capture_end: out");
  Device& on = instance_.at(device);
  on.queue(stream);
  auto ended = instance_.captures.end(stream);
  ended.check();
  on.check();
  recordings_.add(std::make_shared<Recording>(Recording{device, std::move(ended.nodes)}), out);
}

void Graphs::capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
  need(out, "graph.capture_status: out");
  instance_.at(device);
  *out = instance_.captures.status(stream, id);
}

void Graphs::instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
  need(out, "graph.instantiate: out");
  need_no_flags("graph.instantiate", flags);
  Device& on = instance_.at(device);
  const auto from = recordings_.find(recording, device, kNoRecording);
  on.check();
  execs_.add(std::shared_ptr<Exec>(new Exec{device, from}), out);
}

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  Device& of = instance_.at(device);
  const auto queue = of.queue(stream);
  of.check();
  instance_.captures.check_stream("graph.launch", stream);
  const auto found = execs_.find(exec, device, kNoExec);
  std::lock_guard lock(found->mutex);
  std::optional<Queue::Batch> batch;
  if (!instance_.profile.is_on()) batch.emplace(*queue);  // a record has events of its own, between which this would wait for others
  if (found->on != queue.get() && found->latest) queue->wait_for(found->latest);
  for (const auto& node : found->recording->nodes) {
    const auto& [label, what, again] = node.work;
    instance_.profile.around(
        what, stream, [&run = again, &queue] { run(*queue); }, what.kind == BP_ACTIVITY_KERNEL ? label.c_str() : nullptr);
  }
  found->latest = queue->marker();
  found->on = queue.get();
}

void Graphs::recording_destroy(int32_t device, bp_recording* recording) {
  instance_.at(device);
  recordings_.take(recording, device, kNoRecording);
}

void Graphs::exec_destroy(int32_t device, bp_graph_exec* exec) {
  instance_.at(device);
  execs_.take(exec, device, kNoExec);
}

void Graphs::dump(int32_t device, bp_recording* recording, const char* path) {
  const auto found = recordings_.find(recording, device, kNoRecording);
  write_recording(path, recording_text(found->nodes, [](const Recorded& one) { return one.label; }));
}

}  // namespace backplane::driver::opencl
