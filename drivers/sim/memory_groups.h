// drivers/sim/memory_groups.h: the entries of the groups about memory: bp.host_view, bp.peer, bp.vmm and bp.ipc.
#pragma once

#include <atomic>

#include <backplane/driver/host_view.h>
#include <backplane/driver/peer.h>
#include <backplane/driver/vmm.h>

#include "devices.h"
#include "ipc.h"

namespace backplane::driver::sim {

class MemoryGroupEntries : public virtual Devices {
 public:
  using Devices::Devices;

  // bp.host_view

  void view_map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    at(device).check();
    if (!out || access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) {
      throw Error(BP_INVALID_ARGUMENT, "host_view.map: out must not be NULL, access must be one of BP_ACCESS_*");
    }
    *out = memory(device).range(address, bytes, "host_view.map");
  }

  void view_unmap(int32_t device, uint64_t address, void* ptr) {
    check_index(device);
    if (reinterpret_cast<uint64_t>(ptr) != address) throw Error(BP_INVALID_ARGUMENT, "host_view.unmap: no view of that address");
  }

  // bp.peer

  void peer_can_access(int32_t device, int32_t peer, int32_t* out) {
    check_index(device);
    check_index(peer);
    if (!out) throw Error(BP_INVALID_ARGUMENT, "peer.can_access: out must not be NULL");
    *out = 1;
  }
  void peer_enable(int32_t device, int32_t peer) {
    check_index(device);
    check_index(peer);
    access(device, peer).store(true, std::memory_order_relaxed);
  }

  // bp.vmm

  void vmm_granularity(int32_t device, uint64_t* out) {
    check_index(device);
    if (!out) throw Error(BP_INVALID_ARGUMENT, "vmm.granularity: out must not be NULL");
    *out = SimMemory::kGranularity;
  }
  void vmm_reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    at(device).check();
    if (!out || bytes == 0 || bytes % SimMemory::kGranularity != 0) {
      throw Error(BP_INVALID_ARGUMENT, "vmm.reserve: out must not be NULL, bytes must be a multiple of the granularity");
    }
    *out = memory(device).reserve(bytes);
  }
  void vmm_release(int32_t device, uint64_t address, uint64_t bytes) { memory(device).release(address, bytes); }
  void vmm_map(int32_t device, uint64_t address, uint64_t bytes) {
    at(device).check();
    memory(device).map_range(address, bytes);
  }
  void vmm_unmap(int32_t device, uint64_t address, uint64_t bytes) { memory(device).unmap_range(address, bytes); }

  // bp.ipc

  void ipc_memory_export(int32_t device, uint64_t address, bp_ipc_handle* out) {
    need(out, "ipc.memory_export: out");
    *out = export_memory(memory(device), address);
  }
  void ipc_memory_open(int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    at(device).check();
    need(handle && out, "ipc.memory_open: handle and out");
    *out = open_memory(memory(device), *handle);
  }
  void ipc_memory_close(int32_t device, uint64_t address) { memory(device).disown(address); }
  void ipc_event_export(int32_t device, bp_event* event, bp_ipc_handle* out) {
    need(event && out, "ipc.event_export: event and out");
    *out = export_event(shared_event(device, event));
  }
  void ipc_event_open(int32_t device, const bp_ipc_handle* handle, bp_event** out) {
    check_index(device);
    need(handle && out, "ipc.event_open: handle and out");
    *out = open_event(device, open_shared_event(*handle));
  }
};

}  // namespace backplane::driver::sim
