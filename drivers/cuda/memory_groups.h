// drivers/cuda/memory_groups.h: the entries of bp.vmm, bp.ipc and bp.host_view. All: any thread; they throw Error.
#pragma once

#include <backplane/driver/host_view.h>
#include <backplane/driver/vmm.h>

#include "gpus.h"
#include "ipc.h"

namespace backplane::driver::cuda {

class VmmEntries {
 public:
  VmmEntries(const Library& cuda, const Gpus& gpus) : cuda_(cuda), gpus_(gpus) {}

  void granularity(int32_t device, uint64_t* out) {
    Gpu& gpu = gpus_.at(device);
    need(out, "vmm.granularity: out must not be NULL");
    *out = gpu.vmm->granularity();
  }
  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    const Use gpu(cuda_, gpus_, device);
    need(out, "vmm.reserve: out must not be NULL");
    *out = gpu->vmm->reserve(bytes);
  }
  void release(int32_t device, uint64_t address, uint64_t bytes) { Release(cuda_, gpus_, device)->vmm->release(address, bytes); }
  void map(int32_t device, uint64_t address, uint64_t bytes) { Use(cuda_, gpus_, device)->vmm->map(address, bytes); }
  void unmap(int32_t device, uint64_t address, uint64_t bytes) { Release(cuda_, gpus_, device)->vmm->unmap(address, bytes); }

 private:
  const Library& cuda_;
  const Gpus& gpus_;
};

class IpcEntries {
 public:
  IpcEntries(const Library& cuda, const Gpus& gpus) : cuda_(cuda), gpus_(gpus) {}

  void memory_export(int32_t device, uint64_t address, bp_ipc_handle* out) {
    const Use gpu(cuda_, gpus_, device);
    need(out, "ipc.memory_export: out must not be NULL");
    *out = export_memory(cuda_, *gpu, address);
  }
  void memory_open(int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    const Use gpu(cuda_, gpus_, device);
    need(handle && out, "ipc.memory_open: handle and out must not be NULL");
    *out = open_memory(cuda_, *gpu, *handle);
  }
  void memory_close(int32_t device, uint64_t address) { Release(cuda_, gpus_, device)->memory->disown(address); }
  void event_export(int32_t device, bp_event* event, bp_ipc_handle* out) {
    const Use gpu(cuda_, gpus_, device);
    need(event && out, "ipc.event_export: event and out must not be NULL");
    *out = export_event(cuda_, *gpu, event_of(event).native);
  }
  void event_open(int32_t device, const bp_ipc_handle* handle, bp_event** out) {
    const Use gpu(cuda_, gpus_, device);
    need(handle && out, "ipc.event_open: handle and out must not be NULL");
    *out = reinterpret_cast<bp_event*>(open_event(cuda_, *gpu, *handle));
  }

 private:
  const Library& cuda_;
  const Gpus& gpus_;
};

/// Of managed memory: the address is the host's, too.
class HostViewEntries {
 public:
  HostViewEntries(const Library& cuda, const Gpus& gpus) : cuda_(cuda), gpus_(gpus) {}

  void map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    const Use gpu(cuda_, gpus_, device);
    need(out && access >= BP_ACCESS_READ && access <= BP_ACCESS_READ_WRITE, "host_view.map: out must not be NULL, access BP_ACCESS_*");
    gpu->memory->range(address, bytes, "host_view.map");
    *out = reinterpret_cast<void*>(address);
  }
  void unmap(int32_t device, uint64_t address, void* memory) {
    gpus_.at(device);
    need(reinterpret_cast<uint64_t>(memory) == address, "host_view.unmap: no view of that address");
  }

 private:
  const Library& cuda_;
  const Gpus& gpus_;
};

}  // namespace backplane::driver::cuda
