// tests/driver/shims_modules_test.cpp: bp.compiler and bp.module through the shims emulate and fault.
//
// The driver below is the simulated device with two groups of this file's own: code is a kernel's name, and a kernel a host function.
// Prints one line a case; the exit status is the number of failures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "instance.h"
#include "report.h"

extern "C" {
int32_t bp_sim_get(const bp_host* host, const bp_driver** out);
int32_t bp_emulate_get(const bp_host* host, const bp_driver** out);
int32_t bp_fault_get(const bp_host* host, const bp_driver** out);
}

namespace {

// ---- the driver below

bp_driver sim, table;
bp_host_exec sim_exec;
std::atomic<int> inside, overlaps, launches, compiling, most_compiling, unloaded;
std::atomic<bool> together;  // compile() waits until two are in it
thread_local std::string text;

struct Inside {
  Inside() { overlaps += inside++ != 0; }
  ~Inside() { --inside; }
};

int32_t fail(int32_t status, const char* why) {
  text = why;
  return status;
}

struct Module {
  std::string name;
};
std::vector<std::unique_ptr<Module>> modules;

struct Arguments {
  uint64_t out;
  uint64_t count;
  uint64_t value;
};

/// The kernels: `store` writes value to count words, `add` adds it, `bad` fails.
struct Kernel {
  int32_t device;
  std::string name;
  Arguments with;

