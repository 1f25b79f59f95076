// check_driver/checks_pointer.cpp: family "pointer": what an address belongs to.
#include "context.h"

namespace backplane::check {
namespace pointer_impl {

constexpr char rule[] = "What an address belongs to. errors: INVALID_ARGUMENT for memory the driver does not know";

void expect_info(Context& c, uint64_t address, int32_t device, int32_t pinned, uint64_t base, uint64_t bytes) {
  bp_pointer_info info{};
  info.struct_size = sizeof info;
  c.expect(CALL(c, pointer_info, address, &info), BP_OK, rule);
  c.require(info.device == device, rule, "%s says device %d, expected %d", traced_call(), info.device, device);
  c.require(info.pinned == pinned, rule, "%s says pinned %d, expected %d", traced_call(), info.pinned, pinned);
  c.require(info.base == base, rule, "%s says base 0x%llx, expected 0x%llx", traced_call(), static_cast<unsigned long long>(info.base),
            static_cast<unsigned long long>(base));
  c.require(info.bytes >= bytes, rule, "%s says %llu bytes, expected %llu or more", traced_call(),
            static_cast<unsigned long long>(info.bytes), static_cast<unsigned long long>(bytes));
}

void expect_unknown(Context& c, uint64_t address) {
  bp_pointer_info info{};
  info.struct_size = sizeof info;
  info.base = 0x77;
  c.expect(CALL(c, pointer_info, address, &info), BP_INVALID_ARGUMENT, rule);
  c.require(info.base == 0x77, rules::errors, "%s failed and yet wrote to *out", traced_call());
}

void device_memory(Context& c) {
  constexpr uint64_t bytes = 10000;
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t a = c.alloc(d, bytes);
    for (uint64_t offset : {uint64_t{0}, uint64_t{1}, bytes - 1}) expect_info(c, a + offset, d, 0, a, bytes);
    c.free(d, a);
    expect_unknown(c, a);
  }
}

void host_memory(Context& c) {
  HostBuffer pageable(4096);
  expect_unknown(c, pageable.address());
  uint8_t* p = c.pinned(4096);
  const auto address = reinterpret_cast<uint64_t>(p);
  expect_info(c, address, BP_HOST_DEVICE, 1, address, 4096);
  expect_info(c, address + 4095, BP_HOST_DEVICE, 1, address, 4096);
  c.expect(CALL(c, host_free, p), BP_OK, "pinned host memory: both, or none");
  expect_unknown(c, address);
}

}  // namespace pointer_impl

Checks pointer_checks() {
  using namespace pointer_impl;
  return {
      {"pointer.device", "device, base and size of device memory", needs_pointer_info, device_memory},
      {"pointer.host", "pinned memory is known, pageable is not", needs_pointer_info | needs_pinned, host_memory},
  };
}

}  // namespace backplane::check
