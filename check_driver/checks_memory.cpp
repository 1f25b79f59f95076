// check_driver/checks_memory.cpp: family "memory": alloc and free.
#include <algorithm>

#include "context.h"

namespace backplane::check {
namespace memory_impl {

struct Block {
  int32_t device;
  uint64_t address;
  uint64_t bytes;
};

constexpr uint64_t odd_sizes[] = {1, 2, 3, 7, 31, 64, 255, 511, 512, 513, 1000, 4095, 4096, 4097, 65535, 65537, 1000003};

// Sizes that this device can give several of at once.
std::vector<uint64_t> sizes(Context& c, int32_t device) {
  const bp_device_properties& p = c.properties(device);
  std::vector<uint64_t> fitting;
  for (uint64_t bytes : odd_sizes) {
    if ((!p.total_memory || bytes <= p.total_memory / 64) && (!p.max_allocation || bytes <= p.max_allocation)) fitting.push_back(bytes);
  }
  return fitting;
}

void require_apart(Context& c, std::vector<Block> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.address < b.address; });
  for (size_t i = 1; i < blocks.size(); ++i) {
    const Block &a = blocks[i - 1], &b = blocks[i];
    // A block of 0 bytes has an address of its own, too.
    c.require(a.address + std::max<uint64_t>(a.bytes, 1) <= b.address, "unique across the instance's devices",
              "live allocations overlap: %llu bytes at 0x%llx (device %d) and %llu bytes at 0x%llx (device %d)", wide(a.bytes),
              wide(a.address), a.device, wide(b.bytes), wide(b.address), b.device);
  }
}

// Blocks of many sizes, written whole, freed in another order than allocated, with new ones in the gaps: each keeps its own bytes.
void patterns(Context& c) {
  const char* rule = "Allocates device memory. owner: the caller, until free";
  const uint64_t unit = c.unit(0);
  std::vector<Block> live;
  std::vector<uint32_t> seeds;
  uint32_t seed = 0;
  const auto add = [&](uint64_t bytes) {
    bytes = (bytes + unit - 1) / unit * unit;
    const Block block{0, c.alloc(0, bytes), bytes};
    HostBuffer data(bytes);
    data.fill_pattern(++seed);
    c.upload(0, block.address, data.data(), bytes);
    live.push_back(block);
    seeds.push_back(seed);
  };
  const auto verify = [&] {
    require_apart(c, live);
    for (size_t i = 0; i < live.size(); ++i) {
      HostBuffer want(live[i].bytes);
      want.fill_pattern(seeds[i]);
      c.holds(0, live[i].address, want.data(), live[i].bytes, rule, format("allocation of %llu bytes", wide(live[i].bytes)).c_str());
    }
  };
  const std::vector<uint64_t> all = sizes(c, 0);
  for (uint64_t bytes : all) add(bytes);
  verify();
  for (int round = 0; round < 3; ++round) {
    for (size_t i = static_cast<size_t>(round) % 2; i < live.size(); ++i) {  // every second one
      c.free(0, live[i].address);
      live.erase(live.begin() + static_cast<ptrdiff_t>(i));
      seeds.erase(seeds.begin() + static_cast<ptrdiff_t>(i));
    }
    for (size_t i = all.size(); i-- > 0;) {
      if (i % 2) add(all[i]);
    }
    verify();
  }
  for (const Block& block : live) c.free(0, block.address);
}

void alignment(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t want = std::max<uint64_t>(c.properties(d).alignment, BP_MIN_ALIGNMENT);
    std::vector<uint64_t> addresses;
    for (uint64_t bytes : sizes(c, d)) {
      addresses.push_back(c.alloc(d, bytes));
      c.require(addresses.back() % want == 0, "The address is aligned to properties.alignment",
                "device %d: %llu bytes at 0x%llx, which is no multiple of %llu", d, wide(bytes), wide(addresses.back()), wide(want));
    }
    for (uint64_t address : addresses) c.free(d, address);
  }
}