  int32_t run() {
    if (name == "bad") return BP_FAULT;
    void* at = nullptr;
    OK(sim_exec.map(sim_exec.head.self, device, with.out, &at));
    for (uint64_t i = 0; i < with.count; ++i) {
      uint64_t& word = static_cast<uint64_t*>(at)[i];
      word = name == "add" ? word + with.value : with.value;
    }
    return BP_OK;
  }
};

int32_t compiler_id(void*, char* out, uint64_t size) {
  std::snprintf(out, size, "names 1");
  return BP_OK;
}
int32_t compiler_target(void*, int32_t device, bp_target_properties* out) {
  if (device > 1) return fail(BP_INVALID_DEVICE, "no such target");
  const uint64_t size = out->struct_size;
  *out = {};
  out->struct_size = size;
  std::strcpy(out->target, "names");
  out->max_group_size = 1;
  out->local_bytes = 16384;
  out->max_grid[0] = out->max_grid[1] = out->max_grid[2] = 65535;
  return BP_OK;
}
int32_t compiler_prelude(void*, const char*, const char** out) {
  *out = "";
  return BP_OK;
}
int32_t compiler_compile(void*, const bp_compile_request* request, bp_compile_result* out) {
  const int now = ++compiling;
  for (int most = most_compiling; now > most && !most_compiling.compare_exchange_weak(most, now);) {
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (together && most_compiling < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  --compiling;
  if (std::strcmp(request->source, "none") == 0) return fail(BP_UNSUPPORTED, "no compiler: names was looked for");
  out->owner = new std::string(request->source);
  const bool wrong = std::strcmp(request->source, "wrong") == 0;
  const std::string& code = *static_cast<std::string*>(out->owner);
  out->code = wrong ? nullptr : code.data();
  out->bytes = wrong ? 0 : code.size();
  out->log = wrong ? "1: no such kernel" : "";
  return wrong ? fail(BP_INVALID_ARGUMENT, "the source is wrong") : BP_OK;
}
int32_t compiler_release(void*, bp_compile_result* result) {
  delete static_cast<std::string*>(result->owner);
  *result = {result->struct_size, nullptr, 0, nullptr, nullptr};
  return BP_OK;
}

int32_t module_load(void*, int32_t, const void* code, uint64_t bytes, bp_module_code** out) {
  Inside here;
  if (bytes > 8) return fail(BP_INVALID_ARGUMENT, "module.load: no code of this compiler");
  modules.push_back(std::make_unique<Module>(Module{std::string(static_cast<const char*>(code), bytes)}));
  *out = reinterpret_cast<bp_module_code*>(modules.back().get());
  return BP_OK;
}
int32_t module_unload(void*, int32_t, bp_module_code* module) {
  Inside here;
  ++unloaded;
  const auto is = [&](const auto& one) { return one.get() == reinterpret_cast<Module*>(module); };
  modules.erase(std::find_if(modules.begin(), modules.end(), is));
  return BP_OK;
}
int32_t module_function(void*, int32_t, bp_module_code* module, const char* name, const bp_signature*, bp_function** out,
                        bp_function_properties* properties) {
  Inside here;
  if (reinterpret_cast<Module*>(module)->name != name) return fail(BP_INVALID_ARGUMENT, "module.function: no kernel of that name");
  if (properties) properties->registers = 16;
  *out = reinterpret_cast<bp_function*>(module);
  return BP_OK;
}
int32_t module_launch(void*, int32_t device, bp_stream* stream, const bp_launch* launch) {
  Inside here;
  ++launches;
  if (launch->local_bytes == 77) return fail(BP_INVALID_ARGUMENT, "module.launch: 77 bytes of local memory");
  auto* kernel = new Kernel{device, reinterpret_cast<Module*>(launch->function)->name, {}};
  std::memcpy(&kernel->with, launch->args, sizeof kernel->with);
  return sim_exec.enqueue(
      sim_exec.head.self, device, stream, [](void* arg) { return static_cast<Kernel*>(arg)->run(); }, kernel,
      [](void* arg) { delete static_cast<Kernel*>(arg); });
}

const bp_compiler compiler = {{sizeof(bp_compiler), BP_COMPILER_ID, BP_COMPILER_VERSION, BP_COMPILER_SUBPROCESS, nullptr},
                              compiler_id,
                              compiler_target,
                              compiler_prelude,
                              compiler_compile,
                              compiler_release};
const bp_module module_group = {
    {sizeof(bp_module), BP_MODULE_ID, BP_MODULE_VERSION, 0, nullptr}, module_load, module_unload, module_function, module_launch};

/// The sim with the two groups. flags: of the table; without: these of its slots are not there.
const bp_driver* with_groups(uint32_t flags = 0, Group without = Group::single) {
  const bp_driver* driver = get(bp_sim_get, "stream=async,memory=64MiB");
  sim = normalised(*driver);
  sim_exec = *find_group<bp_host_exec>(sim);
  table = sim;
  table.flags = flags;
  for (const Slot& slot : slots()) {
    if (slot.group == without && without != Group::single) std::memset(reinterpret_cast<char*>(&table) + slot.offset, 0, sizeof(void*));
  }
  table.query_ext = [](void* self, const char* id, uint32_t version, const bp_ext** out) -> int32_t {
    if (std::strcmp(id, BP_COMPILER_ID) == 0) return *out = &compiler.head, BP_OK;
    if (std::strcmp(id, BP_MODULE_ID) == 0) return *out = &module_group.head, BP_OK;
    return sim.query_ext(self, id, version, out);
  };
  table.last_error = [](void* self, char* out, uint64_t size) -> int32_t {
    if (text.empty()) return sim.last_error(self, out, size);
    std::snprintf(out, size, "%s", text.c_str());
    text.clear();
    return BP_OK;
  };
  table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                  uint64_t bytes, uint32_t copy_flags) {
    Inside here;
    return sim.copy(self, device, stream, dst, dst_device, src, src_device, bytes, copy_flags);
  };
  table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t alloc_flags, uint64_t* out) {
    Inside here;
    return sim.alloc(self, device, bytes, alloc_flags, out);
  };
  overlaps = launches = most_compiling = unloaded = 0;
  together = false;
  return &table;
}

// ---- what stands above it

const bp_driver* own_streams(const char* config) { return get(bp_emulate_get, config, with_groups(0, Group::events)); }
const bp_driver* own_streams_locked(const char* config) {
  return get(bp_emulate_get, config, with_groups(BP_DRIVER_SERIALIZE, Group::events));
}
const bp_driver* locked(const char*) { return get(bp_emulate_get, "", with_groups(BP_DRIVER_SERIALIZE)); }
const bp_driver* passing(const char*) { return get(bp_emulate_get, "", with_groups(0, Group::pinned)); }
const bp_driver* faulty(const char* faults) { return get(bp_fault_get, faults, with_groups()); }
using Make = const bp_driver* (*)(const char*);

constexpr bp_signature kSignature = {sizeof(bp_signature), 1, 16, 1};

/// The two groups of an instance, and shorter names.
struct Groups : Instance {
  bp_compiler compiler;
  bp_module module;

  explicit Groups(const bp_driver* driver)
      : Instance(driver), compiler(*find_group<bp_compiler>(*driver)), module(*find_group<bp_module>(*driver)) {}

