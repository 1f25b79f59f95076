// aten/attention_parts.cpp: shared heads, and dropout that the backward draws again.
#include "aten/attention_parts.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <backplane/philox.h>

#include <mutex>

#include "random/generator.h"

namespace backplane::attention_parts {

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

at::Tensor dropout_factors(const at::Tensor& weights, double p, int64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(weights.device()).clone();
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(static_cast<uint64_t>(seed));
  }
  at::Tensor factors = at::empty_like(weights);
  factors.bernoulli_(1 - p, generator);
  return p == 1 ? factors : factors.div_(1 - p);
}

int64_t draw_seed(c10::DeviceIndex device) {
  const auto [seed, offset] = reserve(std::nullopt, device, 2);
  Philox numbers(seed, offset);
  const uint64_t low = numbers();
  return static_cast<int64_t>(low | static_cast<uint64_t>(numbers()) << 32);
}

}  // namespace backplane::attention_parts