void zero(Context& c) {
  const char* rule = "units: bytes, 0 is allowed and returns a unique non-zero address";
  std::vector<Block> blocks;
  for (uint64_t bytes : {0, 0, 1, 0}) {
    uint64_t address = 0;
    c.expect(CALL(c, alloc, 0, bytes, 0u, &address), BP_OK, rule);
    c.require(address != 0, rule, "%s gave address 0", traced_call());
    blocks.push_back({0, address, bytes});
  }
  require_apart(c, blocks);
  for (const Block& block : blocks) c.expect(CALL(c, free, 0, block.address), BP_OK, rule);
}

void unique(Context& c) {
  std::vector<Block> blocks;
  for (int round = 0; round < 4; ++round) {
    for (int32_t d = 0; d < c.devices(); ++d) {
      const uint64_t bytes = c.some_bytes(d);
      blocks.push_back({d, c.alloc(d, bytes), bytes});
    }
  }
  require_apart(c, blocks);
  for (const Block& block : blocks) c.free(block.device, block.address);
}

void bad_free(Context& c) {
  const char* rule = "errors: INVALID_ARGUMENT for an address that alloc did not return";
  const uint64_t address = c.alloc(0, 65536);
  c.expect(CALL(c, free, 0, address + 512), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, free, 0, 0x10), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL(c, free, 0, 0), BP_INVALID_ARGUMENT, rule);
  int on_host = 0;
  c.expect(CALL(c, free, 0, reinterpret_cast<uint64_t>(&on_host)), BP_INVALID_ARGUMENT, rule);
  c.free(0, address);
  c.expect(CALL(c, free, 0, address), BP_INVALID_ARGUMENT, rule);
  c.smoke(0, "INVALID_ARGUMENT is not sticky");
}

void wrong_device(Context& c) {
  const uint64_t address = c.alloc(0, 65536);
  c.expect(CALL(c, free, 1, address), BP_INVALID_ARGUMENT, "errors: INVALID_ARGUMENT for an address that alloc did not return");
  c.free(0, address);
}

void out_of_memory(Context& c) {
  const char* rule = "OUT_OF_MEMORY (not sticky)";
  // The last ones overflow when they are rounded up.
  for (uint64_t bytes : {uint64_t{1} << 62, UINT64_MAX / 2, UINT64_MAX - 511, UINT64_MAX - 1, UINT64_MAX}) {
    uint64_t address = 0x77;
    c.expect(CALL(c, alloc, 0, bytes, 0u, &address), BP_OUT_OF_MEMORY, rule);
    c.require(address == 0x77, rules::errors, "%s failed and yet set *out to 0x%llx", traced_call(), wide(address));
  }
  c.smoke(0, rule);
}

// What free returns can be had again: many times the device's memory passes through one allocation at a time.
void reuse(Context& c) {
  const bp_device_properties& p = c.properties(0);
  uint64_t bytes = p.total_memory ? p.total_memory / 4 : uint64_t{1} << 30;
  if (p.max_allocation) bytes = std::min(bytes, p.max_allocation);
  for (int round = 0; round < 64; ++round) {
    uint64_t address = 0;
    const int32_t status = CALL(c, alloc, 0, bytes, 0u, &address);
    if (round == 0 && status == BP_OUT_OF_MEMORY) {
      // Others use the device: take less of it.
      bytes /= 4;
      c.require(bytes > 4096, "Allocates device memory", "device 0 gives no 4096 bytes, yet it has %llu", wide(p.total_memory));
      round = -1;
      continue;
    }
    c.expect(status, BP_OK, "Frees memory of alloc");
    c.free(0, address);
  }
}

}  // namespace memory_impl

Checks memory_checks() {
  using namespace memory_impl;
  return {
      {"memory.patterns", "blocks of many sizes keep their own bytes", needs_nothing, patterns},
      {"memory.alignment", "addresses are aligned as the properties say", needs_nothing, alignment},
      {"memory.zero", "0 bytes have an address of their own", needs_nothing, zero},
      {"memory.unique", "addresses differ across devices", needs_two_devices, unique},
      {"memory.bad_free", "free refuses what alloc did not return", needs_nothing, bad_free},
      {"memory.wrong_device", "free refuses another device's address", needs_two_devices, wrong_device},
      {"memory.out_of_memory", "too much is OUT_OF_MEMORY, not sticky", needs_nothing, out_of_memory},
      {"memory.reuse", "freed memory can be had again", needs_nothing, reuse},
  };
}

}  // namespace backplane::check
