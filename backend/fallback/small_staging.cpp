// fallback/small_staging.cpp: which thread owns which block, and when it may be written.
#include "fallback/small_staging.h"

#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/overrides.h"
#include "runtime/stream.h"
#include "tensor/copy.h"

namespace backplane {
namespace small_staging_impl {
namespace {

struct Kept {
  at::Tensor block;
  std::optional<c10::Stream> stream;  // of the last call
};

// Blocks of threads that have ended.
struct Orphans {
  std::mutex mutex;
  std::vector<Kept> blocks;
};

Orphans& orphans() {
  static auto* const instance = new Orphans;  // lives until the end of the process, after which nothing is freed
  return *instance;
}

struct Slot {
  Kept kept;
  ~Slot() {
    if (!kept.block.defined()) return;
    const std::lock_guard<std::mutex> lock(orphans().mutex);
    orphans().blocks.push_back(std::move(kept));
  }
};

thread_local Slot slot;

Kept take_orphan() {
  const std::lock_guard<std::mutex> lock(orphans().mutex);
  if (orphans().blocks.empty()) return {};
  Kept kept = std::move(orphans().blocks.back());
  orphans().blocks.pop_back();
  return kept;
}

bool is_usable(const Kept& kept, const c10::Stream& stream) {
  if (kept.block.storage().use_count() > 1) return false;  // an operator kept its argument
  return kept.stream == stream || query_stream(*kept.stream);
}

// The thread's block, or another one. Nested calls find none and allocate one more.
at::Tensor take(const c10::Stream& stream) {
  Kept kept = std::exchange(slot.kept, {});
  if (!kept.block.defined()) kept = take_orphan();
  if (kept.block.defined()) {
    if (is_usable(kept, stream)) return std::move(kept.block);
    record_pinned(kept.block, *kept.stream);  // it returns to the allocator, and is reused when that work is complete
  }
  return pinned_tensor({static_cast<int64_t>(SmallStaging::kOperands + SmallStaging::kResults)}, {1}, c10::kByte);
}

// Blocks that no call uses: those of threads that have ended, and this thread's. Other threads keep theirs.
void release_idle() {
  std::vector<Kept> idle;
  {
    const std::lock_guard<std::mutex> lock(orphans().mutex);
    idle.swap(orphans().blocks);
  }
  if (slot.kept.block.defined()) idle.push_back(std::exchange(slot.kept, {}));
  for (const Kept& kept : idle) {
    if (!query_stream(*kept.stream)) record_pinned(kept.block, *kept.stream);
  }
}

const bool registered = [] {
  overrides().release_staging = &release_idle;
  return true;
}();

}  // namespace
}  // namespace small_staging_impl

SmallStaging::SmallStaging(const c10::Stream& stream) : stream_(stream), block_(small_staging_impl::take(stream)) {}

SmallStaging::~SmallStaging() {
  small_staging_impl::Kept mine{std::move(block_), stream_};
  if (!small_staging_impl::slot.kept.block.defined()) {
    small_staging_impl::slot.kept = std::move(mine);
    return;
  }
  const std::lock_guard<std::mutex> lock(small_staging_impl::orphans().mutex);
  small_staging_impl::orphans().blocks.push_back(std::move(mine));
}

bool SmallStaging::has(const void* memory) const {
  const auto* const begin = static_cast<const char*>(block_.const_data_ptr());
  return memory >= begin && memory < begin + kOperands + kResults;
}

bool SmallStaging::check_quiet() {
  if (!quiet_) quiet_ = query_stream(stream_);
  return quiet_;
}

bool SmallStaging::send(uint64_t address, const void* from, uint64_t bytes) {
  const void* source = from;
  if (!has(from)) {
    if (bytes > kResults - results_ || !check_quiet()) return false;
    char* const place = operands() + kOperands + results_;
    std::memcpy(place, from, bytes);
    results_ += (bytes + 63) & ~uint64_t{63};
    source = place;
  }
  copy_bytes({address, stream_.device_index()}, {reinterpret_cast<uint64_t>(source), -1}, bytes, stream_, /*async=*/true);
  return true;
}

}  // namespace backplane
