// drivers/vulkan/graph.cpp: captures, command buffers of what they kept, and runs.
#include "graph.h"

#include <utility>
#include <variant>

namespace backplane::driver::vulkan {
namespace {

constexpr char kNoRecording[] = "graph: no recording of this device";
constexpr char kNoExec[] = "graph: no graph of this device that is ready to run";

}  // namespace

struct Graphs::Recording {
  const int32_t device;
  Captures<Recorded>::Nodes nodes;
};

/// Parts that follow each other: commands, or a copy that the host does.
struct Graphs::Exec {
  const int32_t device;
  const std::shared_ptr<const Recording> recording;
  CommandPool pool;
  std::vector<std::variant<std::unique_ptr<Commands>, const Work*>> parts;
  std::mutex mutex{};  // over one launch: runs come in the order of the calls
  Point latest{};      // behind the latest run

  Exec(Device& on, std::shared_ptr<const Recording> from) : device(on.index()), recording(std::move(from)), pool(on) {
    Commands* open = nullptr;
    for (const auto& node : recording->nodes) {
      const Work& work = node.work.work;
      if (!work.record) {
        if (open) std::exchange(open, nullptr)->end();
        if (work.host) parts.emplace_back(&work);
        continue;
      }
      if (open) {
        open->barrier();
      } else {
        auto commands = std::make_unique<Commands>(on, pool);
        open = commands.get();
        parts.emplace_back(std::move(commands));
        open->begin(VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
      }
      work.record(*open);
    }
    if (open) open->end();
  }
};

Graphs::Graphs(Instance& instance) : instance_(instance) {}
Graphs::~Graphs() = default;

void Graphs::capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  Device& on = instance_.at(device);
  on.stream(stream);
  on.check();
  const uint64_t number = instance_.captures.begin(stream, &on, stream == nullptr, mode);
  if (id) *id = number;
}

void Graphs::capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  need(out, "graph.capture_end: out");
  Device& on = instance_.at(device);
  on.stream(stream);
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
  execs_.add(std::make_shared<Exec>(on, from), out);
}

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  Device& on = instance_.at(device);
  const auto queue = on.stream(stream);
  on.check();
  instance_.captures.check_stream("graph.launch", stream);
  const auto found = execs_.find(exec, device, kNoExec);
  std::lock_guard lock(found->mutex);
  queue->wait_for(found->latest);
  if (instance_.profile.is_on()) {  // each piece has a record, with times of its own
    for (const auto& node : found->recording->nodes) {
      const auto& [label, what, work] = node.work;
      if (!work.record && !work.host) continue;
      instance_.profile.around(
          what, stream, [&run = work, &queue] { queue->run(run); }, what.kind == BP_ACTIVITY_KERNEL ? label.c_str() : nullptr);
    }
  } else {
    for (const auto& part : found->parts) {
      if (const auto* commands = std::get_if<std::unique_ptr<Commands>>(&part)) {
        queue->run((*commands)->get(), found);
      } else {
        queue->run(*std::get<const Work*>(part));
      }
    }
  }
  found->latest = queue->last();
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

}  // namespace backplane::driver::vulkan