  int32_t load(const char* code, bp_module_code** out, int32_t device = 0) {
    return module.load(module.head.self, device, code, std::strlen(code), out);
  }
  bp_module_code* loaded(const char* code, int32_t device = 0) {
    bp_module_code* out = nullptr;
    OK(load(code, &out, device));
    return out;
  }
  int32_t unload(bp_module_code* code, int32_t device = 0) { return module.unload(module.head.self, device, code); }
  bp_function* function(bp_module_code* code, const char* name, int32_t device = 0) {
    bp_function* out = nullptr;
    OK(module.function(module.head.self, device, code, name, &kSignature, &out, nullptr));
    return out;
  }
  int32_t launch(bp_stream* stream, const bp_launch& one, int32_t device = 0) {
    return module.launch(module.head.self, device, stream, &one);
  }
  int32_t compile(const char* source, bp_compile_result* out) {
    const bp_compile_request request = {sizeof request, "names", source, source, "", 0, 0};
    *out = {sizeof *out, nullptr, 0, nullptr, nullptr};
    return compiler.compile(compiler.head.self, &request, out);
  }
  uint64_t word(uint64_t address) {
    uint64_t out = 0;
    std::memcpy(&out, take(address, sizeof out).data(), sizeof out);
    return out;
  }
  bool says(const char* words) { return error().find(words) != std::string::npos; }
};

bp_launch launch_of(bp_function* function, const Arguments& with) {
  return {sizeof(bp_launch), function, {1, 1, 1}, {1, 1, 1}, 0, 0, &with, sizeof with};
}

/// A kernel that runs, from source to memory, and what is refused.
void a_kernel_runs(Make make, const char* config) {
  Groups i(make(config));
  CHECK(i.compiler.head.flags == BP_COMPILER_SUBPROCESS);
  bp_compile_result code;
  OK(i.compile("add", &code));
  bp_module_code* module = nullptr;
  OK(i.module.load(i.module.head.self, 0, code.code, code.bytes, &module));
  OK(i.compiler.release(i.compiler.head.self, &code));
  bp_function_properties properties{};
  properties.struct_size = sizeof properties;
  bp_function* function = nullptr;
  OK(i.module.function(i.module.head.self, 0, module, "add", &kSignature, &function, &properties));
  CHECK(properties.registers == 16 && properties.struct_size == sizeof properties);
  bp_function* none = nullptr;
  CHECK(i.module.function(i.module.head.self, 0, module, "sub", &kSignature, &none, nullptr) == BP_INVALID_ARGUMENT && !none);
  CHECK(i.says("no kernel of that name"));

  bp_stream* stream = i.stream();
  const uint64_t memory = i.alloc(4096), zero = 0;
  OK(i.d->fill(i.self, 0, stream, memory, &zero, 8, 512, 0u));
  for (uint64_t n = 0; n < 50; ++n) {
    Arguments with{memory, 512, n};
    bp_launch one = launch_of(function, with);
    OK(i.launch(stream, one));
    std::memset(static_cast<void*>(&with), 0xff, sizeof with);  // args was read
    std::memset(static_cast<void*>(&one), 0xff, sizeof one);
  }
  OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
  CHECK(i.word(memory) == 49 * 50 / 2 && i.word(memory + 4088) == 49 * 50 / 2);
  CHECK(launches == 50);
  OK(i.unload(module));
  CHECK(unloaded == 1);
}

void errors_come_with_their_text(Make make, const char* config) {
  Groups i(make(config));
  bp_compile_result code;
  CHECK(i.compile("wrong", &code) == BP_INVALID_ARGUMENT && !code.code && std::string(code.log) == "1: no such kernel");
  CHECK(i.says("the source is wrong"));
  OK(i.compiler.release(i.compiler.head.self, &code));
  CHECK(i.compile("none", &code) == BP_UNSUPPORTED && !code.log && i.says("names was looked for"));
  bp_module_code* module = nullptr;
  CHECK(i.load("what is this", &module) == BP_INVALID_ARGUMENT && !module && i.says("no code of this compiler"));
}

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
  refused("full struct_size", [](bp_launch& l) { l.struct_size = 16; });
  refused("a function", [](bp_launch& l) { l.function = nullptr; });
  refused("grid[1] is 0, needed is 1 to 65535", [](bp_launch& l) { l.grid[1] = 0; });
  refused("grid[2] is 65536", [](bp_launch& l) { l.grid[2] = 65536; });
  refused("group is (2, 1, 1), needed is (1 to 1, 1, 1)", [](bp_launch& l) { l.group[0] = 2; });
  refused("group is (1, 1, 0)", [](bp_launch& l) { l.group[2] = 0; });
  refused("args has 16 bytes, the function takes 24", [](bp_launch& l) { l.args_bytes = 16; });
  refused("args has 0 bytes", [](bp_launch& l) { l.args = nullptr; });
  refused("local_bytes is 20000", [](bp_launch& l) { l.local_bytes = 20000; });
  refused("flags", [](bp_launch& l) { l.flags = 1; });
  refused("the function is of device 0, not of 1", [](bp_launch&) {}, 1);
  CHECK(i.module.launch(i.module.head.self, 0, nullptr, nullptr) == BP_INVALID_ARGUMENT);
  CHECK(i.launch(nullptr, right, 2) == BP_INVALID_DEVICE);
  bp_function* none = nullptr;
  CHECK(i.module.function(i.module.head.self, 0, module, "store", nullptr, &none, nullptr) == BP_INVALID_ARGUMENT);
  CHECK(launches == 0);
  OK(i.launch(nullptr, right));
  CHECK(i.word(with.out) == 7);
}

