// tests/driver/shims_modules_test/every.h: cases of shims_modules_test.cpp that hold of every stack, or of every one under a lock.
#pragma once

#include "stacks.h"

namespace {

/// The compiler works before open, and from two threads at once over a driver that takes one call at a time.
void compilations_are_not_locked(Make make) {
  const bp_driver* driver = make("");
  {
    const bp_compiler before = *find_group<bp_compiler>(*driver);
    char id[16] = "";
    OK(before.id(before.head.self, id, sizeof id));
    CHECK(std::string(id) == "names 1");
  }
  Groups i(driver);
  together = true;
  const auto one = [&] {
    bp_compile_result code;
    OK(i.compile("add", &code));
    OK(i.compiler.release(i.compiler.head.self, &code));
  };
  std::thread other(one);
  one();
  other.join();
  CHECK(most_compiling == 2);
}

void an_older_compiler_stays_one(Make make) {
  compiler.head.version = 1;
  const Groups i(make(""));
  compiler.head.version = BP_COMPILER_VERSION;
  CHECK(i.compiler.head.version == 1);
}

void calls_of_a_locked_driver_do_not_overlap(Make make) {
  Groups i(make("stream=async"));
  bp_module_code* module = i.loaded("add");
  bp_function* function = i.function(module, "add");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      bp_stream* stream = i.stream();
      const uint64_t memory = i.alloc(64), zero = 0;
      OK(i.d->fill(i.self, 0, stream, memory, &zero, 8, 8, 0u));
      const Arguments with{memory, 8, 1};
      for (int n = 0; n < 50; ++n) OK(i.launch(stream, launch_of(function, with)));
      OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
      CHECK(i.word(memory) == 50);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(launches == 200 && overlaps == 0);
}

void a_failed_kernel_is_sticky(Make make, const char* config) {
  Groups i(make(config));
  bp_module_code *bad = i.loaded("bad"), *good = i.loaded("store"), *elsewhere = i.loaded("store", 1);
  bp_function *fails = i.function(bad, "bad"), *stores = i.function(good, "store"), *there = i.function(elsewhere, "store", 1);
  const Arguments with{i.alloc(64), 8, 7}, with_there{i.alloc(64, 1), 8, 7};
  const int32_t at_once = i.launch(nullptr, launch_of(fails, with));
  CHECK(at_once == BP_OK || at_once == BP_FAULT);
  CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT);
  const int before = launches;
  CHECK(i.launch(nullptr, launch_of(stores, with)) == BP_FAULT);
  CHECK(launches == before || make != own_streams);
  bp_module_code* module = nullptr;
  if (make == own_streams) CHECK(i.load("add", &module) == BP_FAULT && !module);
  OK(i.unload(bad));
  OK(i.unload(good));
  OK(i.launch(nullptr, launch_of(there, with_there), 1));
  OK(i.d->synchronize(i.self, 1, BP_NO_TIMEOUT));
}

}  // namespace
