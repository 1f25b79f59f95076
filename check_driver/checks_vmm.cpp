// check_driver/checks_vmm.cpp: family "vmm": addresses that are set aside, and memory that is put behind them.

#include <algorithm>

#include "context.h"

namespace backplane::check {
namespace vmm_impl {

constexpr char multiple[] = "*out = bytes: every address and size below is a multiple of it. A power of two, BP_MIN_ALIGNMENT or more";
constexpr char as_alloc[] = "Memory that was mapped is as alloc's in every respect; one call may cross from one mapping into the next";
constexpr char no_memory[] = "Takes no memory and is none: whoever touches it is refused";
constexpr char whole[] = "errors: INVALID_ARGUMENT: no reservation, or some of it is mapped";
constexpr char one_map[] = "errors: INVALID_ARGUMENT: not a range of one map";
constexpr char again[] = "memory_info counts it as free when this returns; the addresses can be mapped again";

// Some addresses of device 0, given back at the end unless the check has failed.
struct Reserved {
  explicit Reserved(Context& context, uint64_t units) : c(context), vmm(*context.group<bp_vmm>()) {
    c.expect(CALL_GROUP(vmm, granularity, 0, &unit), BP_OK, multiple);
    bytes = unit * units;
    c.expect(CALL_GROUP(vmm, reserve, 0, bytes, &address), BP_OK, "Sets `bytes` of addresses aside");
    c.require(address != 0 && address % unit == 0, multiple, "reserve gave 0x%llx", wide(address));
  }
  uint64_t at(uint64_t i) const { return address + unit * i; }
  void map(uint64_t i, uint64_t units = 1) const {
    c.expect(CALL_GROUP(vmm, map, 0, at(i), unit * units), BP_OK, "Puts memory behind [address, address + bytes)");
  }
  void unmap(uint64_t i, uint64_t units = 1) const {
    c.expect(CALL_GROUP(vmm, unmap, 0, at(i), unit * units), BP_OK, "Takes the memory of one map away: the same address and bytes");
  }
  void release() const { c.expect(CALL_GROUP(vmm, release, 0, address, bytes), BP_OK, "Gives the whole of a reservation back"); }

