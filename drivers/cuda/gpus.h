// drivers/cuda/gpus.h: the GPUs of an instance, found at the first query, and what belongs to each of them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"
#include "memory.h"
#include "module.h"
#include "vmm.h"

namespace backplane::driver::cuda {

struct Gpu {
  Gpu(const Library& cuda, int32_t ordinal, bool managed);
  ~Gpu();

  const Library& cuda;
  Device device;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Vmm> vmm;
  std::unique_ptr<Modules> modules;
};

class Gpus {
 public:
  Gpus(const Library& cuda, bool managed) : cuda_(cuda), managed_(managed) {}
  ~Gpus() { delete all_.load(); }

  bool known() const { return all_.load(std::memory_order_acquire) != nullptr; }
  /// How many there are; 0 also where there is no libcuda.so.1.
  int32_t count() const { return static_cast<int32_t>(all().size()); }
  /// Throws Error(BP_INVALID_DEVICE).
  Gpu& at(int32_t device) const;
  const std::vector<std::unique_ptr<Gpu>>& all() const;
  /// A context for what belongs to no GPU: the first one that is there and sound, else that of the first sound GPU.
  CUcontext some_context() const;

 private:
  const Library& cuda_;
  const bool managed_;
  mutable std::mutex mutex_;
  mutable std::atomic<std::vector<std::unique_ptr<Gpu>>*> all_{nullptr};
};

/// An entry's way to a GPU: sound, with its context made and current on this thread.
class Use {
 public:
  Use(const Gpus& gpus, int32_t device) : gpu_(gpus.at(device)), current_(gpu_.cuda, sound(gpu_).context()) {}
  Gpu* operator->() const { return &gpu_; }
  Gpu& operator*() const { return gpu_; }
  void check(CUresult result, const char* call) const { gpu_.device.check(result, call); }

 private:
  static Device& sound(Gpu& gpu) {
    gpu.device.check_sound();
    return gpu.device;
  }
  Gpu& gpu_;
  Current current_;
};

/// The same for entries that give something back, which work after a failure, too.
class Release {
 public:
  Release(const Gpus& gpus, int32_t device) : gpu_(gpus.at(device)), current_(gpu_.cuda, gpu_.device.context()) {}
  Gpu* operator->() const { return &gpu_; }
  Gpu& operator*() const { return gpu_; }

 private:
  Gpu& gpu_;
  Current current_;
};

inline CUstream native(bp_stream* stream) { return reinterpret_cast<CUstream>(stream); }
inline Event& event_of(bp_event* event) { return *reinterpret_cast<Event*>(event); }

inline void need(bool holds, const char* what) {
  if (!holds) throw Error(BP_INVALID_ARGUMENT, what);
}

}  // namespace backplane::driver::cuda
