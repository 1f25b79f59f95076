// tests/driver/shims_modules_test/fault.h: cases of shims_modules_test.cpp: what fault counts, and how it fails.
#pragma once

#include "stacks.h"

namespace {

void compilations_and_loads_fail_when_asked() {
  Groups i(faulty("compile=@2,load=@1"));
  bp_compile_result code;
  OK(i.compile("add", &code));
  OK(i.compiler.release(i.compiler.head.self, &code));
  CHECK(i.compile("add", &code) == BP_INTERNAL && !code.code && !code.log);
  CHECK(i.says("compiler.compile: the compiler broke (injected by fault.compile=@2)"));
  bp_module_code* module = nullptr;
  CHECK(i.load("add", &module) == BP_INTERNAL && !module);
  CHECK(i.says("module.load: the device refused the code (injected by fault.load=@1)"));
  OK(i.compile("add", &code));  // neither is sticky
  OK(i.compiler.release(i.compiler.head.self, &code));
  OK(i.unload(i.loaded("add")));
}

void launches_count_as_work() {
  Groups i(faulty("kernel=@2"));
  bp_module_code* module = i.loaded("store");
  bp_function* function = i.function(module, "store");
  const Arguments with{i.alloc(64), 8, 7};
  OK(i.launch(nullptr, launch_of(function, with)));
  CHECK(i.word(with.out) == 7);
  OK(i.launch(nullptr, launch_of(function, with)));
  CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT && i.says("a kernel failed: bad address (injected by fault.kernel=@2)"));
  CHECK(launches == 1);
  CHECK(i.launch(nullptr, launch_of(function, with)) == BP_FAULT);
  bp_module_code* more = nullptr;
  CHECK(i.load("add", &more) == BP_FAULT);
  OK(i.unload(module));
}

void a_launch_may_hang_or_lose_the_device() {
  {
    Groups i(faulty("hang=@1"));
    const Arguments with{i.alloc(64), 8, 7};
    bp_stream* stream = i.stream();
    OK(i.launch(stream, launch_of(i.function(i.loaded("store"), "store"), with)));
    CHECK(i.d->stream_query(i.self, 0, stream) == BP_PENDING && launches == 0);
  }
  Groups i(faulty("lost=@3,device=0"));
  bp_module_code* module = i.loaded("store");
  const Arguments with{i.alloc(64), 8, 7};
  CHECK(i.launch(nullptr, launch_of(i.function(module, "store"), with)) == BP_DEVICE_LOST && i.says("fallen off the bus"));
  OK(i.unload(module));
}

}  // namespace
