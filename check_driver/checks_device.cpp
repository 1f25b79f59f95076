// check_driver/checks_device.cpp: family "device": count, properties and the index rules.
#include <string.h>

#include <backplane/driver/cxx/table.hpp>

#include "context.h"

namespace backplane::check {
namespace device_impl {

bool power_of_two(uint64_t n) { return n && !(n & (n - 1)); }

void count(Context& c) {
  const char* rule = "Number of devices; 0 is a valid answer. Creates no context and no thread. Before open, too";
  const int32_t before = c.devices();
  c.open();
  int32_t after = -1;
  c.expect(CALL(c, device_count, &after), BP_OK, rule);
  c.require(after == before, rule, "device_count answered %d before open and %d after it", before, after);
}

void properties(Context& c) {
  const char* rule = "Texts are NUL-terminated. 0 means unknown, or no limit";
  for (int32_t d = 0; d < c.devices(); ++d) {
    bp_device_properties p;
    memset(&p, 0xaa, sizeof p);
    p.struct_size = sizeof p;
    c.expect(CALL(c, device_properties, d, &p), BP_OK, "Fills *out (struct_size set by the caller). Creates no context. Before open, too");
    const auto text = [&](const char* field, const char* what, size_t size) {
      c.require(memchr(field, 0, size) != nullptr, rule, "device %d: %s has no NUL in its %zu bytes", d, what, size);
    };
    text(p.name, "name", sizeof p.name);
    text(p.vendor, "vendor", sizeof p.vendor);
    text(p.driver_version, "driver_version", sizeof p.driver_version);
    text(p.bus_id, "bus_id", sizeof p.bus_id);
    c.require(p.name[0], rule, "device %d has an empty name", d);
    c.require(power_of_two(p.alignment) && p.alignment >= BP_MIN_ALIGNMENT, "alignment: of alloc, >= BP_MIN_ALIGNMENT, a power of two",
              "device %d: alignment is %u", d, p.alignment);
    c.require(p.copy_alignment == 0 || power_of_two(p.copy_alignment),
              "copy_alignment: address and size multiple that copies need (0, 1: any)",
              "device %d: copy_alignment is %u, which is no power of two", d, p.copy_alignment);
    c.require(p.copy_alignment <= p.alignment, "copy_alignment: address and size multiple that copies need (1: any)",
              "device %d: copy_alignment %u is larger than alignment %u, so a fresh allocation could not be copied", d, p.copy_alignment,
              p.alignment);
    c.require(!p.total_memory || p.max_allocation <= p.total_memory, "max_allocation: largest single alloc, bytes",
              "device %d: max_allocation %llu is more than total_memory %llu", d, wide(p.max_allocation), wide(p.total_memory));
    c.require(p.priority_greatest <= 0 && p.priority_least >= 0,
              "as CUDA: a smaller number is a higher priority; 0 is the default and lies in the range",
              "device %d: priority_greatest %d to priority_least %d does not contain 0", d, p.priority_greatest, p.priority_least);
    c.require(int64_t{p.priority_least} - p.priority_greatest < INT32_MAX,
              "priority_least, priority_greatest: a range that an int32 counts",
              "device %d: priority_greatest %d to priority_least %d is too wide", d, p.priority_greatest, p.priority_least);
    c.require(p.stream_limit >= 0, "streams that may exist at once besides the default one", "device %d: stream_limit is %d", d,
              p.stream_limit);
    constexpr uint64_t known = 2 * BP_DTYPE_FLOAT8_E5M2 - 1;
    c.require(!(p.dtypes & ~known), "dtypes: BP_DTYPE_*", "device %d: dtypes 0x%llx has bits that are no BP_DTYPE", d, wide(p.dtypes));
    for (uint64_t reserved : p.reserved) {
      c.require(reserved == 0, "reserved fields are 0", "device %d: a reserved field is 0x%llx", d, wide(reserved));
    }
    auto again = sized<bp_device_properties>();
    c.expect(CALL(c, device_properties, d, &again), BP_OK, "Fills *out");
    c.require(!memcmp(p.name, again.name, strlen(p.name) + 1) && p.total_memory == again.total_memory && p.alignment == again.alignment,
              rule, "device %d: two calls of device_properties answered differently", d);
  }
}

// What the core asks once, before open, must be true later as well.
void constant(Context& c) {
  const char* rule = "Nothing of it changes while the process lives: the core asks once, before open";
  std::vector<bp_device_properties> before;
  for (int32_t d = 0; d < c.devices(); ++d) before.push_back(c.properties(d));
  c.open();
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t used = c.alloc(d, c.some_bytes(d));
    const bp_device_properties& p = before[static_cast<size_t>(d)];
    auto now = sized<bp_device_properties>();
    c.expect(CALL(c, device_properties, d, &now), BP_OK, "Fills *out");
    c.require(now.total_memory == p.total_memory && now.max_allocation == p.max_allocation, rule,
              "device %d: %llu bytes in all before open, %llu with memory in use", d, wide(p.total_memory), wide(now.total_memory));
    c.require(now.alignment == p.alignment && now.copy_alignment == p.copy_alignment && now.stream_limit == p.stream_limit &&
                  now.priority_least == p.priority_least && now.priority_greatest == p.priority_greatest && now.dtypes == p.dtypes,
              rule, "device %d: a limit differs from its value before open", d);
    c.free(d, used);
  }
}

// A caller that was built with a shorter struct.
void struct_size(Context& c) {
  const char* rule = "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it";
  constexpr uint64_t known = offsetof(bp_device_properties, alignment);
  bp_device_properties p;
  memset(&p, 0xaa, sizeof p);
  p.struct_size = known;
  c.expect(CALL(c, device_properties, 0, &p), BP_OK, rule);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&p);
  for (uint64_t i = known; i < sizeof p; ++i) {
    c.require(bytes[i] == 0xaa, rule, "device_properties with struct_size %llu wrote byte %llu", wide(known), wide(i));
  }
  c.require(p.name[0] && static_cast<uint8_t>(p.name[0]) != 0xaa, "Fills *out (struct_size set by the caller)",
            "device_properties with struct_size %llu did not fill the name", wide(known));
  c.require(p.struct_size == known, rule, "device_properties changed struct_size from %llu to %llu", wide(known), wide(p.struct_size));
}

