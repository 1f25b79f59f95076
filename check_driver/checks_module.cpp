// check_driver/checks_module.cpp: family "module": code on a device, and kernels in stream order (checks_module_launch.cpp).
#include <future>

#include "loaded.h"

namespace backplane::check {
namespace module_impl {

void load(Context& c) {
  for (int32_t d = 0; d < c.devices(); ++d) {
    const Loaded first(c, d);
    Code passing = first.code;
    const Module short_lived(c, d, passing);
    memset(passing.data(), 0xee, passing.size());  // the bytes may go when the call returns
    short_lived.function("affine", 2, sizeof(Affine));
    const Loaded second(first, d);
    c.require(second.module.handle() != first.module.handle(), rules::load, "two loads of the same code gave the same module");
    works(c, first, d, rules::load);
    first.module.unload();
    works(c, second, d, unload_rule);
    second.module.unload();
    const Loaded third(first, d);
    works(c, third, d, rules::load);
    third.module.unload();
    short_lived.unload();
  }
  const Code code = Loaded(c, 0).code;
  const bp_module group = *c.group<bp_module>();
  for (int32_t bad : {c.devices(), -1}) {
    bp_module_code* out = nullptr;
    c.expect(CALL_GROUP(group, load, bad, code.data(), code.size(), &out), BP_INVALID_DEVICE, rules::no_such_device);
    c.require(!out, rules::errors, "load failed and yet set *out");
  }
}

void function(Context& c) {
  const Loaded k(c, 0);
  const bp_module& group = k.module.group();
  const bp_signature two = {sizeof two, 2, sizeof(Affine), 1};
  bp_function* out = nullptr;
  bp_function_properties properties;
  memset(&properties, 0, sizeof properties);
  properties.struct_size = sizeof properties;
  c.expect(CALL_GROUP(group, function, 0, k.module.handle(), "affine", &two, &out, &properties), BP_OK, rules::function);
  c.require(!properties.max_group_size || properties.max_group_size >= k.tile.group, "max_group_size: as compiled; 0: the target's",
            "max_group_size is %u of a kernel compiled for %u", properties.max_group_size, k.tile.group);
  memset(&properties, 0xaa, sizeof properties);
  properties.struct_size = offsetof(bp_function_properties, registers);
  c.expect(CALL_GROUP(group, function, 0, k.module.handle(), "affine", &two, &out, &properties), BP_OK, rules::function);
  c.require(properties.registers == 0xaaaaaaaa && properties.spill_bytes == 0xaaaaaaaa,
            "the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it",
            "function wrote beyond the struct_size of properties");
  Loaded again = k;
  again.affine = out;
  works(c, again, 0, "Repeating returns the same function or another one of the same kernel");
  works(c, k, 0, "a kernel in it; lives as long as the module");

  const auto refused = [&](const char* name, const bp_signature& signature, const char* what) {
    bp_function* none = nullptr;
    c.expect(CALL_GROUP(group, function, 0, k.module.handle(), name, &signature, &none, nullptr), BP_INVALID_ARGUMENT, signature_rule);
    c.require(!none, rules::errors, "function refused %s and yet set *out", what);
    c.require(!c.last_error().empty(), rules::errors, "function refused %s and last_error gives an empty text", what);
  };
  refused("no_such_kernel", two, "an unknown name");
  refused("", two, "an empty name");
  refused("affin", two, "the start of a name");
  refused("affine", {sizeof two, 0, sizeof(Affine), 0}, "no pointers");
  refused("affine", {sizeof two, 65, sizeof(Affine), 1}, "65 pointers");
  refused("affine", {sizeof two, 3, sizeof(Affine), 1}, "a pointer more than the kernel has");
  refused("affine", {sizeof two, 2, sizeof(Affine) - 4, 1}, "a value_bytes that is no multiple of 8");
  refused("affine", {sizeof two, 2, 0, 1}, "a value_bytes of 0");
}

void refused(Context& c) {
  const Loaded k(c, 0);
  const bp_module& group = k.module.group();
  const auto try_load = [&](const Code& code, uint64_t bytes, std::initializer_list<int32_t> want, const char* what) {
    bp_module_code* out = nullptr;
    const int32_t status = CALL_GROUP(group, load, 0, code.data(), bytes, &out);
    c.expect_one_of(status, want, refuse_rule);
    c.require((out != nullptr) == (status == BP_OK), rules::errors, "load of %s gave %s and set *out to %p", what,
              status_text(status).c_str(), static_cast<void*>(out));
    if (out) {
      c.expect(CALL_GROUP(group, unload, 0, out), BP_OK, unload_rule);
    } else {
      c.require(!c.last_error().empty(), rules::errors, "load refused %s and last_error gives an empty text", what);
    }
  };
  Code foreign(4096);
  for (size_t i = 0; i < foreign.size(); ++i) foreign[i] = static_cast<uint8_t>(i * 37 + 11);
  try_load(foreign, foreign.size(), {BP_INVALID_ARGUMENT}, "foreign bytes");
  try_load(foreign, 1, {BP_INVALID_ARGUMENT}, "one byte");
  try_load(foreign, 0, {BP_INVALID_ARGUMENT}, "no bytes");
  try_load(k.code, k.code.size() / 2, {BP_INVALID_ARGUMENT}, "half of some code");
  try_load(k.code, 8, {BP_INVALID_ARGUMENT}, "the first 8 bytes of some code");
  Code changed = k.code;
  for (size_t i = 0; i < 8; ++i) changed[i] = static_cast<uint8_t>(~changed[i]);
  try_load(changed, changed.size(), {BP_INVALID_ARGUMENT}, "code whose first 8 bytes were changed");
  for (size_t part : {1, 2, 3}) {
    changed = k.code;
    changed[changed.size() * part / 4] ^= 0x55;
    try_load(changed, changed.size(), {BP_OK, BP_INVALID_ARGUMENT}, "code of which one byte was changed");
  }
  works(c, k, 0, refuse_rule);
}

// Code is of a target, not of a device.
void devices(Context& c) {
  const Loaded k(c, 0);
  for (int32_t d = 1; d < c.devices(); ++d) {
    if (Compiler(c, d).target().target == std::string(k.compiler.target().target)) {
      const Loaded there(k, d);
      works(c, there, d, rules::load);
      works(c, k, 0, "The function is of this device");
      there.module.unload();
    } else {
      bp_module_code* out = nullptr;
      c.expect(CALL_GROUP(k.module.group(), load, d, k.code.data(), k.code.size(), &out), BP_INVALID_ARGUMENT,
               "or for another target (the core compiles again)");
    }
  }
}

void unload(Context& c) {
  const Loaded lasting(c, 0);
  for (int round = 0; round < 30; ++round) {
    const Loaded passing(lasting, 0);
    works(c, passing, 0, rules::load);
    passing.module.unload();
  }
  works(c, lasting, 0, unload_rule);
  c.expect(CALL_GROUP(lasting.module.group(), unload, c.devices(), lasting.module.handle()), BP_INVALID_DEVICE, rules::no_such_device);
  lasting.module.unload();
  c.smoke(0, unload_rule);
  c.close();
}

// One function from several threads, to a stream each and to memory each, while others load and unload.
void threads(Context& c) {
  const Loaded k(c, 0);
  c.properties(0);
  std::vector<std::future<void>> all;
  for (int32_t i = 0; i < 4; ++i) {
    all.push_back(std::async(std::launch::async, [&, i] {
      bp_stream* stream = c.table().stream_create && i % 2 ? c.stream(0) : nullptr;
      const DeviceArray<int32_t> out(c, 0, 3000);
      uint32_t want = 0;
      for (int32_t round = 0; round < 50; ++round) {
        k.run(stream, out, 3, i + round);
        want = want * 3 + static_cast<uint32_t>(i + round);
        if (round % 10 == i) {
          const Module passing(c, 0, k.code);
          passing.function("mixed", 4, sizeof(Mixed), 3);
          passing.unload();
        }
      }
      same(c, out.get(stream), std::vector<int32_t>(3000, static_cast<int32_t>(want)), rules::threads,
           "kernels beside those of other threads");
    }));
  }
  for (std::future<void>& one : all) one.get();
}

// What a device with that sticky error still takes.
void fails(Context& c, const Loaded& k, const DeviceArray<int32_t>& out, int32_t status, const char* rule) {
  const auto args = arguments({out.address()}, Affine{100, 2, 1});
  for (int again = 0; again < 2; ++again) {
    c.expect(k.module.try_launch(nullptr, k.module.prepare(k.advance, k.tile, 2, args), "advance"), status, rule);
    bp_module_code* none = nullptr;
    c.expect(CALL_GROUP(k.module.group(), load, 0, k.code.data(), k.code.size(), &none), status, "load: errors: sticky ones");
    c.require(!none, rules::errors, "load failed and yet set *out");
  }
  if (status == BP_FAULT && c.devices() > 1) works(c, Loaded(c, 1), 1, "FAULT and DEVICE_LOST are sticky for that device");
  c.expect(CALL_GROUP(k.module.group(), unload, 0, k.module.handle()), BP_OK, "Works after a FAULT, BP_OK after DEVICE_LOST");
  c.expect(CALL(c, free, 0, out.address()), BP_OK, "Works after a FAULT, and is BP_OK after DEVICE_LOST");
  c.close();
}

// A kernel that fails, and what comes after it.
void fault(Context& c) {
  const Loaded k(c, 0, BP_COMPILE_DEBUG);
  const DeviceArray<int32_t> out(c, 0, counted(100));
  k.module.launch(nullptr,
                  k.module.prepare(k.module.function("has_assert", 1, sizeof(Affine)), k.tile, 1, arguments({out.address()}, Affine{})),
                  "has_assert");
  if (!out.get()[0]) throw NotOffered{"the prelude defines no BP_ASSERT"};
  const auto failing = arguments({out.address()}, Affine{-1, 2, 1}), sound = arguments({out.address()}, Affine{100, 2, 1});
  const auto launch = [&](const std::vector<uint8_t>& args) {
    return k.module.try_launch(nullptr, k.module.prepare(k.advance, k.tile, 2, args), "advance");
  };
  c.expect(launch(sound), BP_OK, rules::launch);
  c.expect_one_of(launch(failing), {BP_OK, BP_FAULT}, fault_rule);  // an inline stream may report it at once
  c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_FAULT, fault_rule);
  c.require(!c.last_error().empty(), rules::errors, "synchronize gave BP_FAULT and last_error gives an empty text");
  fails(c, k, out, BP_FAULT, "BP_FAULT: sticky; it comes back from launches");
}

// By way of the fault shim. What it counts before are the loads, the memory and the copies of the beginning.
void lost(Context& c) {
  const char* rule = "BP_DEVICE_LOST: sticky: the device is gone; it comes back from launches";
  c.load();
  c.require_needs(needs_compiler | needs_module);
  c.close();
  c.load_with_fault("fault.lost=@40,fault.device=0");
  c.open();
  const Loaded k(c, 0);
  const DeviceArray<int32_t> out(c, 0, 100);
  int32_t status = BP_OK;
  for (int i = 0; i < 40 && status == BP_OK; ++i) {
    uint64_t address = 0;
    status = CALL(c, alloc, 0, 4096, 0u, &address);
  }
  c.expect(status, BP_DEVICE_LOST, rule);
  fails(c, k, out, BP_DEVICE_LOST, rule);
}

}  // namespace module_impl

