// aten/attention_parts.h: functions that the compositions of fused attention share.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane::attention_parts {

// Each head of key or value (batch, heads, length, size), repeated for every head of query that shares it.
at::Tensor for_every_head(const at::Tensor& tensor, const at::Tensor& query);

// The reverse for a gradient (batch, heads, length, size): the sum over the heads that share one of `heads`.
at::Tensor sum_over_sharers(const at::Tensor& gradient, int64_t heads);

// Where one call's dropout begins in the sequence of the device's generator, of shape () and int64, each. The backward draws it again from
// there instead of keeping it. On the CPU; in a capture on the device, with the numbers of the run.
struct DropoutPlace {
  at::Tensor seed, offset;
};

// Takes numbers for `count` weights.
DropoutPlace take_dropout(c10::DeviceIndex device, int64_t count);

// 0 or 1/(1 - p) for every weight.
at::Tensor dropout_factors(const at::Tensor& weights, double p, const DropoutPlace& place);

}  // namespace backplane::attention_parts
