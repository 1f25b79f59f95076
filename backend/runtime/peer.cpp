// runtime/peer.cpp: queries bp.peer once for each pair of devices.
#include "runtime/peer.h"

#include <array>
#include <atomic>

#include "runtime/device.h"
#include "runtime/driver.h"

namespace backplane {
namespace peer_impl {
namespace {

enum class Access : uint8_t { unknown, on, impossible };

std::atomic<Access>& access_of(c10::DeviceIndex device, c10::DeviceIndex peer) {
  static auto* table = new std::array<std::atomic<Access>, size_t{kMaxDevices} * kMaxDevices>();
  return (*table)[static_cast<size_t>(device) * kMaxDevices + static_cast<size_t>(peer)];
}

}  // namespace
}  // namespace peer_impl

bool can_access_peer(c10::DeviceIndex device, c10::DeviceIndex peer) {
  check_device(device);
  check_device(peer);
  const Driver* d = loaded_driver();
  if (device == peer || d == nullptr || d->peer == nullptr) return false;
  int32_t answer = 0;
  const int32_t status = detail::invoke<&bp_peer::can_access>(*d, driver_index(device), driver_index(peer), &answer);
  if (status != BP_OK) throw_status(status, detail::slot_name<&bp_peer::can_access>().c_str(), device, last_error_text());
  return answer != 0;
}

bool enable_peer_access(c10::DeviceIndex device, c10::DeviceIndex peer) {
  using peer_impl::Access;
  std::atomic<Access>& known = peer_impl::access_of(device, peer);
  Access access = known.load(std::memory_order_acquire);
  if (access == Access::unknown) {
    access = Access::impossible;
    if (can_access_peer(device, peer)) {
      call<&bp_peer::enable>(device, driver_index(peer));
      access = Access::on;
    }
    known.store(access, std::memory_order_release);
  }
  return access == Access::on;
}

}  // namespace backplane
