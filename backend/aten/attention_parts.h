// aten/attention_parts.h: functions that the compositions of fused attention share.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane::attention_parts {

// Each head of key or value (batch, heads, length, size), repeated for every head of query that shares it.
at::Tensor for_every_head(const at::Tensor& tensor, const at::Tensor& query);

// The reverse for a gradient (batch, heads, length, size): the sum over the heads that share one of `heads`.
at::Tensor sum_over_sharers(const at::Tensor& gradient, int64_t heads);

// 0 or 1/(1 - p) for every weight; the same seed gives the same result: the backward draws it again instead of keeping it.
at::Tensor dropout_factors(const at::Tensor& weights, double p, int64_t seed);

// A seed for one call's dropout, drawn from the device's generator.
int64_t draw_seed(c10::DeviceIndex device);

}  // namespace backplane::attention_parts