/// An idle inline stream gives the refusal of the driver below as the call's own.
void an_inline_launch_gives_its_own_error() {
  Groups i(own_streams("stream=inline"));
  bp_function* function = i.function(i.loaded("store"), "store");
  const Arguments with{i.alloc(64), 8, 7};
  bp_launch one = launch_of(function, with);
  one.local_bytes = 77;
  CHECK(i.launch(nullptr, one) == BP_INVALID_ARGUMENT && i.says("77 bytes of local memory"));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
}

/// Launches wait for their turn in a stream that is held up.
void launches_are_in_stream_order(const char* config) {
  Groups i(own_streams(config));
  bp_function* function = i.function(i.loaded("store"), "store");
  const uint64_t memory = i.alloc(64);
  bp_stream *held = i.stream(), *other = i.stream();
  bp_event* event = i.event();
  std::mutex gate;
  std::atomic<bool> entered{false};
  gate.lock();
  std::thread holds([&] {  // an inline stream runs it here
    i.call(held, [&](int32_t) {
      entered = true;
      std::lock_guard wait(gate);
    });
  });
  while (!entered) std::this_thread::yield();
  Arguments with{memory, 8, 1};
  OK(i.launch(held, launch_of(function, with)));
  OK(i.d->event_record(i.self, 0, held, event, 0u));
  OK(i.d->stream_wait(i.self, 0, other, event));
  with.value = 2;
  OK(i.launch(other, launch_of(function, with)));
  with.value = 3;
  CHECK(launches == 0);
  gate.unlock();
  holds.join();
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  CHECK(launches == 2 && i.word(memory) == 2);
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

// ---- fault

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

int main() {
  struct Stack {
    const char* name;
    Make make;
    const char* config;
  };
  for (const Stack& stack :
       {Stack{"emulate, inline streams", own_streams, "stream=inline"}, Stack{"emulate, async streams", own_streams, "stream=async"},
        Stack{"emulate, async streams, locked", own_streams_locked, "stream=async"}, Stack{"emulate, locked", locked, ""},
        Stack{"emulate, passing", passing, ""}, Stack{"fault", faulty, ""}}) {
    const std::string name = stack.name;
    report(name + ": a kernel runs", [&] { a_kernel_runs(stack.make, stack.config); });
    report(name + ": errors come with their text", [&] { errors_come_with_their_text(stack.make, stack.config); });
    report(name + ": a failed kernel is sticky", [&] { a_failed_kernel_is_sticky(stack.make, stack.config); });
    report(name + ": compilations are not locked", [&] { compilations_are_not_locked(stack.make); });
  }
  report("emulate, locked: calls do not overlap", [] { calls_of_a_locked_driver_do_not_overlap(locked); });
  report("emulate, async streams, locked: calls do not overlap", [] { calls_of_a_locked_driver_do_not_overlap(own_streams_locked); });
  for (const char* config : {"stream=inline", "stream=async"}) {
    const std::string name = std::string("emulate, ") + config;
    report(name + ": wrong launches are refused", [&] { wrong_launches_are_refused(config); });
    report(name + ": launches are in stream order", [&] { launches_are_in_stream_order(config); });
  }
  report("emulate: an inline launch gives its own error", an_inline_launch_gives_its_own_error);
  report("emulate: launches behind a fault do not run", launches_behind_a_fault_do_not_run);
  report("fault: compilations and loads fail when asked", compilations_and_loads_fail_when_asked);
  report("fault: launches count as work", launches_count_as_work);
  report("fault: a launch may hang or lose the device", a_launch_may_hang_or_lose_the_device);
  return failures;
}
