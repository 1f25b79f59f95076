// drivers/cuda/ipc.h: bp.ipc: CUDA's handles of memory and events, marked so that other bytes are refused.
#pragma once

#include <cstring>

#include <backplane/driver/ipc.h>

#include "gpus.h"

namespace backplane::driver::cuda {

/// What a bp_ipc_handle holds.
struct IpcName {
  char magic[8];   // kMemoryMagic or kEventMagic
  uint64_t bytes;  // of the memory
  char handle[64];
};
static_assert(sizeof(IpcName) <= sizeof(bp_ipc_handle));
inline constexpr char kMemoryMagic[8] = "bp-cumm", kEventMagic[8] = "bp-cuev";

template <class CudaHandle>
bp_ipc_handle packed(const char (&magic)[8], uint64_t bytes, const CudaHandle& handle) {
  IpcName name{};
  std::memcpy(name.magic, magic, sizeof name.magic);
  name.bytes = bytes;
  std::memcpy(name.handle, handle.reserved, sizeof name.handle);
  bp_ipc_handle out{};
  std::memcpy(out.bytes, &name, sizeof name);
  return out;
}

template <class CudaHandle>
uint64_t unpack(const bp_ipc_handle& from, const char (&magic)[8], CudaHandle& handle) {
  IpcName name;
  std::memcpy(&name, from.bytes, sizeof name);
  need(std::memcmp(name.magic, magic, sizeof name.magic) == 0, "ipc: these bytes are no such handle");
  std::memcpy(handle.reserved, name.handle, sizeof name.handle);
  return name.bytes;
}

inline bp_ipc_handle export_memory(Gpu& gpu, uint64_t address) {
  if (gpu.vmm->find(address)) throw Error(BP_UNSUPPORTED, "ipc: memory that is mapped into a reservation is not shared");
  const uint64_t bytes = gpu.memory->bytes_of(address, "ipc.memory_export");
  CUipcMemHandle handle;
  gpu.device.check(gpu.cuda.cuIpcGetMemHandle(&handle, address), "cuIpcGetMemHandle");
  return packed(kMemoryMagic, bytes, handle);
}

inline uint64_t open_memory(Gpu& gpu, const bp_ipc_handle& from) {
  CUipcMemHandle handle;
  const uint64_t bytes = unpack(from, kMemoryMagic, handle);
  CUdeviceptr address = 0;
  gpu.device.check(gpu.cuda.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  gpu.memory->adopt(address, bytes);
  return address;
}

inline bp_ipc_handle export_event(Gpu& gpu, CUevent event) {
  CUipcEventHandle handle;
  gpu.device.check(gpu.cuda.cuIpcGetEventHandle(&handle, event), "cuIpcGetEventHandle");
  return packed(kEventMagic, 0, handle);
}

inline Event* open_event(Gpu& gpu, const bp_ipc_handle& from) {
  CUipcEventHandle handle;
  unpack(from, kEventMagic, handle);
  CUevent event = nullptr;
  gpu.device.check(gpu.cuda.cuIpcOpenEventHandle(&event, handle), "cuIpcOpenEventHandle");
  return gpu.device.events.add(std::make_unique<Event>(event, true).release());
}

}  // namespace backplane::driver::cuda
