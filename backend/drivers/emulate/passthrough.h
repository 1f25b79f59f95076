// drivers/emulate/passthrough.h: the groups of the driver below that pass through the shim, under its lock: host_view, peer, vmm.
#pragma once

#include <optional>

#include <backplane/driver/host_view.h>
#include <backplane/driver/peer.h>
#include <backplane/driver/vmm.h>

#include "inner.h"

namespace backplane::driver::emulate {

/// A base class of the shim, so that its methods are the entries of the groups that the shim offers.
class Passthrough {
 public:
  void view_map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    inner_.group(view_below_->head, view_below_->map, device, address, bytes, access, out);
  }
  void view_unmap(int32_t device, uint64_t address, void* ptr) {
    inner_.group(view_below_->head, view_below_->unmap, device, address, ptr);
  }

  void peer_can_access(int32_t device, int32_t peer, int32_t* out) {
    inner_.group(peer_below_->head, peer_below_->can_access, device, peer, out);
  }
  void peer_enable(int32_t device, int32_t peer) { inner_.group(peer_below_->head, peer_below_->enable, device, peer); }
  void peer_disable(int32_t device, int32_t peer) { inner_.group(peer_below_->head, peer_below_->disable, device, peer); }

  void vmm_granularity(int32_t device, uint64_t* out) { inner_.group(vmm_below_->head, vmm_below_->granularity, device, out); }
  void vmm_reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    check(device);
    inner_.group(vmm_below_->head, vmm_below_->reserve, device, bytes, out);
  }
  void vmm_release(int32_t device, uint64_t address, uint64_t bytes) {
    inner_.group(vmm_below_->head, vmm_below_->release, device, address, bytes);
  }
  void vmm_map(int32_t device, uint64_t address, uint64_t bytes) {
    check(device);
    inner_.group(vmm_below_->head, vmm_below_->map, device, address, bytes);
  }
  void vmm_unmap(int32_t device, uint64_t address, uint64_t bytes) {
    inner_.group(vmm_below_->head, vmm_below_->unmap, device, address, bytes);
  }

 protected:
  explicit Passthrough(const bp_driver* below) : inner_(below) {}
  ~Passthrough() = default;

  void find_passing() {
    view_below_ = inner_.find<bp_host_view>(BP_HOST_VIEW_ID, BP_HOST_VIEW_VERSION);
    peer_below_ = inner_.find<bp_peer>(BP_PEER_ID, BP_PEER_VERSION);
    vmm_below_ = inner_.find<bp_vmm>(BP_VMM_ID, BP_VMM_VERSION);
  }

  /// Throws if the device of the shim's own streams is in error: what takes memory says so, as alloc does.
  virtual void check(int32_t device) = 0;

  Inner inner_;
  std::optional<bp_host_view> view_below_;
  std::optional<bp_peer> peer_below_;
  std::optional<bp_vmm> vmm_below_;
};

}  // namespace backplane::driver::emulate
