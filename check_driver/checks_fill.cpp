// check_driver/checks_fill.cpp: family "fill".
#include <string.h>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace fill_impl {

constexpr char rule[] = "Queues: write `count` patterns of 1, 2, 4 or 8 bytes (host memory, read before the call returns) from dst on";

void patterns(Context& c) {
  constexpr uint8_t pattern[8] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88};
  constexpr uint64_t room = 16384;
  HostBuffer background(room, 0xcd), want(room);
  const uint64_t a = c.alloc(0, room);
  for (uint32_t size : {1u, 2u, 4u, 8u}) {
    for (uint64_t count : {0, 1, 2, 3, 63, 1001}) {
      for (uint64_t skip : {0, 1, 5}) {
        const uint64_t at = skip * size;
        memcpy(want.data(), background.data(), room);
        for (uint64_t i = 0; i < count; ++i) memcpy(want.data() + at + i * size, pattern, size);
        c.upload(0, a, background.data(), room);
        c.expect(CALL(c, fill, 0, nullptr, a + at, pattern, size, count, 0u), BP_OK, rule);
        c.synchronize(0, nullptr);
        c.holds(0, a, want.data(), room, rule, format("%llu patterns of %u bytes at offset %llu", wide(count), size, wide(at)).c_str());
      }
    }
  }
  c.expect(CALL(c, fill, 0, nullptr, a + room, pattern, 8u, 0u, 0u), BP_OK,
           "0 patterns are allowed, also one past the end of an allocation");
  c.free(0, a);
}

// The pattern is the caller's again when fill has returned, though the work is still queued.
void pattern_is_read(Context& c) {
  constexpr uint64_t count = 1024;
  bp_stream* stream = c.stream(0);
  HostBuffer want(count * 4, 0x5a);
  const uint64_t a = c.alloc(0, count * 4);
  BusyStream hold(c, 0, stream);
  uint32_t pattern = 0x5a5a5a5a;
  c.expect(CALL(c, fill, 0, stream, a, &pattern, 4u, count, 0u), BP_OK, rule);
  hold.not_waited_for(rule);
  pattern = 0;
  hold.release();
  c.synchronize(0, stream);
  c.holds(0, a, want.data(), count * 4, rule, "memory filled with a pattern that changed after the call");
}

}  // namespace fill_impl

Checks fill_checks() {
  using namespace fill_impl;
  return {
      {"fill.patterns", "patterns of 1, 2, 4 and 8 bytes", needs_fill, patterns},
      {"fill.pattern_is_read", "queued; the pattern is read before the call returns", needs_fill | needs_streams, pattern_is_read},
  };
}

}  // namespace backplane::check
