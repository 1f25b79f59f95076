// drivers/vulkan/graph.cpp: command buffers of what a capture kept, and runs.
#include "graph.h"

#include <utility>

namespace backplane::driver::vulkan {

GraphExec::GraphExec(Device& on, std::shared_ptr<const KeptRecording<Recorded>> from)
    : device(on.index()), recording(std::move(from)), pool(on) {
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

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  const auto queue = instance_.at(device).stream(stream);
  const auto found = ready(device, stream, exec);
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

}  // namespace backplane::driver::vulkan
