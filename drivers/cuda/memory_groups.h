// drivers/cuda/memory_groups.h: the entries of bp.vmm, bp.ipc and bp.host_view. All: any thread; they throw Error.
#pragma once

#include <backplane/driver/host_view.h>
#include <backplane/driver/vmm.h>

#include "gpus.h"
#include "ipc.h"

namespace backplane::driver::cuda {

struct VmmEntries {
  const Gpus& gpus;

  void granularity(int32_t device, uint64_t* out) {
    Gpu& gpu = gpus.at(device);
    need(out, "vmm.granularity: out must not be NULL");
    *out = gpu.vmm->granularity();
  }
  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    const Use gpu(gpus, device);
    need(out, "vmm.reserve: out must not be NULL");
    *out = gpu->vmm->reserve(bytes);
  }
  void release(int32_t device, uint64_t address, uint64_t bytes) { Release(gpus, device)->vmm->release(address, bytes); }
  void map(int32_t device, uint64_t address, uint64_t bytes) { Use(gpus, device)->vmm->map(address, bytes); }
  void unmap(int32_t device, uint64_t address, uint64_t bytes) { Release(gpus, device)->vmm->unmap(address, bytes); }
};

struct IpcEntries {
  const Gpus& gpus;

  void memory_export(int32_t device, uint64_t address, bp_ipc_handle* out) {
    const Use gpu(gpus, device);
    need(out, "ipc.memory_export: out must not be NULL");
    *out = export_memory(*gpu, address);
  }
  void memory_open(int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    const Use gpu(gpus, device);
    need(handle && out, "ipc.memory_open: handle and out must not be NULL");
    *out = open_memory(*gpu, *handle);
  }
  void memory_close(int32_t device, uint64_t address) { Release(gpus, device)->memory->disown(address); }
  void event_export(int32_t device, bp_event* event, bp_ipc_handle* out) {
    const Use gpu(gpus, device);
    need(event && out, "ipc.event_export: event and out must not be NULL");
    *out = export_event(*gpu, event_of(event).native);
  }
  void event_open(int32_t device, const bp_ipc_handle* handle, bp_event** out) {
    const Use gpu(gpus, device);
    need(handle && out, "ipc.event_open: handle and out must not be NULL");
    *out = reinterpret_cast<bp_event*>(open_event(*gpu, *handle));
  }
};

/// Of managed memory: the address is the host's, too.
struct HostViewEntries {
  const Gpus& gpus;

  void map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    const Use gpu(gpus, device);
    need(out && access >= BP_ACCESS_READ && access <= BP_ACCESS_READ_WRITE, "host_view.map: out must not be NULL, access BP_ACCESS_*");
    gpu->memory->range(address, bytes, "host_view.map");
    *out = reinterpret_cast<void*>(address);
  }
  void unmap(int32_t device, uint64_t address, void* memory) {
    gpus.at(device);
    need(reinterpret_cast<uint64_t>(memory) == address, "host_view.unmap: no view of that address");
  }
};

}  // namespace backplane::driver::cuda
