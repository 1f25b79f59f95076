// check_driver/checks_fork.cpp: family "fork": what a fork before and after open must leave alone.
#include <string.h>

#include "context.h"

namespace backplane::check {
namespace fork_impl {

constexpr char rule[] =
    "bp_driver_get, device_count and device_properties create no device context and no thread, and are safe before a fork";

// The child inherits an instance that has been asked and not opened.
void before_open(Context& c) {
  int32_t asked = -1;
  const bool count_in_child = c.table().flags & BP_DRIVER_COUNT_FORKS;
  if (!count_in_child) asked = c.devices();
  c.in_child(rule, "a child that asked for count and properties before open", [&] {
    if (!count_in_child && c.devices() != asked) throw Failure{"the count changed", rule};
    int32_t count = -1;
    c.expect(CALL(c, device_count, &count), BP_OK, rule);
    for (int32_t d = 0; d < count; ++d) {
      auto p = sized<bp_device_properties>();
      c.expect(CALL(c, device_properties, d, &p), BP_OK, rule);
      if (!p.name[0]) throw Failure{"no name", rule};
    }
    if (!count_in_child && count != asked) throw Failure{"the count changed", rule};
  });
  c.open();
  for (int32_t d = 0; d < c.devices(); ++d) c.smoke(d, rule);
}

// The child opens what the parent has only asked.
void child_opens(Context& c) {
  if (!(c.table().flags & BP_DRIVER_COUNT_FORKS)) c.devices();
  c.in_child(rule, "a child that opened an instance which its parent had only asked", [&] {
    c.open();
    if (c.devices()) c.smoke(0, rule);
    c.close();
  });
  c.open();
  if (c.devices()) c.smoke(0, rule);
}

void after_open(Context& c) {
  const char* after_rule = "After a fork the child calls nothing of an instance that was opened";
  const bool streams = c.table().stream_create && c.table().host_alloc;
  const uint64_t bytes = c.some_bytes(0);
  HostBuffer want(bytes), back(bytes);
  want.fill_pattern(5);
  const uint64_t a = c.alloc(0, bytes);
  c.upload(0, a, want.data(), bytes);
  bp_stream* stream = streams ? c.stream(0) : nullptr;
  for (bool run_destructors : {false, true}) {
    const std::string what = std::string("a child that was forked after open and called ") + (run_destructors ? "exit()" : "_exit()");
    c.in_child(after_rule, what.c_str(), [] {}, run_destructors);
    memset(back.data(), 0, bytes);
    c.holds(0, a, want.data(), bytes, after_rule, "the parent's device memory after a child has ended");
    if (streams) {
      uint8_t* p = c.pinned(bytes);
      c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(p), BP_HOST_DEVICE, a, 0, bytes, 0u), BP_OK, after_rule);
      c.synchronize(0, stream);
      c.same(p, want.data(), bytes, after_rule, "the parent's stream after a child has ended");
    }
    for (int32_t d = 0; d < c.devices(); ++d) c.smoke(d, after_rule);
  }
  c.free(0, a);
  c.close();
}

}  // namespace fork_impl

Checks fork_checks() {
  using namespace fork_impl;
  return {
      {"fork.before_open", "count and properties work in a child", needs_no_device | starts_closed, before_open},
      {"fork.child_opens", "a child may open what was not opened", needs_no_device | starts_closed, child_opens},
      {"fork.after_open", "a child that does nothing harms nobody", needs_nothing, after_open},
  };
}

}  // namespace backplane::check
