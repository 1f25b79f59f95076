// check_driver/checks_pointer.cpp: family "pointer": what an address belongs to.
#include "context.h"

namespace backplane::check {
namespace pointer_impl {

constexpr char rule[] = "Which memory an address belongs to";
constexpr char unknown_rule[] = "An address that the driver does not know is BP_OK with BP_MEMORY_UNKNOWN";

bp_pointer_info ask(Context& c, uint64_t address, const char* why) {
  auto info = sized<bp_pointer_info>();
  info.kind = -1;
  c.expect(CALL(c, pointer_info, address, &info), BP_OK, why);
  return info;
}

void expect_info(Context& c, uint64_t address, int32_t kind, int32_t device, uint64_t base, uint64_t bytes) {
  const bp_pointer_info info = ask(c, address, rule);
  c.require(info.kind == kind, rule, "%s says kind %d, expected %d", traced_call(), info.kind, kind);
  c.require(info.device == device, rule, "%s says device %d, expected %d", traced_call(), info.device, device);
  c.require(info.base == base, rule, "%s says base 0x%llx, expected 0x%llx", traced_call(), wide(info.base), wide(base));
  c.require(info.bytes >= bytes, rule, "%s says %llu bytes, expected %llu or more", traced_call(), wide(info.bytes), wide(bytes));
}

void expect_unknown(Context& c, uint64_t address) {
  const bp_pointer_info info = ask(c, address, unknown_rule);
  c.require(info.kind == BP_MEMORY_UNKNOWN, unknown_rule, "%s says kind %d, expected BP_MEMORY_UNKNOWN", traced_call(), info.kind);
  c.require(info.device == BP_HOST_DEVICE && info.base == 0 && info.bytes == 0, unknown_rule,
            "%s says device %d, base 0x%llx and %llu bytes of an unknown address", traced_call(), info.device, wide(info.base),
            wide(info.bytes));
}

void device_memory(Context& c) {
  constexpr uint64_t bytes = 10000;
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t a = c.alloc(d, bytes);
    for (uint64_t offset : {uint64_t{0}, uint64_t{1}, bytes - 1}) expect_info(c, a + offset, BP_MEMORY_DEVICE, d, a, bytes);
    c.free(d, a);
    expect_unknown(c, a);
  }
}

void host_memory(Context& c) {
  HostBuffer pageable(4096);
  expect_unknown(c, pageable.address());
  uint8_t* p = c.pinned(4096);
  const auto address = reinterpret_cast<uint64_t>(p);
  expect_info(c, address, BP_MEMORY_PINNED, BP_HOST_DEVICE, address, 4096);
  expect_info(c, address + 4095, BP_MEMORY_PINNED, BP_HOST_DEVICE, address, 4096);
  c.expect(CALL(c, host_free, p), BP_OK, "pinned host memory: both, or none");
  expect_unknown(c, address);
}

void registered(Context& c) {
  HostBuffer memory(8192);
  const uint64_t address = memory.address() + 64;
  c.expect(CALL(c, host_register, memory.data() + 64, 4096), BP_OK, "Pins memory of the caller for copy_async");
  expect_info(c, address, BP_MEMORY_REGISTERED, BP_HOST_DEVICE, address, 4096);
  expect_info(c, address + 4095, BP_MEMORY_REGISTERED, BP_HOST_DEVICE, address, 4096);
  c.expect(CALL(c, host_unregister, memory.data() + 64), BP_OK, "pinning of the caller's memory: both, or none");
  expect_unknown(c, address);
}

}  // namespace pointer_impl

Checks pointer_checks() {
  using namespace pointer_impl;
  return {
      {"pointer.device", "device, base and size of device memory", needs_pointer_info, device_memory},
      {"pointer.host", "pinned memory is known, pageable is not", needs_pointer_info | needs_pinned, host_memory},
      {"pointer.registered", "so is registered memory, for as long as it is", needs_pointer_info | needs_host_register, registered},
  };
}

}  // namespace backplane::check