void invalid(Context& c) {
  for (int32_t bad : {c.devices(), c.devices() + 1000, -1, INT32_MIN}) c.refuses_device(bad);
  for (int32_t d = 0; d < c.devices(); ++d) c.smoke(d, "BP_INVALID_DEVICE is not sticky");
}

void memory_info(Context& c) {
  const char* rule = "Free and total bytes of the device, other processes counted in";
  for (int32_t d = 0; d < c.devices(); ++d) {
    uint64_t free_before = 0, total = 0;
    c.expect(CALL(c, memory_info, d, &free_before, &total), BP_OK, rule);
    c.require(total > 0 && free_before <= total, rule, "device %d: free %llu of total %llu", d, wide(free_before), wide(total));
    const uint64_t stated = c.properties(d).total_memory;
    c.require(!stated || total <= stated, rule, "device %d: memory_info says %llu bytes in all, the properties say %llu", d, wide(total),
              wide(stated));
    // An allocation of an eighth of what is free must be seen.
    const uint64_t bytes = free_before / 8, limit = c.properties(d).max_allocation;
    if (limit && bytes > limit) continue;
    const uint64_t address = c.alloc(d, bytes);
    uint64_t free_now = 0;
    c.expect(CALL(c, memory_info, d, &free_now, &total), BP_OK, rule);
    c.free(d, address);
    c.require(free_now < free_before, rule, "device %d: free bytes were %llu before and %llu after an alloc of %llu", d, wide(free_before),
              wide(free_now), wide(bytes));
  }
}

void set_current(Context& c) {
  const char* rule = "Reports that `device` is now the calling thread's current device";
  for (int round = 0; round < 2; ++round) {
    for (int32_t d = c.devices(); d-- > 0;) {
      c.expect(CALL(c, set_current, d), BP_OK, rule);
      // Every entry names its device itself, so the current one must not matter to it.
      for (int32_t other = 0; other < c.devices(); ++other) c.smoke(other, rule);
    }
  }
}

}  // namespace device_impl

Checks device_checks() {
  using namespace device_impl;
  return {
      {"device.count", "the same before and after open", needs_no_device | starts_closed, count},
      {"device.properties", "before open; plausible values", starts_closed, properties},
      {"device.constant", "what is reported before open stays true", starts_closed, constant},
      {"device.struct_size", "nothing is written beyond the caller's struct_size", starts_closed, struct_size},
      {"device.invalid", "a wrong index is INVALID_DEVICE everywhere", needs_nothing, invalid},
      {"device.memory_info", "free and total bytes", needs_memory_info, memory_info},
      {"device.set_current", "the current device may change at any time", needs_set_current, set_current},
  };
}

}  // namespace backplane::check
