// aten/attention_parts.cpp: shared heads, and dropout that the backward draws again.
#include "aten/attention_parts.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <backplane/signature.h>

#include <mutex>
#include <utility>

#include "random/generator.h"
#include "runtime/capture.h"
#include "runtime/stream.h"

namespace backplane::attention_parts {
namespace {

// A generator for one call in a capture, whose place the kernel reads on the device.
class SavedPlace : public PhiloxGenerator {
 public:
  explicit SavedPlace(DropoutPlace place) : PhiloxGenerator(place.seed.device().index()), place_(std::move(place)) {}

  PhiloxState take(uint64_t) override {
    PhiloxState state;
    state.seed_address = reinterpret_cast<const uint64_t*>(place_.seed.const_data_ptr<int64_t>());
    state.offset_address = reinterpret_cast<const uint64_t*>(place_.offset.const_data_ptr<int64_t>());
    return state;
  }

 private:
  DropoutPlace place_;
};

}  // namespace

at::Tensor for_every_head(const at::Tensor& tensor, const at::Tensor& query) {
  const int64_t heads = tensor.size(1);
  if (heads == query.size(1)) return tensor;
  const at::Tensor shared = tensor.unsqueeze(2).expand({tensor.size(0), heads, query.size(1) / heads, tensor.size(2), tensor.size(3)});
  return shared.reshape({tensor.size(0), query.size(1), tensor.size(2), tensor.size(3)});
}

at::Tensor sum_over_sharers(const at::Tensor& gradient, int64_t heads) {
  if (heads == gradient.size(1)) return gradient;
  return gradient.reshape({gradient.size(0), heads, gradient.size(1) / heads, gradient.size(2), gradient.size(3)}).sum(2);
}

DropoutPlace take_dropout(c10::DeviceIndex device, int64_t count) {
  if (is_capturing(current_stream(device))) {
    static const auto take_numbers = detail::find_operator("backplane::take_numbers").typed<at::Tensor(c10::SymInt, int64_t)>();
    const at::Tensor place = take_numbers.call(count, device);
    return {place.select(0, 0).clone(), place.select(0, 1).clone()};
  }
  const auto [seed, offset] = reserve(std::nullopt, device, static_cast<uint64_t>(count));
  const auto number = [](uint64_t value) { return at::scalar_tensor(static_cast<int64_t>(value), c10::TensorOptions(c10::kLong)); };
  return {number(seed), number(offset)};
}

at::Tensor dropout_factors(const at::Tensor& weights, double p, const DropoutPlace& place) {
  at::Generator generator;
  if (is_capturing(current_stream(weights.device().index()))) {
    const auto on_device = weights.options().dtype(c10::kLong);
    const auto moved = [&](const at::Tensor& number) { return number.is_cpu() ? at::full({}, number.item<int64_t>(), on_device) : number; };
    generator = at::make_generator<SavedPlace>(DropoutPlace{moved(place.seed), moved(place.offset)});
  } else {
    generator = at::globalContext().defaultGenerator(weights.device()).clone();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(static_cast<uint64_t>(place.seed.item<int64_t>()));
    generator.set_offset(static_cast<uint64_t>(place.offset.item<int64_t>()));
  }
  at::Tensor factors = at::empty_like(weights);
  factors.bernoulli_(1 - p, generator);
  return p == 1 ? factors : factors.div_(1 - p);
}

}  // namespace backplane::attention_parts
