// random/generator.h: the device generator: where it stands in its Philox sequence, which it may share with others. It lives on the host.
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

// Where a generator stands. Generators that were made by graphsafe_get_state, or given it by graphsafe_set_state, have one together, and
// each of them moves it for all. Any thread: generators that share it have a mutex_ each.
class PhiloxSequence {
 public:
  struct Place {
    uint64_t seed = c10::default_rng_seed_val;
    uint64_t offset = 0;  // in 32-bit numbers, a multiple of 4
  };

  Place place() const;
  void move_to(const Place& place);  // ValueError, and nothing moves, unless the offset is a multiple of 4
  PhiloxState take(uint64_t count);  // the next `count` numbers, rounded up to a multiple of 4

 private:
  mutable std::mutex mutex_;
  Place place_;
};

// Not thread safe by itself: callers hold mutex_ (see c10's GeneratorImpl), as torch does; philox_state and reserve take it themselves.
// A vendor derives from this class and registers it (extend.h). Override clone_impl in it, or its clones, and the generators that share its
// state, are of this class.
class PhiloxGenerator : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return kDevice; }

  void set_current_seed(uint64_t seed) override;  // the sequence begins anew: offset 0
  uint64_t current_seed() const override { return sequence_->place().seed; }
  uint64_t seed() override;                   // a non-deterministic one; returned
  void set_offset(uint64_t offset) override;  // in 32-bit numbers; ValueError unless a multiple of 4
  uint64_t get_offset() const override { return sequence_->place().offset; }

  // 16 bytes on the CPU: seed, offset (uint64, native order), CUDA's layout. set_state also takes the seed alone (8 bytes): offset 0.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Shared, not copied. set: from then on this generator and `other`, of the same device, stand at one place.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // Takes `count` numbers, rounded up to a multiple of 4, and returns where they begin. While the current stream captures a graph nothing
  // is taken: the state names device memory, and each run of the graph takes its own (random/graph_numbers.h).
  virtual PhiloxState take(uint64_t count);

 protected:
  PhiloxGenerator* clone_impl() const override;

 private:
  void refuse_in_capture(const char* what) const;

  std::shared_ptr<PhiloxSequence> sequence_ = std::make_shared<PhiloxSequence>();
};

// {seed, offset} of a range of `count` numbers, as philox_state: for work that is done on the host, such as the CPU fallback of a random
// operator, which seeds a CPU generator from both.
std::pair<uint64_t, uint64_t> reserve(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count);

}  // namespace backplane
