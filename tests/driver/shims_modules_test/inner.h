// tests/driver/shims_modules_test/inner.h: the inner driver of shims_modules_test.cpp: the simulated device with two other groups.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../instance.h"

namespace {

bp_driver sim, table;
bp_host_exec sim_exec;
std::atomic<int> inside, overlaps, launches, compiling, most_compiling;
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
  auto* code = new std::string(request->source);
  out->owner = code;
  out->code = code->data();
  out->bytes = code->size();
  out->log = "";
  return BP_OK;
}
int32_t compiler_release(void*, bp_compile_result* result) {
  delete static_cast<std::string*>(result->owner);
  *result = sized<bp_compile_result>();
  return BP_OK;
}

int32_t module_load(void*, int32_t, const void* code, uint64_t bytes, bp_module_code** out) {
  Inside here;
  modules.push_back(std::make_unique<Module>(Module{std::string(static_cast<const char*>(code), bytes)}));
  *out = reinterpret_cast<bp_module_code*>(modules.back().get());
  return BP_OK;
}
int32_t module_unload(void*, int32_t, bp_module_code* module) {
  Inside here;
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

bp_compiler compiler = {{sizeof(bp_compiler), BP_COMPILER_ID, BP_COMPILER_VERSION, BP_COMPILER_SUBPROCESS, nullptr},
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
    if (std::strcmp(id, BP_COMPILER_ID) == 0) {
      if (version != compiler.head.version) return BP_UNSUPPORTED;
      return *out = &compiler.head, BP_OK;
    }
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
  overlaps = launches = most_compiling = 0;
  together = false;
  return &table;
}

}  // namespace
