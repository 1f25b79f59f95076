// drivers/cuda/properties.cpp: device attributes and pointer attributes.
#include "properties.h"

#include <cstdio>
#include <cstring>

namespace backplane::driver::cuda {

void properties_of(const Library& cuda, const Device& device, bp_device_properties* out) {
  const auto check = [&](CUresult result, const char* call) { cuda.check(result, call); };
  check(cuda.cuDeviceGetName(out->name, sizeof out->name, device.handle()), "cuDeviceGetName");
  check(cuda.cuDeviceGetPCIBusId(out->bus_id, sizeof out->bus_id, device.handle()), "cuDeviceGetPCIBusId");
  std::snprintf(out->vendor, sizeof out->vendor, "NVIDIA");
  int version = 0;
  check(cuda.cuDriverGetVersion(&version), "cuDriverGetVersion");
  std::snprintf(out->driver_version, sizeof out->driver_version, "CUDA %d.%d", version / 1000, version % 1000 / 10);
  CUuuid uuid{};
  check(cuda.cuDeviceGetUuid_v2(&uuid, device.handle()), "cuDeviceGetUuid");
  std::memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
  size_t bytes = 0;
  check(cuda.cuDeviceTotalMem_v2(&bytes, device.handle()), "cuDeviceTotalMem");
  out->total_memory = out->max_allocation = bytes;
  out->alignment = BP_MIN_ALIGNMENT;
  out->copy_alignment = 1;
  out->capability_major = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  out->capability_minor = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  out->dtypes = BP_DTYPE_FLOAT8_E4M3 - 1;
  if (out->capability_major < 8) out->dtypes &= ~BP_DTYPE_BFLOAT16;
  if (out->capability_major * 10 + out->capability_minor >= 89) out->dtypes |= BP_DTYPE_FLOAT8_E4M3 | BP_DTYPE_FLOAT8_E5M2;
  // Only a context knows the range, and cuStreamCreateWithPriority brings what lies outside into it.
  out->priority_greatest = out->capability_major >= 7 ? -5 : -1;
  out->compute_units = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  out->threads_per_unit = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  out->warp_size = device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  out->clock_khz = static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
}

void ask_cuda_about(const Library& cuda, const Gpus& gpus, uint64_t address, bp_pointer_info* out) {
  unsigned type = 0;
  int ordinal = -1;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  int which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* answers[] = {&type, &ordinal, &base, &bytes};
  // Of an address that it does not know CUDA answers with zeros.
  if (gpus.count() == 0 || cuda.cuPointerGetAttributes(4, which, answers, address) != CUDA_SUCCESS || type == 0) return;
  const bool on_device = type == CU_MEMORYTYPE_DEVICE && ordinal >= 0 && ordinal < gpus.count();
  if (!on_device && type != CU_MEMORYTYPE_HOST) return;
  out->kind = on_device ? BP_MEMORY_DEVICE : BP_MEMORY_PINNED;
  out->device = on_device ? ordinal : BP_HOST_DEVICE;
  out->base = base;
  out->bytes = bytes;
}

}  // namespace backplane::driver::cuda
