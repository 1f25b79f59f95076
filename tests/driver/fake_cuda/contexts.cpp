// tests/driver/fake_cuda/contexts.cpp: devices and contexts.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

thread_local ContextObject* current_context = nullptr;

bool known(CUdevice device) { return device >= 0 && device < static_cast<int>(state().contexts.size()); }

}  // namespace

CUresult current(ContextObject** out) {
  const std::lock_guard lock(state().mutex);
  if (!current_context || current_context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *out = current_context;
  return current_context->error;
}

FAKE(cuDeviceGetCount, int* count) {
  ENTER();
  *count = static_cast<int>(state().contexts.size());
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGet, CUdevice* device, int ordinal) {
  ENTER();
  if (!known(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetName, char* name, int bytes, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(bytes), "Fake GPU %d", device);
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetPCIBusId, char* text, int bytes, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", device + 1);
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetUuid_v2, CUuuid* uuid, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "fake-cuda-uuid-", 15);
  uuid->bytes[15] = static_cast<char>('a' + device);
  return CUDA_SUCCESS;
}

FAKE(cuDeviceTotalMem_v2, size_t* bytes, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device_bytes();
  return CUDA_SUCCESS;
}

FAKE(cuDeviceGetAttribute, int* value, int attribute, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return *value = 32, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return *value = 1500000, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return *value = 4, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return *value = 2048, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return *value = capability() / 10, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return *value = capability() % 10, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return *value = 227 << 10, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return *value = 1, CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE(cuDeviceCanAccessPeer, int* can, CUdevice device, CUdevice peer) {
  ENTER();
  if (!known(device) || !known(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

FAKE(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(state().mutex);
  ContextObject& made = *state().contexts[static_cast<size_t>(device)];
  if (made.retained++ == 0) made.legacy = std::make_unique<StreamObject>(made);
  *context = &made;
  return CUDA_SUCCESS;
}

// The last release destroys what is left in the context.
FAKE(cuDevicePrimaryCtxRelease_v2, CUdevice device) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  ContextObject& context = *state().contexts[static_cast<size_t>(device)];
  {
    const std::lock_guard lock(state().mutex);
    if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context.retained > 0) return CUDA_SUCCESS;
  }
  context.legacy.reset();
  context.streams.clear();
  context.peers.clear();
  context.error = CUDA_SUCCESS;
  release_context(context);
  return CUDA_SUCCESS;
}

FAKE(cuDevicePrimaryCtxGetState, CUdevice device, unsigned* flags, int* active) {
  ENTER();
  if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = state().contexts[static_cast<size_t>(device)]->retained > 0;
  return CUDA_SUCCESS;
}

FAKE(cuCtxGetCurrent, CUcontext* context) {
  ENTER();
  *context = current_context;
  return CUDA_SUCCESS;
}

FAKE(cuCtxSetCurrent, CUcontext context) {
  ENTER();
  current_context = context;
  return CUDA_SUCCESS;
}

FAKE(cuCtxEnablePeerAccess, CUcontext peer, unsigned) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  return context->peers.insert(peer->ordinal).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

}  // namespace backplane::driver::cuda
