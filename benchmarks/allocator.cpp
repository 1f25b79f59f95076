// benchmarks/allocator.cpp: the caching allocator from C++: hot allocations, and the replay of recorded traces against simple strategies.
//
// Usage: allocator hot THREADS          prints nanoseconds an allocation and free, best and median of rounds
//        allocator replay STRATEGY FILE prints peak reserved, peak requested, calls of the driver's alloc, nanoseconds an event
// STRATEGY: cache, expandable, bins (powers of two, nothing split), none (the driver's alloc and free). FILE: int64 numbers; a positive one
// allocates so many bytes, -n frees what the n-th allocation gave, counted from 1.
#include <algorithm>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "memory/caching_allocator.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

using namespace backplane;

namespace {

using Clock = std::chrono::steady_clock;

double nanoseconds(Clock::time_point begin) { return std::chrono::duration<double, std::nano>(Clock::now() - begin).count(); }

void hot(int threads) {
  constexpr int kPairs = 20000;
  constexpr int kRounds = 50;
  const c10::Stream stream = default_stream(0);
  CachingAllocator& allocator = caching_allocator();
  std::vector<double> rounds(kRounds);
  std::barrier together(threads);
  const auto work = [&](int mine) {
    for (int i = 0; i < 100; ++i) CachingAllocator::raw_delete(allocator.raw_alloc(1000, stream));
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();  // the other thread is here, or nearly
      together.arrive_and_wait();
      for (int i = 0; i < kPairs; ++i) CachingAllocator::raw_delete(allocator.raw_alloc(1000, stream));
      together.arrive_and_wait();
      if (mine == 0) rounds[static_cast<size_t>(round)] = nanoseconds(begin) / kPairs / threads;
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (auto& other : others) other.join();
  std::sort(rounds.begin(), rounds.end());
  std::cout << rounds.front() << ' ' << rounds[kRounds / 2] << std::endl;
}

// What is compared: memory by pointer and size; what it holds of the driver now; how often it asked.
struct Strategy {
  virtual ~Strategy() = default;
  virtual uint64_t take(size_t bytes) = 0;
  virtual void give(uint64_t address, size_t bytes) = 0;
  virtual size_t reserved() = 0;
  virtual int64_t driver_calls() = 0;
};

struct None : Strategy {
  static size_t rounded(size_t bytes) { return (bytes + 511) & ~size_t{511}; }
  uint64_t take(size_t bytes) override {
    uint64_t address = 0;
    call<&bp_driver::alloc>(0, uint64_t{bytes}, 0u, &address);
    ++calls;
    held += rounded(bytes);
    return address;
  }
  void give(uint64_t address, size_t bytes) override {
    call<&bp_driver::free>(0, address);
    held -= rounded(bytes);
  }
  size_t reserved() override { return held; }
  int64_t driver_calls() override { return calls; }
  size_t held = 0;
  int64_t calls = 0;
};

struct Bins : None {
  uint64_t take(size_t bytes) override {
    const size_t size = std::bit_ceil(std::max<size_t>(bytes, 512));
    auto& bin = bins[size];
    if (bin.empty()) return None::take(size);
    const uint64_t address = bin.back();
    bin.pop_back();
    return address;
  }
  void give(uint64_t address, size_t bytes) override { bins[std::bit_ceil(std::max<size_t>(bytes, 512))].push_back(address); }
  std::map<size_t, std::vector<uint64_t>> bins;
};

struct Cache : Strategy {
  uint64_t take(size_t bytes) override { return reinterpret_cast<uint64_t>(caching_allocator().raw_alloc(bytes, stream)); }
  void give(uint64_t address, size_t) override { CachingAllocator::raw_delete(reinterpret_cast<void*>(address)); }
  size_t reserved() override { return static_cast<size_t>(caching_allocator().getDeviceStats(0).reserved_bytes[0].peak); }
  int64_t driver_calls() override { return caching_allocator().getDeviceStats(0).num_device_alloc; }
  c10::Stream stream = default_stream(0);
};

std::unique_ptr<Strategy> strategy(const std::string& name) {
  if (name == "none") return std::make_unique<None>();
  if (name == "bins") return std::make_unique<Bins>();
  if (name == "expandable") set_allocator_settings("expandable_segments:True");
  return std::make_unique<Cache>();
}

void replay(const std::string& name, const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(stream), {}};
  std::vector<int64_t> events(raw.size() / sizeof(int64_t));
  std::copy(raw.begin(), raw.end(), reinterpret_cast<char*>(events.data()));
  const auto memory = strategy(name);
  // cache and expandable keep their own peak; reading it at every event would empty their front cache
  const bool own_peak = name == "cache" || name == "expandable";
  size_t peak_reserved = 0;
  size_t requested = 0;
  size_t peak_requested = 0;
  int64_t calls = 0;
  double best = 1e300;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::pair<uint64_t, size_t>> taken;
    taken.reserve(events.size());
    const auto begin = Clock::now();
    for (const int64_t event : events) {
      if (event > 0) {
        taken.emplace_back(memory->take(static_cast<size_t>(event)), static_cast<size_t>(event));
        requested += static_cast<size_t>(event);
        peak_requested = std::max(peak_requested, requested);
        if (!own_peak) peak_reserved = std::max(peak_reserved, memory->reserved());
      } else {
        auto& [address, bytes] = taken[static_cast<size_t>(-event - 1)];
        memory->give(address, bytes);
        requested -= bytes;
        bytes = 0;
      }
    }
    best = std::min(best, nanoseconds(begin) / static_cast<double>(events.size()));
    for (const auto& [address, bytes] : taken) {
      if (bytes != 0) memory->give(address, bytes);
    }
    requested = 0;
    if (round == 0) calls = memory->driver_calls();
  }
  if (own_peak) peak_reserved = memory->reserved();
  std::cout << peak_reserved << ' ' << peak_requested << ' ' << calls << ' ' << best << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  open_driver();
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "hot" && argc == 3) {
    hot(std::stoi(argv[2]));
  } else if (what == "replay" && argc == 4) {
    replay(argv[2], argv[3]);
  } else {
    std::cerr << "usage: allocator hot THREADS | allocator replay STRATEGY FILE" << std::endl;
    return 2;
  }
}
