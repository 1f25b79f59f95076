// drivers/cuda/peer.h: bp.peer: direct access between two GPUs, for what CUDA allocates and for what is mapped (vmm.h).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "gpus.h"

namespace backplane::driver::cuda {

class Peers {
 public:
  explicit Peers(const Gpus& gpus) : gpus_(gpus) {}

  void can_access(int32_t device, int32_t peer, int32_t* out) const {
    need(out, "peer.can_access: out must not be NULL");
    *out = reaches(device, peer);
  }

  void enable(int32_t device, int32_t peer) {
    if (!reaches(device, peer)) {
      throw Error(BP_UNSUPPORTED,
                  "peer.enable: device " + std::to_string(device) + " has no way to the memory of device " + std::to_string(peer));
    }
    if (device == peer) return;
    const Use gpu(gpus_, device);
    Gpu& other = gpus_.at(peer);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (on_.count({device, peer})) return;
    const CUresult result = gpu->cuda.cuCtxEnablePeerAccess(other.device.context(), 0);
    // Others in the process may have switched it on, as torch.cuda does.
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) gpu.check(result, "cuCtxEnablePeerAccess");
    on_.insert({device, peer});
    other.vmm->give_access(gpu->device);
  }

 private:
  bool reaches(int32_t device, int32_t peer) const {
    Gpu &from = gpus_.at(device), &to = gpus_.at(peer);
    if (device == peer) return true;
    int can = 0;
    from.cuda.check(from.cuda.cuDeviceCanAccessPeer(&can, from.device.handle(), to.device.handle()), "cuDeviceCanAccessPeer");
    return can != 0;
  }

  const Gpus& gpus_;
  std::mutex mutex_;
  std::set<std::pair<int32_t, int32_t>> on_;
};

}  // namespace backplane::driver::cuda
