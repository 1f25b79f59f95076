// backplane/philox.h: random numbers inside a kernel: Philox4x32-10 as a plain struct, and the state that a launch passes to it. No torch,
// no libraries.
//
// A generator is a sequence of 2^66 32-bit numbers, determined by its seed. A launch takes a range of that sequence (random.h:
// philox_state), and element i uses the numbers offset + i * per_element ... of it. A number depends only on seed and position, not on how
// many threads, blocks or workers compute it, so results are the same for every launch geometry:
//
//   const PhiloxRange range = philox_range(state);
//   Philox random(range.seed, range.offset + i);   // the thread that computes elements i, i + 1, ...
//   for (...) out[i++] = philox_uniform(random());
//
// The algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <stdint.h>

// Qualifiers that a device compiler requires before a function that kernels call, for example "__host__ __device__"; defined before this
// header is included.
#ifndef BACKPLANE_KERNEL_FUNCTION
#define BACKPLANE_KERNEL_FUNCTION
#endif

namespace backplane {

// What a launch passes to a random kernel, by value. Either the values themselves or, when the launch is recorded into a graph, the device
// addresses from which every replay reads them (written before each replay), and the offset of this launch in the graph's range.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;                       // in 32-bit numbers, a multiple of 4
  const uint64_t* seed_address = nullptr;    // device memory; NULL: use the values
  const uint64_t* offset_address = nullptr;  // device memory
  uint64_t graph_offset = 0;                 // in 32-bit numbers, added to *offset_address

  bool in_graph() const { return seed_address != nullptr; }
};

struct PhiloxRange {
  uint64_t seed;
  uint64_t offset;
};

// For the device side. A kernel that runs on the host (bp.host_exec) maps the two addresses first.
BACKPLANE_KERNEL_FUNCTION inline PhiloxRange philox_range(const PhiloxState& state) {
  if (state.seed_address == nullptr) return {state.seed, state.offset};
  return {*state.seed_address, *state.offset_address + state.graph_offset};
}

struct PhiloxBlock {
  uint32_t word[4];
};

// The bijection itself: ten rounds over a 128-bit counter with a 64-bit key.
BACKPLANE_KERNEL_FUNCTION inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t* c = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;  // the golden ratio and sqrt(3) - 1, as Weyl steps
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Reads the sequence of `seed` from `position` on, one 32-bit number per call. `stream` selects one of 2^64 disjoint sequences of that
// seed.
class Philox {
 public:
  BACKPLANE_KERNEL_FUNCTION explicit Philox(uint64_t seed, uint64_t position = 0, uint64_t stream = 0)
      : seed_(seed), stream_(stream), block_(position / 4), lane_(static_cast<uint32_t>(position % 4)) {
    if (lane_ != 0) refill();
  }

  BACKPLANE_KERNEL_FUNCTION uint32_t operator()() {
    if (lane_ == 0) refill();
    const uint32_t number = numbers_.word[lane_];
    lane_ = (lane_ + 1) % 4;
    if (lane_ == 0) ++block_;
    return number;
  }

 private:
  BACKPLANE_KERNEL_FUNCTION void refill() {
    numbers_ = philox4x32_10({{static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), static_cast<uint32_t>(stream_),
                               static_cast<uint32_t>(stream_ >> 32)}},
                             static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
  }

  uint64_t seed_;
  uint64_t stream_;
  uint64_t block_;  // of the next number
  uint32_t lane_;   // of the next number in its block
  PhiloxBlock numbers_{};
};

// Converts 24 bits of a number to a float in [0, 1): every value is exact, 1 is never reached.
BACKPLANE_KERNEL_FUNCTION inline float philox_uniform(uint32_t number) { return static_cast<float>(number >> 8) * (1.0f / 16777216.0f); }

}  // namespace backplane
