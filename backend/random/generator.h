// random/generator.h: the device generator: a seed and an offset into its Philox sequence, nothing else. It lives on the host.
#pragma once

#include <ATen/core/Generator.h>
#include <backplane/random.h>
#include <c10/core/GeneratorImpl.h>

#include <optional>
#include <utility>

#include "runtime/device.h"

namespace backplane {

// Not thread safe by itself: callers hold mutex_ (see c10's GeneratorImpl), as torch does; philox_state and reserve take it themselves.
// A vendor derives from this class and registers it (extend.h). Override clone_impl in it, or its clones are of this class.
class PhiloxGenerator : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return kDevice; }

  void set_current_seed(uint64_t seed) override;  // the sequence begins anew: offset 0
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;                   // a non-deterministic one; returned
  void set_offset(uint64_t offset) override;  // in 32-bit numbers; ValueError unless a multiple of 4
  uint64_t get_offset() const override { return offset_; }

  // 16 bytes on the CPU: seed, offset (uint64, native order), CUDA's layout. set_state also takes the seed alone (8 bytes): offset 0.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Takes `count` numbers, rounded up to a multiple of 4, and returns where they begin.
  virtual PhiloxState take(uint64_t count);

 protected:
  PhiloxGenerator* clone_impl() const override;

 private:
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

// {seed, offset} of a range of `count` numbers, as philox_state: for work that is done on the host, such as the CPU fallback of a random
// operator, which seeds a CPU generator from both.
std::pair<uint64_t, uint64_t> reserve(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count);

}  // namespace backplane
