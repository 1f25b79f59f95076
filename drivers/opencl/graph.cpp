// drivers/opencl/graph.cpp: runs that queue what was recorded, one command behind the other.
#include "graph.h"

#include <optional>

namespace backplane::driver::opencl {

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  const auto queue = instance_.at(device).stream(stream);
  const auto found = ready(device, stream, exec);
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

}  // namespace backplane::driver::opencl
