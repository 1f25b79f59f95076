// check_driver/checks_pinned.cpp: family "pinned": host memory that copy_async takes.
#include <string.h>

#include <algorithm>

#include "context.h"

namespace backplane::check {
namespace pinned_impl {

void alloc(Context& c) {
  const char* rule = "Allocates host memory for copy_async, from and to any device of the instance. flags: 0. Aligned to 64 or more";
  std::vector<std::pair<uint8_t*, uint64_t>> blocks;
  for (uint64_t bytes : {1, 63, 64, 65, 4096, 100003}) {
    uint8_t* p = c.pinned(bytes);
    c.require(reinterpret_cast<uint64_t>(p) % 64 == 0, rule, "%s gave %p, which is no multiple of 64", traced_call(),
              static_cast<void*>(p));
    memset(p, static_cast<int>(blocks.size() + 1), bytes);
    blocks.emplace_back(p, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [p, bytes] = blocks[i];
    const bool whole = std::all_of(p, p + bytes, [&](uint8_t b) { return b == i + 1; });
    c.require(whole, rule, "the %llu bytes at %p changed while other pinned memory was written", wide(bytes), static_cast<void*>(p));
    c.expect(CALL(c, host_free, p), BP_OK, "pinned host memory: both, or none");
  }
}

void out_of_memory(Context& c) {
  const char* rule = "errors: OUT_OF_MEMORY";
  int mark = 0;
  for (uint64_t bytes : {uint64_t{1} << 62, UINT64_MAX - 63, UINT64_MAX}) {
    void* out = &mark;
    c.expect(CALL(c, host_alloc, bytes, 0u, &out), BP_OUT_OF_MEMORY, rule);
    c.require(out == &mark, rules::errors, "%s failed and yet set *out to %p", traced_call(), out);
  }
  c.expect(CALL(c, host_free, c.pinned(4096)), BP_OK, "OUT_OF_MEMORY (not sticky)");
}

void zero(Context& c) {
  const char* rule = "0 bytes is allowed and returns a unique pointer, not NULL";
  const char* free_rule = "errors: INVALID_ARGUMENT for what host_alloc did not return; NULL is one such";
  void *first = nullptr, *second = nullptr;
  c.expect(CALL(c, host_alloc, 0u, 0u, &first), BP_OK, rule);
  c.expect(CALL(c, host_alloc, 0u, 0u, &second), BP_OK, rule);
  c.require(first && second && first != second, rule, "two calls with 0 bytes gave %p and %p", first, second);
  c.expect(CALL(c, host_free, nullptr), BP_INVALID_ARGUMENT, free_rule);
  int own = 0;
  c.expect(CALL(c, host_free, &own), BP_INVALID_ARGUMENT, free_rule);
  for (void* p : {first, second}) c.expect(CALL(c, host_free, p), BP_OK, rule);
  c.expect(CALL(c, host_free, first), BP_INVALID_ARGUMENT, free_rule);
}

// Memory of the caller's, from an odd address on.
void registered(Context& c) {
  const char* rule = "Pins memory of the caller for copy_async; page-aligned or not";
  const uint64_t bytes = c.some_bytes(0), unit = c.unit(0);
  HostBuffer memory(bytes + unit);
  memory.fill_pattern(9);
  const uint64_t a = c.alloc(0, bytes);
  for (uint64_t offset : {uint64_t{0}, unit}) {
    uint8_t* p = memory.data() + offset;
    c.expect(CALL(c, host_register, p, bytes), BP_OK, rule);
    c.expect(CALL(c, copy_async, 0, nullptr, a, 0, reinterpret_cast<uint64_t>(p), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
    c.synchronize(0);
    c.holds(0, a, p, bytes, rule, "copy_async from registered memory");
    c.expect(CALL(c, host_unregister, p), BP_OK, rule);
  }
}

}  // namespace pinned_impl

Checks pinned_checks() {
  using namespace pinned_impl;
  return {
      {"pinned.alloc", "aligned memory of the caller's own", needs_pinned, alloc},
      {"pinned.out_of_memory", "too much is OUT_OF_MEMORY, not sticky", needs_pinned, out_of_memory},
      {"pinned.zero", "0 bytes, and what may not be freed", needs_pinned, zero},
      {"pinned.register", "the caller's memory can be pinned", needs_host_register | needs_streams, registered},
  };
}

}  // namespace backplane::check
