// kernels/host/softmax.cpp: softmax and log_softmax over any dimension, and their backwards, for float32, float64, bfloat16 and float16
// (the last two in float); half_to_float, and operands of mixed dtypes, are left to the CPU fallback.
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>
#include <backplane/structured.h>

#include "rows.h"
#include "vectors.h"

namespace {

using backplane::DeviceMemory;
using backplane::Floats;

template <typename C>
VECTOR_VERSIONS void softmax_row(int64_t size, const C* x, C* out) {
  const C largest = vectors::max(size, x);
  const C factor = C(1) / vectors::sum<C>(size, [&](int64_t i) { return out[i] = vectors::exp_of_negative(x[i] - largest); });
  vectors::each(size, [&](int64_t i) { out[i] *= factor; });
}

template <typename C>
VECTOR_VERSIONS void log_softmax_row(int64_t size, const C* x, C* out) {
  const C largest = vectors::max(size, x);
  const C log_sum = std::log(vectors::sum<C>(size, [&](int64_t i) { return vectors::exp_of_negative(x[i] - largest); }));
  vectors::each(size, [&](int64_t i) { out[i] = x[i] - largest - log_sum; });
}

template <typename C>
VECTOR_VERSIONS void softmax_backward_row(int64_t size, const C* grad, const C* y, C* out) {
  const C dot = vectors::sum<C>(size, [&](int64_t i) { return grad[i] * y[i]; });
  vectors::each(size, [&](int64_t i) { out[i] = y[i] * (grad[i] - dot); });
}

template <typename C>
VECTOR_VERSIONS void log_softmax_backward_row(int64_t size, const C* grad, const C* y, C* out) {
  const C sum = vectors::sum<C>(size, [&](int64_t i) { return grad[i]; });
  vectors::each(size, [&](int64_t i) { out[i] = grad[i] - vectors::exp_of_negative(y[i]) * sum; });
}

// Queues row(size, inputs..., out) for every row of `dim`.
template <typename Row, typename... Inputs>
void launch_rows(const Row& row, int64_t dim, const at::Tensor& out, const Inputs&... inputs) {
  if (out.numel() == 0) return;
  if (!out.is_contiguous()) {
    const at::Tensor dense = backplane::empty(out.sizes(), out.scalar_type(), out.device().index());
    launch_rows(row, dim, dense, inputs...);
    out.copy_(dense);
    return;
  }
  const std::array<at::Tensor, sizeof...(Inputs)> dense{inputs.contiguous()...};
  Floats::dispatch(out.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    std::array<backplane::DevicePtr<const T>, sizeof...(Inputs)> from;
    for (size_t i = 0; i < from.size(); ++i) from[i] = backplane::const_device_ptr<T>(dense[i]);
    backplane::launch(out.device().index(),
                      [row, shape = rows::Shape::of(out, dim), from, to = backplane::device_ptr<T>(out)](const DeviceMemory& memory) {
                        std::array<const T*, sizeof...(Inputs)> in;
                        for (size_t i = 0; i < in.size(); ++i) in[i] = memory(from[i]);
                        rows::each<T>(shape, in, memory(to), row);
                      });
  });
}

struct Softmax : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor&, int64_t, bool half_to_float) { return !half_to_float; }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) {
    launch_rows([](int64_t size, const auto* x, auto* y) { softmax_row(size, x, y); }, dim, out, self);
  }
};

struct LogSoftmax : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor&, int64_t, bool half_to_float) { return !half_to_float; }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) {
    launch_rows([](int64_t size, const auto* x, auto* y) { log_softmax_row(size, x, y); }, dim, out, self);
  }
};

bool takes_backward(const at::Tensor& grad, const at::Tensor& output, c10::ScalarType input_dtype) {
  return grad.scalar_type() == output.scalar_type() && grad.scalar_type() == input_dtype;
}

struct SoftmaxBackward : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& grad, const at::Tensor& output, int64_t, c10::ScalarType input_dtype) {
    return takes_backward(grad, output, input_dtype);
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& grad, const at::Tensor& output, int64_t dim, c10::ScalarType,
                  const at::Tensor& out) {
    launch_rows([](int64_t size, const auto* g, const auto* y, auto* to) { softmax_backward_row(size, g, y, to); }, dim, out, grad, output);
  }
};

struct LogSoftmaxBackward : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& grad, const at::Tensor& output, int64_t, c10::ScalarType input_dtype) {
    return takes_backward(grad, output, input_dtype);
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& grad, const at::Tensor& output, int64_t dim, c10::ScalarType,
                  const at::Tensor& out) {
    launch_rows([](int64_t size, const auto* g, const auto* y, auto* to) { log_softmax_backward_row(size, g, y, to); }, dim, out, grad,
                output);
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  using namespace at::meta;
  backplane::structured<structured__softmax, Softmax>(m, {"_softmax", "_softmax.out"});
  backplane::structured<structured__log_softmax, LogSoftmax>(m, {"_log_softmax", "_log_softmax.out"});
  backplane::structured<structured__softmax_backward_data, SoftmaxBackward>(m, {"_softmax_backward_data", "_softmax_backward_data.out"});
  backplane::structured<structured__log_softmax_backward_data, LogSoftmaxBackward>(
      m, {"_log_softmax_backward_data", "_log_softmax_backward_data.out"});
}
