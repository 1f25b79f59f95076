// drivers/sim/devices.h: what the entries of every group share: the devices' memory, their streams, and the work that is queued there.
//
// The driver derives from it; each group's entries are an object that refers to it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

#include "../engine/engine.h"
#include "ipc.h"
#include "memory.h"
#include "settings.h"

namespace backplane::driver::sim {

class Devices : public Engine {
 public:
  explicit Devices(const Host& host)
      : settings(host.config()),
        faults(*settings.faults),
        memories_(static_cast<size_t>(settings.devices)),
        peers_(memories_.size() * memories_.size()) {
    configure({"sim", settings.devices, settings.stream == StreamKind::async, settings.streams, make_shared_event});
  }
  /// When the driver has ended all work.
  ~Devices() {
    for (auto& memory : memories_) delete memory.load();
  }

  SimMemory& memory(int32_t device) {
    check_index(device);
    SimMemory* found = memories_[static_cast<size_t>(device)].load(std::memory_order_acquire);
    return found ? *found : make_memory(device);
  }

  /// The device's, if it was ever used; else NULL.
  const SimMemory* known_memory(int32_t device) const { return memories_[static_cast<size_t>(device)].load(std::memory_order_acquire); }

  std::atomic<bool>& access(int32_t device, int32_t peer) {
    return peers_[static_cast<size_t>(device) * static_cast<size_t>(settings.devices) + static_cast<size_t>(peer)];
  }

  /// Where work of a device reaches a live address, its own or a peer's; nullptr for any other.
  void* reach(int32_t device, uint64_t address) {
    if (void* at = memory(device).map(address)) return at;
    for (int32_t peer = 0; peer < settings.devices; ++peer) {
      if (peer == device || !access(device, peer).load(std::memory_order_relaxed)) continue;
      if (void* at = memory(peer).map(address)) return at;
    }
    return nullptr;
  }

  /// Queues work, or a capture takes it: then its runs are by `again`, if that is given, and `destroy` comes behind the last.
  void queue_job(Stream& on, const Work& what, const Job& job, void (*again)(Job&, int32_t) = nullptr, void (*destroy)(Job&) = nullptr) {
    if (captures().any()) [[unlikely]] {
      RecordedJob recorded(job, destroy, what);
      if (again) recorded.job.run = again;
      if (captures().add(&on, std::move(recorded))) return;
      recorded.destroy = nullptr;  // it is queued, and its run ends it
    }
    on.submit(job, record(on, what));
  }
  Recorder::Owned record(Stream& on, const Work& what) {
    EngineDevice& device = on.device();
    return recorder.queue(what, device.index(), &on == &device.default_stream() ? nullptr : &on);
  }

  std::chrono::nanoseconds delay() { return faults.delays() ? std::chrono::nanoseconds(faults.next_delay()) : std::chrono::nanoseconds(0); }

  /// What a copy takes beyond the copying.
  std::chrono::nanoseconds time_of(int32_t dst_device, int32_t src_device, uint64_t bytes) {
    const bool crosses = dst_device != src_device;  // the host is one more
    return delay() + (crosses && faults.slow_links() ? faults.on_link(bytes) : std::chrono::nanoseconds(0));
  }

  /// The stream sleeps for so long before its next work.
  void pause(Stream& on, std::chrono::nanoseconds time) {
    if (time.count() == 0) [[likely]]
      return;
    queue_job(on, {}, job_of([time](int32_t status) {
                if (status == BP_OK) std::this_thread::sleep_for(time);
              }));
  }

  const Settings settings;
  FaultInjection& faults;  // in settings
  Recorder recorder;

 private:
  SimMemory& make_memory(int32_t device) {
    at(device);
    std::lock_guard lock(make_mutex_);
    auto& slot = memories_[static_cast<size_t>(device)];
    if (!slot.load()) slot.store(new SimMemory(device, settings.kind, settings.memory, faults.strict()), std::memory_order_release);
    return *slot.load();
  }

  std::vector<std::atomic<SimMemory*>> memories_;
  std::vector<std::atomic<bool>> peers_;  // [device * devices + peer]
  std::mutex make_mutex_;
};

}  // namespace backplane::driver::sim
