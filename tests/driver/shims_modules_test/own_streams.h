// tests/driver/shims_modules_test/own_streams.h: cases of shims_modules_test.cpp where the streams are emulate's own.
#pragma once

#include <functional>
#include <mutex>
#include <stdexcept>

#include "stacks.h"

namespace {

/// Streams of the shim's own: what cannot be right is refused at once, and is no fault.
void wrong_launches_are_refused(const char* config) {
  Groups i(own_streams(config));
  bp_module_code* module = i.loaded("store");
  bp_function* function = i.function(module, "store");
  const Arguments with{i.alloc(64), 8, 7};
  const bp_launch right = launch_of(function, with);
  const auto refused = [&](const char* why, const std::function<void(bp_launch&)>& change, int32_t device = 0) {
    bp_launch wrong = right;
    change(wrong);
    CHECK(i.launch(nullptr, wrong, device) == BP_INVALID_ARGUMENT);
    if (!i.says(why)) throw std::runtime_error(i.error());
  };
  refused("with its function and struct_size", [](bp_launch& l) { l.struct_size = 16; });
  refused("with its function", [](bp_launch& l) { l.function = nullptr; });
  refused("a grid of 1 x 0 x 1 groups; it may have from 1 to ", [](bp_launch& l) { l.grid[1] = 0; });
  refused("a grid of 1 x 1 x 65536 groups", [](bp_launch& l) { l.grid[2] = 65536; });
  refused("a group of 2 x 1 x 1 items; the kernel was compiled for 1 x 1 x 1", [](bp_launch& l) { l.group[0] = 2; });
  refused("a group of 1 x 1 x 0 items", [](bp_launch& l) { l.group[2] = 0; });
  refused("16 bytes of arguments; the kernel takes 24", [](bp_launch& l) { l.args_bytes = 16; });
  refused("0 bytes of arguments", [](bp_launch& l) { l.args = nullptr; });
  refused("20000 bytes of work-group memory", [](bp_launch& l) { l.local_bytes = 20000; });
  refused("flags", [](bp_launch& l) { l.flags = 1; });
  refused("a function of device 0, on device 1", [](bp_launch&) {}, 1);
  CHECK(i.module.launch(i.module.head.self, 0, nullptr, nullptr) == BP_INVALID_ARGUMENT);
  CHECK(i.launch(nullptr, right, 2) == BP_INVALID_DEVICE);
  bp_function* none = nullptr;
  CHECK(i.module.function(i.module.head.self, 0, module, "store", nullptr, &none, nullptr) == BP_INVALID_ARGUMENT);
  CHECK(launches == 0);
  OK(i.launch(nullptr, right));
  CHECK(i.word(with.out) == 7);
}

/// An idle inline stream gives the refusal of the inner driver as the call's own.
void an_inline_launch_gives_its_own_error() {
  Groups i(own_streams("stream=inline"));
  bp_function* function = i.function(i.loaded("store"), "store");
  const Arguments with{i.alloc(64), 8, 7};
  bp_launch one = launch_of(function, with);
  one.local_bytes = 77;
  CHECK(i.launch(nullptr, one) == BP_INVALID_ARGUMENT && i.says("77 bytes of local memory"));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
}

/// What is queued behind a fault does not run, and is given back.
void launches_behind_a_fault_do_not_run() {
  Groups i(own_streams("stream=async"));
  bp_function *fails = i.function(i.loaded("bad"), "bad"), *stores = i.function(i.loaded("store"), "store");
  const Arguments with{i.alloc(64), 8, 7};
  bp_stream* stream = i.stream();
  std::mutex gate;
  gate.lock();
  i.call(stream, [&](int32_t) { std::lock_guard wait(gate); });
  OK(i.launch(stream, launch_of(fails, with)));
  for (int n = 0; n < 5; ++n) OK(i.launch(stream, launch_of(stores, with)));
  gate.unlock();
  CHECK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT) == BP_FAULT);
  i.close();
  CHECK(launches == 1);
}

}  // namespace
