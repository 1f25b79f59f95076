// tests/driver/cuda_test.h: the CUDA driver over the fake libcuda.so.1 of fake_cuda/, and the fake's own functions for tests.
#pragma once

#include <dlfcn.h>

#include <string>

#include <backplane/driver/ipc.h>
#include <backplane/driver/module.h>
#include <backplane/driver/peer.h>
#include <backplane/driver/vmm.h>

#include "../../drivers/cuda/cuda_api.h"
#include "instance.h"

namespace {

using namespace backplane::driver::cuda;

struct Fake {
  explicit Fake(const std::string& path) : library(dlopen(path.c_str(), RTLD_NOW)) {
    if (!library) throw std::runtime_error(dlerror());
  }
  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }

  void* library;
  void (*record)() = get<void()>("fake_cuda_record");
  const char* (*calls)() = get<const char*()>("fake_cuda_calls");
  void (*fail)(const char*, int, int, int) = get<void(const char*, int, int, int)>("fake_cuda_fail");
  int (*graphs)() = get<int()>("fake_cuda_graphs");
  void (*break_)(int, int) = get<void(int, int)>("fake_cuda_break");
#define BP_MEMBER(name, ...) CUresult (*name)(__VA_ARGS__) = get<CUresult(__VA_ARGS__)>(#name);
  BP_CUDA_FUNCTIONS(BP_MEMBER)
#undef BP_MEMBER
};

inline std::string driver_path, fake_path;

inline const Fake& fake() {
  static const Fake one(fake_path);
  return one;
}

inline bp_driver_get_fn entry() {
  static void* const library = dlopen(driver_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  return reinterpret_cast<bp_driver_get_fn>(dlsym(library, "bp_driver_get"));
}

inline std::string over_the_fake(const std::string& more = "") { return "libcuda=" + fake_path + (more.empty() ? "" : "," + more); }

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define HAS(text, part)                                                                                                     \
  do {                                                                                                                      \
    const std::string text_ = text;                                                                                         \
    if (!has(text_, part)) throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + text_); \
  } while (0)

/// An opened instance over the fake.
struct Gpus : Instance {
  explicit Gpus(const std::string& more = "") : Instance(get(entry(), over_the_fake(more).c_str())) {}
  int32_t free_bytes(uint64_t* out, int32_t device = 0) {
    uint64_t total = 0;
    return d->memory_info(self, device, out, &total);
  }
};

}  // namespace
