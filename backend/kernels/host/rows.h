// kernels/host/rows.h: kernels that compute one row at a time (softmax, norms): the rows of any dimension of dense tensors, brought into
// contiguous memory and into the type that is computed in, where they are not so already.
#pragma once

#include <ATen/core/Tensor.h>
#include <backplane/dtypes.h>
#include <c10/util/accumulate.h>

#include <array>
#include <memory>

#include "vectors.h"

namespace rows {

// A contiguous tensor as [outer, size, inner]: its rows along one dimension.
struct Shape {
  int64_t outer;
  int64_t size;
  int64_t inner;

  // dim may be negative.
  static Shape of(const at::Tensor& tensor, int64_t dim) {
    if (tensor.dim() == 0) return {1, 1, 1};
    if (dim < 0) dim += tensor.dim();
    const at::IntArrayRef sizes = tensor.sizes();
    return {c10::multiply_integers(sizes.begin(), sizes.begin() + dim), sizes[dim],
            c10::multiply_integers(sizes.begin() + dim + 1, sizes.end())};
  }
};

// Calls row(size, in..., out) for every row: N inputs and an output, of compute type C. No output: out is NULL.
template <typename T, size_t N, typename Row>
void each(const Shape& shape, const std::array<const T*, N>& in, T* out, const Row& row) {
  using C = backplane::ComputeType<T>;
  const auto call = [&](const std::array<const C*, N>& from, C* to) {
    std::apply([&](auto... inputs) { row(shape.size, inputs..., to); }, from);
  };
  if constexpr (std::is_same_v<T, C>) {
    if (shape.inner == 1) {
      for (int64_t i = 0; i < shape.outer; ++i) {
        std::array<const C*, N> from;
        for (size_t n = 0; n < N; ++n) from[n] = in[n] + i * shape.size;
        call(from, out == nullptr ? nullptr : out + i * shape.size);
      }
      return;
    }
  }
  constexpr int64_t kTogether = 16;  // neighbouring rows, so that a line of the cache is read once
  const auto memory = std::make_unique<C[]>((N + 1) * kTogether * shape.size);
  const auto scratch = [&](size_t n, int64_t r) { return memory.get() + (n * kTogether + r) * shape.size; };
  const auto call_on_scratch = [&](int64_t r) {
    std::array<const C*, N> from;
    for (size_t n = 0; n < N; ++n) from[n] = scratch(n, r);
    call(from, out == nullptr ? nullptr : scratch(N, r));
  };
  if (shape.inner == 1) {
    for (int64_t i = 0; i < shape.outer; ++i) {
      for (size_t n = 0; n < N; ++n) vectors::convert(shape.size, in[n] + i * shape.size, scratch(n, 0));
      call_on_scratch(0);
      if (out != nullptr) vectors::convert(shape.size, scratch(N, 0), out + i * shape.size);
    }
    return;
  }
  for (int64_t i = 0; i < shape.outer; ++i) {
    for (int64_t j = 0; j < shape.inner; j += kTogether) {
      const int64_t begin = i * shape.size * shape.inner + j;
      const int64_t count = std::min(kTogether, shape.inner - j);
      for (size_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < shape.size; ++k) {
          for (int64_t r = 0; r < count; ++r) scratch(n, r)[k] = static_cast<C>(in[n][begin + k * shape.inner + r]);
        }
      }
      for (int64_t r = 0; r < count; ++r) call_on_scratch(r);
      for (int64_t k = 0; out != nullptr && k < shape.size; ++k) {
        for (int64_t r = 0; r < count; ++r) out[begin + k * shape.inner + r] = static_cast<T>(scratch(N, r)[k]);
      }
    }
  }
}

}  // namespace rows
