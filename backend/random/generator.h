// random/generator.h: the device generator: its offset in its Philox sequence, which generators may share. The state is on the host.
#pragma once

#include <ATen/core/Generator.h>
#include <backplane/random.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/device.h"

namespace backplane {

// The position of a generator. Generators that were created by graphsafe_get_state, or passed to graphsafe_set_state, share one, and each
// of them advances it for all. Any thread: the generators that share it have a mutex_ each.
class PhiloxSequence {
 public:
  struct Place {
    uint64_t seed = c10::default_rng_seed_val;
    uint64_t offset = 0;  // in 32-bit numbers, a multiple of 4
  };

  Place place() const;
  void move_to(const Place& place);  // ValueError, and no effect, unless the offset is a multiple of 4
  PhiloxState take(uint64_t count);  // the next `count` numbers, rounded up to a multiple of 4

 private:
  mutable std::mutex mutex_;
  Place place_;
};

// Not thread safe by itself: callers hold mutex_ (see c10's GeneratorImpl), as torch does; philox_state and reserve take it themselves. A
// vendor derives from this class and registers its own (extend.h). It must override clone_impl, so that clones, and generators that share
// its state, are of its class.
class PhiloxGenerator : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return kDevice; }

  void set_current_seed(uint64_t seed) override;  // restarts the sequence: offset 0
  uint64_t current_seed() const override { return sequence_->place().seed; }
  uint64_t seed() override;                   // sets and returns a non-deterministic seed
  void set_offset(uint64_t offset) override;  // in 32-bit numbers; ValueError unless a multiple of 4
  uint64_t get_offset() const override { return sequence_->place().offset; }

  // 16 bytes on the CPU: seed, offset (uint64, native order), as for CUDA. set_state also accepts the seed alone (8 bytes): offset 0.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Shared, not copied. set: from then on this generator and `other`, of the same device, share one position.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // Takes `count` numbers, rounded up to a multiple of 4, and returns their position. While the current stream captures a graph no numbers
  // are taken: the state contains device addresses, and each run of the graph takes its own numbers (random/graph_numbers.h).
  virtual PhiloxState take(uint64_t count);

 protected:
  PhiloxGenerator* clone_impl() const override;

 private:
  void refuse_in_capture(const char* what) const;

  std::shared_ptr<PhiloxSequence> sequence_ = std::make_shared<PhiloxSequence>();
};

// {seed, offset} of a range of `count` numbers, as philox_state: for work on the host, such as the CPU fallback of a random operator, which
// seeds a CPU generator with both.
std::pair<uint64_t, uint64_t> reserve(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count);

}  // namespace backplane
