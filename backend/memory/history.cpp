// memory/history.cpp: the ring of events, and how a device's memory fills it.
#include "memory/history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>

#include "memory/device_cache.h"

namespace backplane::memory {

History::~History() {
  for (HistoryEvent& event : ring_) dead_.push_back(std::move(event.context));
}

void History::add(HistoryEvent event) {
  if (!settings_.events || (settings_.skipped >> static_cast<uint32_t>(event.action) & 1) != 0 || settings_.max_entries == 0) {
    dead_.push_back(std::move(event.context));
    return;
  }
  if (settings_.stacks < HistorySettings::Stacks::alloc) dead_.push_back(std::move(event.context));
  if (event.time_us == 0) event.time_us = c10::getTime() / 1000;  // else it is from an earlier recording
  if (ring_.size() < settings_.max_entries) {
    ring_.push_back(std::move(event));
    return;
  }
  dead_.push_back(std::move(ring_[oldest_].context));
  ring_[oldest_] = std::move(event);
  oldest_ = (oldest_ + 1) % ring_.size();
}

std::vector<HistoryEvent> History::events() const {
  std::vector<HistoryEvent> list(ring_.begin() + static_cast<ptrdiff_t>(oldest_), ring_.end());
  list.insert(list.end(), ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(oldest_));
  return list;
}

void DeviceCache::record_history(const HistorySettings* settings, bool clear) {
  const Locked lock(*this);
  auto before = std::move(history_);
  if (settings != nullptr) {
    history_ = std::make_unique<History>(*settings, dead_);
    if (before != nullptr && !clear) {
      for (HistoryEvent& event : before->events()) history_->add(std::move(event));
    }
    return;
  }
  const auto forget = [&](Pool& pool) {
    for (const auto& entry : pool.segments) {
      dead_.push_back(std::move(entry.second->context));
      for (Block* block = entry.second->first; block != nullptr; block = block->next) dead_.push_back(std::move(block->context));
    }
  };
  forget(pool_);
  for (auto& entry : private_pools_) forget(*entry.second);
}

// See Note [Stacks].
void DeviceCache::unlock_and_release() {
  std::vector<StackContext> dead;
  dead.swap(dead_);
  mutex_.unlock();
}

void DeviceCache::note(HistoryEvent::Action action, const Pool& pool, c10::StreamId stream, uint64_t address, size_t size,
                       StackContext context) {
  if (C10_LIKELY(history_ == nullptr)) return;
  history_->add({action, device_, address, size, stream, pool.id, 0, std::move(context)});
}

void DeviceCache::note_handed_out(Block* block, StackContext& context) {
  const Arena& arena = *block->segment->arena;
  note(HistoryEvent::Action::alloc, arena.pool(), arena.stream(), block->address.load(std::memory_order_relaxed), block->requested,
       context);
  block->context = std::move(context);
}

// A free without a stack shows the stack of the allocation.
void DeviceCache::note_freed(const Block* block, HistoryEvent::Action action, StackContext context) {
  const Arena& arena = *block->segment->arena;
  note(action, arena.pool(), arena.stream(), block->address.load(std::memory_order_relaxed), block->requested,
       context != nullptr ? std::move(context) : block->context);
}

}  // namespace backplane::memory
