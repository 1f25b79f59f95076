// drivers/cuda/gpus.cpp: the order in which a GPU's belongings begin and end.
#include "gpus.h"

#include <string>

namespace backplane::driver::cuda {

Gpu::Gpu(const Library& cuda, int32_t ordinal, bool managed)
    : cuda(cuda),
      device(cuda, ordinal),
      memory(std::make_unique<DeviceMemory>(cuda, device, managed)),
      vmm(std::make_unique<Vmm>(cuda, device)),
      modules(std::make_unique<Modules>(cuda, device)) {}

Gpu::~Gpu() {
  CUcontext context = device.context_if_any();
  if (!context) return;
  const Current current(cuda, context);
  device.complete();
  modules.reset();
  vmm.reset();
  memory.reset();
}

const std::vector<std::unique_ptr<Gpu>>& Gpus::all() const {
  if (const auto* known = all_.load(std::memory_order_acquire)) return *known;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto* known = all_.load(std::memory_order_acquire)) return *known;
  auto found = std::make_unique<std::vector<std::unique_ptr<Gpu>>>();
  if (cuda_.start()) {
    int count = 0;
    cuda_.check(cuda_.cuDeviceGetCount(&count), "cuDeviceGetCount");
    for (int ordinal = 0; ordinal < count; ++ordinal) found->push_back(std::make_unique<Gpu>(cuda_, ordinal, managed_));
  }
  all_.store(found.get(), std::memory_order_release);
  return *found.release();
}

Gpu& Gpus::at(int32_t device) const {
  const auto& gpus = all();
  if (device < 0 || device >= static_cast<int64_t>(gpus.size())) {
    const std::string why = gpus.empty() && !cuda_.missing().empty() ? " (" + cuda_.missing() + ")" : "";
    throw Error(BP_INVALID_DEVICE, "no device " + std::to_string(device) + ": there are " + std::to_string(gpus.size()) + why);
  }
  return *gpus[static_cast<size_t>(device)];
}

CUcontext Gpus::some_context() const {
  for (const auto& gpu : all()) {
    if (CUcontext context = gpu->device.failed() ? nullptr : gpu->device.context_if_any()) return context;
  }
  for (const auto& gpu : all()) {
    if (!gpu->device.failed()) return gpu->device.context();
  }
  return at(0).device.context();
}

}  // namespace backplane::driver::cuda
