// memory/waiting.cpp: freed blocks that other streams still use, and the events that mark the end of the use.
#include <algorithm>
#include <chrono>
#include <set>

#include "memory/device_cache.h"
#include "memory/last_use.h"
#include "runtime/errors.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::memory {

void DeviceCache::record_stream(Block* block, const c10::Stream& stream) {
  const Locked lock(*this);
  if (stream.device_index() == device_ && stream.id() == block->segment->arena->stream()) return;
  if (block->other_streams == nullptr) block->other_streams = std::make_unique<std::vector<c10::Stream>>();
  auto& streams = *block->other_streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void DeviceCache::wait_for_others(Block* block, const std::vector<c10::Stream>& streams) {
  if (anything_captures() && std::any_of(streams.begin(), streams.end(), [](const auto& one) { return capture_id(one) != 0; })) {
    const Locked lock(*this);
    later_.push_back({block, streams});
    decrement(event_threads_);
    return;
  }
  std::vector<Waiting> uses;
  for (const c10::Stream& stream : streams) uses.push_back({last_use(stream), stream, block});
  const Locked lock(*this);
  block->events = static_cast<uint32_t>(uses.size());
  for (auto& use : uses) waiting_.push_back(std::move(use));
  decrement(event_threads_);
}

// After the end of a capture. Blocks of a capture that still goes on return to the list.
void DeviceCache::finish_later_frees() {
  std::vector<Later> ended;
  {
    const Locked lock(*this);
    ended.swap(later_);
    event_threads_ += static_cast<int>(ended.size());
  }
  for (const Later& one : ended) wait_for_others(one.block, one.streams);
}

void DeviceCache::decrement(int& threads) {
  if (--threads == 0) other_threads_.notify_all();
}

// Waits as for the device, since the other threads are in calls of the driver: Ctrl-C and the watchdog can end it. Returns whether there
// was anything to wait for.
bool DeviceCache::wait_for_threads(const int& threads, const char* what) {
  {
    const Locked lock(*this);
    if (threads == 0) return false;
  }
  const int32_t status = interruptible_wait([&](uint64_t timeout_ns) -> int32_t {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto none = [&] { return threads == 0; };
    if (timeout_ns == BP_NO_TIMEOUT) {
      other_threads_.wait(lock, none);
      return BP_OK;
    }
    return other_threads_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), none) ? BP_OK : BP_TIMEOUT;
  });
  if (status != BP_OK) throw_waited(status, what, device_, "another thread's call of the driver has not returned");
  return true;
}

void DeviceCache::other_stream_done(Block* block) {
  if (--block->events != 0) return;
  statistics_.inactive(block->segment->kind, block->size);
  if (C10_UNLIKELY(history_ != nullptr)) {
    note_freed(block, HistoryEvent::Action::free_completed, nullptr);
    dead_.push_back(std::move(block->context));
  }
  block->segment->arena->put_recent(block, ++frees_);
}

// Reclaims blocks whose uses are complete. The events are queried outside the lock, on a list that is moved out of it; the events of one
// stream complete in order, so after the first pending one its stream is not queried again.
void DeviceCache::collect_finished() {
  std::deque<Waiting> taken;
  bool any_later = false;
  {
    const Locked lock(*this);
    any_later = !later_.empty();
  }
  if (C10_UNLIKELY(any_later) && !anything_captures()) finish_later_frees();
  {
    const Locked lock(*this);
    if (waiting_.empty()) return;
    taken.swap(waiting_);
    ++event_threads_;
  }
  std::vector<c10::Stream> busy;
  std::vector<Waiting> done;  // its events return to their pool after the lock is released
  std::deque<Waiting> pending;
  for (auto& entry : taken) {
    if (std::find(busy.begin(), busy.end(), entry.stream) == busy.end()) {
      if (is_complete(*entry.event)) {
        done.push_back(std::move(entry));
        continue;
      }
      busy.push_back(entry.stream);
    }
    pending.push_back(std::move(entry));
  }
  Removed removed;
  {
    const Locked lock(*this);
    std::set<Segment*> idle;
    for (auto& entry : done) {
      if (C10_UNLIKELY(!keeps(entry.block->segment->arena->pool()))) idle.insert(entry.block->segment);
      other_stream_done(entry.block);
    }
    for (Segment* segment : idle) take_idle(segment, removed, nullptr);
    for (auto& entry : waiting_) pending.push_back(std::move(entry));
    waiting_.swap(pending);
    decrement(event_threads_);
    if (C10_LIKELY(idle.empty())) return;
    ++releasing_;
  }
  return_to_driver(removed);
}

// Waits until no freed block is in use by another stream. Blocks whose events other threads record or query return to the list shortly.
bool DeviceCache::finish_waiting() {
  if (anything_captures()) {  // waits are illegal
    collect_finished();
    return false;
  }
  const bool progress = wait_for_threads(event_threads_, "event_record or event_query (for memory that another thread has freed)");
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
      if (stream.device_index() == device_) throw;  // another device's failure does not matter here; its work has ended
    }
  }
  collect_finished();
  return true;
}

}  // namespace backplane::memory