Checks module_checks() {
  using namespace module_impl;
  constexpr uint64_t needs = needs_compiler | needs_module;
  constexpr uint64_t streams = needs | needs_streams;
  return {
      {"module.load", "code is loaded, more than once, and unloaded", needs, load},
      {"module.function", "kernels are found by name and signature", needs, function},
      {"module.refused", "bytes that are no code are refused", needs, refused},
      {"module.values", "kernels see pointers, 0 too, and a struct", needs, values},
      {"module.most", "as many arguments as the target allows", needs, most},
      {"module.read_at_once", "arguments are read before a launch returns", needs, read_at_once},
      {"module.order", "kernels, copies and fills keep their order", streams | needs_pinned | needs_fill, order},
      {"module.pending", "launch does not wait, a kernel not run early", streams, pending},
      {"module.events", "two streams and an event", streams | needs_events, events},
      {"module.grid", "each group runs once, in three dimensions", needs, grid},
      {"module.sizes", "wrong sizes are refused", needs, sizes},
      {"module.devices", "code of one device runs on the next", needs | needs_two_devices, devices},
      {"module.unload", "what is unloaded leaves the rest alone", needs, unload},
      {"module.threads", "several threads load and launch", needs | needs_threads, threads},
      {"module.fault", "a kernel that fails makes the device FAULT", needs, fault},
      {"module.lost", "a device that is gone: launch fails, unload works", starts_unloaded, lost},
  };
}

}  // namespace backplane::check
