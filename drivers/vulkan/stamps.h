// drivers/vulkan/stamps.h: times of the device: timestamp queries, or the host's clock on a device that has none.
//
// The device copies each time into memory that the host reads: vkGetQueryPoolResults may wait for all of the device's work (lavapipe does).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "commands.h"

namespace backplane::driver::vulkan {

class Stamps;

/// A time that commands write. It lives until they have run and nobody asks for it any more.
class Stamp {
 public:
  /// pool: its number; of a device without timestamps there are none.
  Stamp(Stamps& owner, size_t pool, uint32_t index) : owner_(owner), pool_(pool), index_(index) {}
  ~Stamp();
  Stamp(const Stamp&) = delete;
  Stamp& operator=(const Stamp&) = delete;

  /// Behind the commands so far.
  void write(Commands& commands) const;
  /// Where no command writes it.
  void set(uint64_t ticks) { known_ = ticks; }

 private:
  friend class Stamps;
  Stamps& owner_;
  const size_t pool_;
  const uint32_t index_;
  std::atomic<uint64_t> known_{0};  // 0: a command writes it
};

class Stamps {
 public:
  explicit Stamps(Device& device) : device_(device) {}
  ~Stamps();
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  bool on_device() const;
  /// The clock, if the host can read it: 0: it cannot.
  uint64_t now() const;
  /// Throws Error.
  std::shared_ptr<Stamp> make();
  /// Nanoseconds from one to the other, both written.
  int64_t between(const Stamp& start, const Stamp& end);

 private:
  friend class Stamp;
  static constexpr uint32_t kOfPool = 256;

  struct Pool {
    std::shared_ptr<Buffer> times;  // 64 bits for each query
    VkQueryPool queries;
  };
  Pool pool_of(const Stamp& stamp);
  uint64_t ticks(const Stamp& stamp);

  Device& device_;
  std::mutex mutex_;
  std::vector<Pool> pools_;
  std::vector<std::pair<size_t, uint32_t>> free_;  // pool and query
};

}  // namespace backplane::driver::vulkan
