// tests/device/cpp/allocator_stress.cpp: threads that call all of the allocator at once; no byte is allocated twice, none is lost.
//
// Usage: allocator_stress [STEPS [THREADS]]. Made for ThreadSanitizer: the program shares nothing between its threads but what it tests, a
// mutex over the owned ranges, and the queue of memory that another thread frees.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "memory/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

using namespace backplane;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Taken {
  void* ptr;
  size_t bytes;
};

std::mutex mutex;
std::map<uintptr_t, size_t> owned;  // start -> bytes, of all threads
std::vector<Taken> orphans;         // freed by any thread
std::atomic<int> errors{0};

void wrong(const char* what) {
  if (errors.fetch_add(1) == 0) std::cout << what << std::endl;
}

void own(const Taken& taken) {
  const auto begin = reinterpret_cast<uintptr_t>(taken.ptr);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto next = owned.lower_bound(begin);
  if (next != owned.end() && next->first < begin + taken.bytes) wrong("memory was handed out twice");
  if (next != owned.begin() && std::prev(next)->first + std::prev(next)->second > begin) wrong("memory was handed out twice");
  owned.emplace(begin, taken.bytes);
}

void give_back(const Taken& taken) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    owned.erase(reinterpret_cast<uintptr_t>(taken.ptr));
  }
  CachingAllocator::raw_delete(taken.ptr);
}

struct Stack : c10::GatheredContext {};

void look_around(std::mt19937& random) {
  CachingAllocator& allocator = caching_allocator();
  switch (random() % 9) {
    case 0:
      allocator.emptyCache();
      break;
    case 1:
      allocator.snapshot();
      break;
    case 2:
      if (allocator.getDeviceStats(0).allocated_bytes[0].current < 0) wrong("negative statistics");
      break;
    case 3:
      set_allocator_settings(random() % 2 == 0 ? "expandable_segments:True" : "max_split_size_mb:64,garbage_collection_threshold:0.6");
      break;
    case 4: {
      HistorySettings settings;
      settings.max_entries = 64;
      settings.gather = []() -> StackContext { return std::make_shared<Stack>(); };
      allocator.record_history(settings, false);
      break;
    }
    case 5:
      allocator.record_history(std::nullopt, true);
      break;
    case 6:
      allocator.set_caching(random() % 3 != 0);
      break;
    default:
      allocator.resetPeakStats(0);
  }
}

void work(unsigned seed, int steps) {
  std::mt19937 random(seed);
  const std::vector<c10::Stream> streams = {default_stream(0), pool_stream(0)};
  const c10::MempoolId_t pool{0, seed + 100};
  std::vector<Taken> mine;
  bool in_pool = false;
  for (int i = 0; i < steps; ++i) {
    const auto dice = random() % 100;
    if (dice < 50) {
      const size_t bytes = random() % 4 == 0 ? random() % (12 * kMiB) + 1 : random() % 5000 + 1;
      const c10::Stream& stream = streams[random() % streams.size()];
      const Taken taken{caching_allocator().raw_alloc(bytes, stream), bytes};
      own(taken);
      if (random() % 8 == 0) {
        // As a tensor's storage would: the other stream uses it, too.
        const c10::DataPtr ptr(taken.ptr, taken.ptr, caching_allocator().raw_deleter(), c10::Device(kDevice, 0));
        caching_allocator().recordStream(ptr, streams[random() % streams.size()]);
        const_cast<c10::DataPtr&>(ptr).release_context();
      }
      mine.push_back(taken);
    } else if (dice < 95) {
      if (mine.empty()) continue;
      std::swap(mine[random() % mine.size()], mine.back());
      const Taken taken = mine.back();
      mine.pop_back();
      if (random() % 4 != 0) {
        give_back(taken);
        continue;
      }
      Taken other = taken;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        orphans.push_back(taken);
        std::swap(orphans[random() % orphans.size()], orphans.back());
        other = orphans.back();
        orphans.pop_back();
      }
      give_back(other);
    } else if (dice < 98) {
      look_around(random);
    } else if (!in_pool) {
      caching_allocator().begin_allocate_to_pool(
          0, pool, [self = std::this_thread::get_id()](const c10::Stream&) { return std::this_thread::get_id() == self; });
      in_pool = true;
    } else {
      caching_allocator().end_allocate_to_pool(0, pool);
      caching_allocator().release_pool(0, pool);
      in_pool = false;
    }
  }
  if (in_pool) {
    caching_allocator().end_allocate_to_pool(0, pool);
    caching_allocator().release_pool(0, pool);
  }
  for (const Taken& taken : mine) give_back(taken);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 4;
  open_driver();
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) workers.emplace_back(work, static_cast<unsigned>(t), steps);
  for (auto& worker : workers) worker.join();
  caching_allocator().record_history(std::nullopt, true);
  caching_allocator().emptyCache();
  const DeviceStats stats = caching_allocator().getDeviceStats(0);
  if (!owned.empty() || !orphans.empty()) wrong("memory is left over");
  if (stats.allocated_bytes[0].current != 0 || stats.active_bytes[0].current != 0) wrong("memory is in use according to the statistics");
  if (stats.requested_bytes[0].current != 0 || stats.inactive_split_bytes[0].current != 0)
    wrong("blocks are in use according to the statistics");
  if (stats.reserved_bytes[0].current != 0 || stats.segment[0].current != 0) wrong("segments did not go back");
  if (stats.num_device_alloc != stats.num_device_free) wrong("more was allocated by the driver than freed");
  std::cout << stats.allocation[0].allocated << " allocations, " << errors.load() << " errors" << std::endl;
  return errors.load() == 0 ? 0 : 1;
}
