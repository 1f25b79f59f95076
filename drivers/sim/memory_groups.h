// drivers/sim/memory_groups.h: the entries of the groups about memory: bp.host_view, bp.peer, bp.vmm and bp.ipc.
#pragma once

#include <atomic>

#include <backplane/driver/host_view.h>
#include <backplane/driver/peer.h>
#include <backplane/driver/vmm.h>

#include "devices.h"
#include "ipc.h"

namespace backplane::driver::sim {

struct HostViewEntries {
  Devices& devices;

  void map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    devices.at(device).check();
    if (!out || access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) {
      throw Error(BP_INVALID_ARGUMENT, "host_view.map: out must not be NULL, access must be one of BP_ACCESS_*");
    }
    *out = devices.memory(device).range(address, bytes, "host_view.map");
  }
  void unmap(int32_t device, uint64_t address, void* ptr) {
    devices.check_index(device);
    if (reinterpret_cast<uint64_t>(ptr) != address) throw Error(BP_INVALID_ARGUMENT, "host_view.unmap: no view of that address");
  }
};

struct PeerEntries {
  Devices& devices;

  void can_access(int32_t device, int32_t peer, int32_t* out) {
    devices.check_index(device);
    devices.check_index(peer);
    need(out, "peer.can_access: out");
    *out = 1;
  }
  void enable(int32_t device, int32_t peer) {
    devices.check_index(device);
    devices.check_index(peer);
    devices.access(device, peer).store(true, std::memory_order_relaxed);
  }
};

struct VmmEntries {
  Devices& devices;

  void granularity(int32_t device, uint64_t* out) {
    devices.check_index(device);
    need(out, "vmm.granularity: out");
    *out = SimMemory::kGranularity;
  }
  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    devices.at(device).check();
    if (!out || bytes == 0 || bytes % SimMemory::kGranularity != 0) {
      throw Error(BP_INVALID_ARGUMENT, "vmm.reserve: out must not be NULL, bytes must be a multiple of the granularity");
    }
    *out = devices.memory(device).reserve(bytes);
  }
  void release(int32_t device, uint64_t address, uint64_t bytes) { devices.memory(device).release(address, bytes); }
  void map(int32_t device, uint64_t address, uint64_t bytes) {
    devices.at(device).check();
    devices.memory(device).map_range(address, bytes);
  }
  void unmap(int32_t device, uint64_t address, uint64_t bytes) { devices.memory(device).unmap_range(address, bytes); }
};

struct IpcEntries {
  Devices& devices;

  void memory_export(int32_t device, uint64_t address, bp_ipc_handle* out) {
    need(out, "ipc.memory_export: out");
    *out = export_memory(devices.memory(device), address);
  }
  void memory_open(int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    devices.at(device).check();
    need(handle && out, "ipc.memory_open: handle and out");
    *out = open_memory(devices.memory(device), *handle);
  }
  void memory_close(int32_t device, uint64_t address) { devices.memory(device).disown(address); }
  void event_export(int32_t device, bp_event* event, bp_ipc_handle* out) {
    need(event && out, "ipc.event_export: event and out");
    *out = sim::export_event(devices.shared_event(device, event));
  }
  void event_open(int32_t device, const bp_ipc_handle* handle, bp_event** out) {
    devices.check_index(device);
    need(handle && out, "ipc.event_open: handle and out");
    *out = devices.open_event(device, open_shared_event(*handle));
  }
};

}  // namespace backplane::driver::sim
