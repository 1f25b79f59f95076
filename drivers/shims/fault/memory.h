// drivers/shims/fault/memory.h: what is intercepted of memory: of devices, pinned, and mapped by bp.vmm.
#pragma once

#include <string>

#include "below.h"

namespace backplane::driver::fault {

class MemoryFaults : public virtual Below {
 public:
  using Below::Below;

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    DeviceFault& state = alive(device);
    if (strikes(settings_.alloc, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.alloc.text("alloc: no room for " + std::to_string(bytes) + " bytes"));
    }
    pass(&bp_driver::alloc, device, bytes, flags, out);
    state.check();
  }

  void free(int32_t device, uint64_t address) {
    if (state(device).sticky() == BP_DEVICE_LOST) {
      below_.free(below_.self, device, address);
      return;
    }
    if (strikes(settings_.free, device)) throw Error(BP_INTERNAL, settings_.free.text("free: the memory could not be returned"));
    pass(&bp_driver::free, device, address);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (strikes(settings_.host_alloc, settings_.device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.host_alloc.text("host_alloc: no pinned memory for " + std::to_string(bytes) + " bytes"));
    }
    pass(&bp_driver::host_alloc, bytes, flags, out);
  }
  void host_free(void* ptr) { pass(&bp_driver::host_free, ptr); }
  void host_register(void* ptr, uint64_t bytes) { pass(&bp_driver::host_register, ptr, bytes); }
  void host_unregister(void* ptr) { pass(&bp_driver::host_unregister, ptr); }
  void pointer_info(uint64_t address, bp_pointer_info* out) {
    out->struct_size = sizeof *out;
    pass(&bp_driver::pointer_info, address, out);
  }
  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    state(device).check();
    pass(&bp_driver::memory_info, device, free_bytes, total_bytes);
  }

  void vmm_reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    alive(device);
    if (strikes(settings_.reserve, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.reserve.text("vmm.reserve: no addresses for " + std::to_string(bytes) + " bytes"));
    }
    pass_group<&bp_vmm::reserve>(device, bytes, out);
  }
  void vmm_release(int32_t device, uint64_t address, uint64_t bytes) { release_group<&bp_vmm::release>(device, address, bytes); }
  void vmm_map(int32_t device, uint64_t address, uint64_t bytes) {
    alive(device);
    if (strikes(settings_.map, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.map.text("vmm.map: no room for " + std::to_string(bytes) + " bytes"));
    }
    pass_group<&bp_vmm::map>(device, address, bytes);
  }
  void vmm_unmap(int32_t device, uint64_t address, uint64_t bytes) {
    if (state(device).sticky() != BP_DEVICE_LOST && strikes(settings_.unmap, device)) {
      throw Error(BP_INTERNAL, settings_.unmap.text("vmm.unmap: the memory could not be returned"));
    }
    release_group<&bp_vmm::unmap>(device, address, bytes);
  }
};

}  // namespace backplane::driver::fault