  Context& c;
  bp_vmm vmm;
  uint64_t unit = 0, bytes = 0, address = 0;
};

void granularity(Context& c) {
  const bp_vmm vmm = *c.group<bp_vmm>();
  for (int32_t d = 0; d < c.devices(); ++d) {
    uint64_t unit = 77;
    c.expect(CALL_GROUP(vmm, granularity, d, &unit), BP_OK, multiple);
    c.require(unit >= BP_MIN_ALIGNMENT && (unit & (unit - 1)) == 0, multiple, "granularity of device %d is %llu", d, wide(unit));
  }
}

// Memory that lies side by side is one piece for a copy, and what is written stays when its neighbours come and go.
void memory(Context& c) {
  const Reserved r(c, 4);
  r.map(1);
  r.map(2);
  const uint64_t around = std::min<uint64_t>(r.unit, 65536);
  HostBuffer sent(2 * around), seen(2 * around);
  sent.fill_pattern(7);
  c.upload(0, r.at(2) - around, sent.data(), sent.size());
  c.holds(0, r.at(2) - around, sent.data(), sent.size(), as_alloc, "a copy across two mappings");
  r.map(0);
  r.unmap(2);
  seen.fill_pattern(1);
  c.holds(0, r.at(2) - around, sent.data(), around, as_alloc, "what stayed mapped");
  r.unmap(0);
  r.unmap(1);
  r.release();
}

// More addresses than memory; only what is mapped counts.
void account(Context& c) {
  const auto free_now = [&] {
    uint64_t free_bytes = 0, total = 0;
    c.expect(CALL(c, memory_info, 0, &free_bytes, &total), BP_OK, rules::ok);
    return free_bytes;
  };
  c.free(0, c.alloc(0, 1));  // the device is in use
  const uint64_t before = free_now();
  const uint64_t unit = Reserved(c, 1).unit;
  const Reserved r(c, before / unit + 4);
  c.require(free_now() == before, no_memory, "free memory fell from %llu to %llu bytes", wide(before), wide(free_now()));
  r.map(1, 2);
  c.require(free_now() <= before - 2 * unit, as_alloc, "free memory is %llu of %llu bytes after 2 * %llu were mapped", wide(free_now()),
            wide(before), wide(unit));
  const int32_t status = CALL_GROUP(r.vmm, map, 0, r.at(3), before / unit * unit);
  c.expect(status, BP_OUT_OF_MEMORY, "errors: OUT_OF_MEMORY: nothing was mapped");
  r.map(3);
  r.unmap(3);
  r.unmap(1, 2);
  c.require(free_now() == before, again, "free memory is %llu bytes, and was %llu", wide(free_now()), wide(before));
  r.map(1, 1);
  r.unmap(1, 1);
  r.release();
}

// What is set aside and not mapped is no memory.
void untouched(Context& c) {
  const Reserved r(c, 3);
  HostBuffer host(c.some_bytes(0));
  const auto refused = [&](uint64_t address) {
    c.expect(CALL(c, copy, 0, static_cast<bp_stream*>(nullptr), address, 0, host.address(), BP_HOST_DEVICE,
                  std::min<uint64_t>(host.size(), r.unit), 0u),
             BP_INVALID_ARGUMENT, no_memory);
  };
  refused(r.at(1));
  r.map(1);
  refused(r.at(0));
  refused(r.at(2));
  r.unmap(1);
  refused(r.at(1));
  c.expect(CALL(c, free, 0, r.address), BP_INVALID_ARGUMENT, no_memory);
  r.release();
}

void invalid(Context& c) {
  const Reserved r(c, 4);
  c.expect(CALL_GROUP(r.vmm, map, 0, r.at(0) + r.unit / 2, r.unit), BP_INVALID_ARGUMENT, multiple);
  c.expect(CALL_GROUP(r.vmm, map, 0, r.at(3), 2 * r.unit), BP_INVALID_ARGUMENT, "which lies in one reservation, none of it mapped");
  r.map(1, 2);
  c.expect(CALL_GROUP(r.vmm, map, 0, r.at(2), 2 * r.unit), BP_INVALID_ARGUMENT, "which lies in one reservation, none of it mapped");
  c.expect(CALL_GROUP(r.vmm, release, 0, r.address, r.bytes), BP_INVALID_ARGUMENT, whole);
  c.expect(CALL_GROUP(r.vmm, unmap, 0, r.at(0), r.unit), BP_INVALID_ARGUMENT, one_map);
  r.unmap(1, 2);
  c.expect(CALL_GROUP(r.vmm, unmap, 0, r.at(1), 2 * r.unit), BP_INVALID_ARGUMENT, one_map);
  r.release();
  c.expect(CALL_GROUP(r.vmm, map, 0, r.at(1), r.unit), BP_INVALID_ARGUMENT, "which lies in one reservation, none of it mapped");
  for (int32_t bad : {c.devices(), -1}) {
    uint64_t out = 77;
    c.expect(CALL_GROUP(r.vmm, granularity, bad, &out), BP_INVALID_DEVICE, rules::no_such_device);
    c.expect(CALL_GROUP(r.vmm, reserve, bad, r.unit, &out), BP_INVALID_DEVICE, rules::no_such_device);
    c.require(out == 77, rules::errors, "%s failed and yet set *out", traced_call());
  }
}

}  // namespace vmm_impl

Checks vmm_checks() {
  using namespace vmm_impl;
  return {
      {"vmm.granularity", "a power of two, on every device", needs_vmm, granularity},
      {"vmm.memory", "mapped memory is as alloc's, across mappings", needs_vmm, memory},
      {"vmm.account", "only what is mapped takes memory, and comes back", needs_vmm | needs_memory_info, account},
      {"vmm.untouched", "addresses without memory are refused", needs_vmm, untouched},
      {"vmm.invalid", "wrong ranges and indices are refused", needs_vmm, invalid},
  };
}

}  // namespace backplane::check
