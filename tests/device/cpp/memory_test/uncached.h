// tests/device/cpp/memory_test/uncached.h: cases of memory_test.cpp: frees that keep nothing.
#pragma once

#include <backplane/kernel.h>

#include "cases.h"

namespace {

CASE(held_a_free_without_caching_waits_for_the_blocks_streams) {
  caching().set_caching(false);
  for (const bool recorded : {false, true}) {
    HeldStream held;
    c10::DataPtr memory;
    {
      const OnStream on(recorded ? default_stream(0) : held.stream);
      memory = allocator().allocate(5000);
    }
    if (recorded) caching().recordStream(memory, held.stream);
    EXPECT_EQUAL(Stats().reserved(), 5120);
    Event used;
    used.record(held.stream);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      held.release();
    });
    memory.clear();
    const bool waited = used.query();
    later.join();
    EXPECT(waited);
    EXPECT_EQUAL(Stats().reserved(), 0);
  }
}

CASE(a_free_on_a_thread_of_the_drivers_comes_later) {
  caching().set_caching(false);
  auto memory = std::make_shared<c10::DataPtr>(allocator().allocate(kMiB));
  launch(0, [memory](const DeviceMemory&) {});
  memory.reset();  // the function has the last one
  synchronize_device(0);
  EXPECT_EQUAL(Stats().allocated(), 0);
  const auto other = allocator().allocate(512);
  EXPECT_EQUAL(Stats().reserved(), 512);
}

}  // namespace
