// aten/embedding_bag.cpp: embedding_bag on the CPU, with the intermediate results that torch expects of a device.
//
// torch's CPU kernel omits the bag of each index where its fast path does not use it, and returns indices of maxima where there are none.
// Other devices of torch, and the fake tensors of all, always return the first, one size per offset, and the last only for the mode "max".
// The backward supports either.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

#include "dispatch/defaults.h"
#include "fallback/fallback.h"

namespace backplane::embedding_bag_impl {
namespace {

// weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
void embedding_bag(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr size_t kArguments = 9;
  constexpr int64_t kMax = 2;
  const auto first = stack->end() - kArguments;
  at::Tensor indices = first[1].toTensor(), offsets = first[2].toTensor();
  if (indices.scalar_type() != offsets.scalar_type()) {  // int32 and int64: widened as on the CPU
    indices = indices.to(c10::kLong);
    offsets = offsets.to(c10::kLong);
  }
  const int64_t mode = first[4].toInt();
  fallback::run(op, stack);
  c10::IValue* const results = &*(stack->end() - 4);  // output, offset2bag, bag_size, max_indices
  if (results[1].toTensor().numel() != indices.numel()) {
    const at::Tensor places = at::arange(indices.numel(), indices.options());
    results[1] = at::searchsorted(offsets, places, /*out_int32=*/indices.scalar_type() == c10::kInt, /*right=*/true).sub_(1);
  }
  const at::Tensor sizes = results[2].toTensor();
  if (sizes.sizes() != offsets.sizes()) {
    const at::Tensor all = indices.new_zeros(offsets.sizes());
    all.narrow(0, 0, sizes.numel()).copy_(sizes);
    results[2] = all;
  }
  if (mode != kMax) results[3] = indices.new_empty({0});
}

const Defaults defaults([](DefaultKernels& m) {
  if (!fallback::is_wanted()) return;
  for (const char* name : {"_embedding_bag", "_embedding_bag_forward_only"}) m.impl_boxed<&embedding_bag>(name);
});

}  // namespace
}  // namespace backplane::embedding_bag_impl
