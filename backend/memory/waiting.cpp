// memory/waiting.cpp: freed blocks that other streams still use, and the events that say when they are done.
#include <algorithm>
#include <thread>

#include "memory/device_memory.h"
#include "memory/last_use.h"
#include "runtime/stream.h"

namespace backplane::memory {

void DeviceMemory::record_stream(Block* block, const c10::Stream& stream) {
  const Locked lock(*this);
  if (stream.device_index() == device_ && stream.id() == block->segment->arena->stream()) return;
  if (block->other_streams == nullptr) block->other_streams = std::make_unique<std::vector<c10::Stream>>();
  auto& streams = *block->other_streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void DeviceMemory::wait_for_others(Block* block, const std::vector<c10::Stream>& streams) {
  std::vector<Waiting> uses;
  for (const c10::Stream& stream : streams) uses.push_back({last_use(stream), stream, block});
  const Locked lock(*this);
  block->events = static_cast<uint32_t>(uses.size());
  for (auto& use : uses) waiting_.push_back(std::move(use));
  --in_hand_;
}

void DeviceMemory::other_stream_done(Block* block) {
  if (--block->events != 0) return;
  statistics_.inactive(block->segment->kind, block->size);
  if (C10_UNLIKELY(history_ != nullptr)) {
    note_freed(block, HistoryEvent::Action::free_completed, nullptr);
    dead_.push_back(std::move(block->context));
  }
  block->segment->arena->put_recent(block, ++frees_);
}

// Takes back what is done by now. The events are asked outside the lock, on a list taken out of it; the events of one stream complete in
// order, so the first that is pending ends the questions for its stream.
void DeviceMemory::collect_finished() {
  std::deque<Waiting> taken;
  {
    const Locked lock(*this);
    if (waiting_.empty()) return;
    taken.swap(waiting_);
    ++in_hand_;
  }
  std::vector<c10::Stream> busy;
  std::vector<Waiting> done;  // its events go back to their pool after the lock is given up
  std::deque<Waiting> pending;
  for (auto& entry : taken) {
    if (std::find(busy.begin(), busy.end(), entry.stream) == busy.end()) {
      if (is_over(*entry.event)) {
        done.push_back(std::move(entry));
        continue;
      }
      busy.push_back(entry.stream);
    }
    pending.push_back(std::move(entry));
  }
  const Locked lock(*this);
  for (auto& entry : done) other_stream_done(entry.block);
  for (auto& entry : waiting_) pending.push_back(std::move(entry));
  waiting_.swap(pending);
  --in_hand_;
}

// Waits until no freed block is in use by another stream. What other threads hold to ask their events is back in a moment: asking never
// blocks.
bool DeviceMemory::finish_waiting() {
  bool progress = false;
  for (; in_hand_.load() != 0; std::this_thread::yield()) progress = true;
  collect_finished();
  std::vector<c10::Stream> streams;
  {
    const Locked lock(*this);
    if (waiting_.empty()) return progress;
    ++statistics_.values().num_sync_all_streams;
    for (const auto& entry : waiting_) {
      if (std::find(streams.begin(), streams.end(), entry.stream) == streams.end()) streams.push_back(entry.stream);
    }
  }
  for (const auto& stream : streams) {
    try {
      synchronize_device(stream.device_index());
    } catch (const c10::Error&) {
      if (stream.device_index() == device_) throw;  // another device's failure is not ours; its work is over
    }
  }
  collect_finished();
  return true;
}

}  // namespace backplane::memory
