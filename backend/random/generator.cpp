// random/generator.cpp: PhiloxGenerator, the default generator of each device, and how operators take numbers from it.
#include "random/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstring>
#include <mutex>

#include "random/graph_numbers.h"
#include "runtime/overrides.h"
#include "runtime/stream.h"

namespace backplane {

PhiloxSequence::Place PhiloxSequence::place() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return place_;
}

void PhiloxSequence::move_to(const Place& place) {
  TORCH_CHECK_VALUE(place.offset % 4 == 0, "The offset of a Philox generator must be a multiple of 4, got ", place.offset, ".");
  const std::lock_guard<std::mutex> lock(mutex_);
  place_ = place;
}

PhiloxState PhiloxSequence::take(uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  PhiloxState state;
  state.seed = place_.seed;
  state.offset = place_.offset;
  place_.offset += (count + 3) / 4 * 4;
  return state;
}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kDevice, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  refuse_in_capture("The seed");
  sequence_->move_to({seed, 0});
}

uint64_t PhiloxGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);  // 64 bits
  set_current_seed(random);
  return random;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  refuse_in_capture("The offset");
  sequence_->move_to({current_seed(), offset});
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  std::array<uint64_t, 2> words{0, 0};
  const auto bytes = static_cast<size_t>(state.numel());
  TORCH_CHECK_VALUE(bytes == sizeof(words) || bytes == sizeof(uint64_t), "The state of a generator on ", device(),
                    " has 16 bytes (seed, offset) or 8 (seed), got ", bytes, ". Pass what get_state() of such a generator returned.");
  std::memcpy(words.data(), state.data(), bytes);
  refuse_in_capture("The state");
  sequence_->move_to({words[0], words[1]});
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  const PhiloxSequence::Place place = sequence_->place();
  const std::array<uint64_t, 2> words{place.seed, place.offset};
  at::TensorBase state = at::detail::empty_cpu({static_cast<int64_t>(sizeof(words))}, c10::ScalarType::Byte);
  std::memcpy(state.mutable_data_ptr(), words.data(), sizeof(words));
  return state.getIntrusivePtr();
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  TORCH_CHECK(other->device() == device(), "Expected a generator on '", device().str(), "' to share its state, but found one on '",
              other->device().str(), "'. Make it with graphsafe_get_state() or clone_state() of a generator on that device.");
  auto* const philox = dynamic_cast<PhiloxGenerator*>(other.get());
  TORCH_CHECK_NOT_IMPLEMENTED(philox != nullptr, "The generator on ", device().str(),
                              " is of a class that does not derive from backplane::PhiloxGenerator, and has no state to share.");
  sequence_ = philox->sequence_;
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  c10::intrusive_ptr<c10::GeneratorImpl> shared = clone();  // of the vendor's class, if there is one
  static_cast<PhiloxGenerator&>(*shared).sequence_ = sequence_;
  return shared;
}

PhiloxState PhiloxGenerator::take(uint64_t count) {
  if (C10_UNLIKELY(anything_captures())) {
    if (const uint64_t capture = capture_id(current_stream(device().index()))) {
      return GraphNumbers::of(capture).take(device().index(), sequence_, count);
    }
  }
  return sequence_->take(count);
}

void PhiloxGenerator::refuse_in_capture(const char* what) const {
  TORCH_CHECK(capture_id(current_stream(device().index())) == 0, what, " of a generator on ", device(),
              " cannot be set while the current stream is capturing a graph: each run continues from the generator's offset at that time. "
              "Set it before "
              "replay().");
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto copy = c10::make_intrusive<PhiloxGenerator>(device().index());
  copy->sequence_->move_to(sequence_->place());
  return copy.release();
}

namespace random_impl {
namespace {

at::Generator make_generator(c10::DeviceIndex device) { return at::make_generator<PhiloxGenerator>(resolve_device(device)); }

// One per device, created at first use with a non-deterministic seed, and never destroyed: callers keep references.
const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Entry {
    std::once_flag made;
    at::Generator generator;
  };
  static auto* const entries = new std::array<Entry, kMaxDevices>();
  Entry& entry = entries->at(resolve_device(device));
  std::call_once(entry.made, [&] {
    at::Generator generator = overrides().make_generator.get()(resolve_device(device));
    generator.seed();
    entry.generator = generator;
  });
  return entry.generator;
}

struct Register {
  Register() {
    overrides().make_generator.core = make_generator;
    overrides().default_generator.core = default_generator;
  }
};
const Register plug;

}  // namespace
}  // namespace random_impl

PhiloxState philox_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator chosen = given ? *generator : overrides().default_generator.get()(device);
  TORCH_CHECK(chosen.device().type() == kDevice, "Expected a '", c10::Device(kDevice).str(), "' generator but found one on '",
              chosen.device().str(), "'. Make it with torch.Generator(device='", c10::Device(kDevice).str(), "').");
  auto* const philox = dynamic_cast<PhiloxGenerator*>(chosen.unsafeGetGeneratorImpl());
  TORCH_CHECK_NOT_IMPLEMENTED(philox != nullptr, "This operator takes its numbers from a Philox generator, but the generator on ",
                              chosen.device().str(), " is of a class that does not derive from backplane::PhiloxGenerator.");
  const std::lock_guard<std::mutex> lock(philox->mutex_);
  return philox->take(count);
}

std::pair<uint64_t, uint64_t> reserve(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count) {
  const PhiloxState state = philox_state(generator, device, count);
  TORCH_CHECK(!state.in_graph(), "A random operator that is computed on the host cannot be recorded into a graph.");
  return {state.seed, state.offset};
}

}  // namespace backplane
