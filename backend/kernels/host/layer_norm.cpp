// kernels/host/layer_norm.cpp: native_layer_norm and its backward, for float32, float64, bfloat16 and float16 (the last two in float, as
// their statistics are), with or without weight and bias, all of one dtype. Other calls, wrong shapes among them, are left to the CPU
// fallback.
#include <backplane/structured.h>
#include <c10/util/accumulate.h>

#include "rows.h"
#include "vectors.h"

namespace {

using backplane::const_device_ptr;
using backplane::device_ptr;
using backplane::DeviceMemory;
using backplane::Floats;
using OptionalTensor = std::optional<at::Tensor>;

template <typename C>
struct Statistics {
  C mean;
  C rstd;  // 1 / standard deviation
};

template <typename C>
VECTOR_VERSIONS Statistics<C> statistics(int64_t size, const C* x, C eps) {
  const C mean = vectors::sum<C>(size, [&](int64_t i) { return x[i]; }) / static_cast<C>(size);
  const C squares = vectors::sum<C>(size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, C(1) / std::sqrt(squares / static_cast<C>(size) + eps)};
}

template <typename C>
VECTOR_VERSIONS void normalize(int64_t size, const C* x, Statistics<C> s, const C* weight, const C* bias, C* out) {
  vectors::each(size, [&](int64_t i) { out[i] = (x[i] - s.mean) * s.rstd * weight[i] + bias[i]; });
}

template <typename C>
VECTOR_VERSIONS void input_grad(int64_t size, const C* grad, const C* x, Statistics<C> s, const C* weight, C* out) {
  const C n = static_cast<C>(size);
  const C mean_grad = vectors::sum<C>(size, [&](int64_t i) { return grad[i] * weight[i]; }) / n;
  const C mean_dot = vectors::sum<C>(size, [&](int64_t i) { return grad[i] * weight[i] * (x[i] - s.mean) * s.rstd; }) / n;
  vectors::each(size, [&](int64_t i) { out[i] = s.rstd * (grad[i] * weight[i] - mean_grad - (x[i] - s.mean) * s.rstd * mean_dot); });
}

template <typename C>
VECTOR_VERSIONS void add_parameter_grads(int64_t size, const C* grad, const C* x, Statistics<C> s, C* weight, C* bias) {
  vectors::each(size, [&](int64_t i) {
    weight[i] += grad[i] * (x[i] - s.mean) * s.rstd;
    bias[i] += grad[i];
  });
}

// A parameter in the type that is computed in; its neutral value where there is none.
template <typename C, typename T>
std::unique_ptr<C[]> parameter(const T* values, int64_t size, double neutral) {
  std::unique_ptr<C[]> result(new C[size]);
  for (int64_t i = 0; i < size; ++i) result[i] = values != nullptr ? static_cast<C>(values[i]) : static_cast<C>(neutral);
  return result;
}

int64_t product(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

c10::ScalarType statistics_dtype(const at::Tensor& input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? c10::kFloat : input.scalar_type();
}

// What the CPU would accept; it raises the errors of the rest. Rows of one element are 0, but the CPU's are what rounding left, and are
// compared with.
bool takes_norm(const at::Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias) {
  const auto ends_with = [](at::IntArrayRef sizes, at::IntArrayRef end) {
    return sizes.size() >= end.size() && sizes.slice(sizes.size() - end.size()) == end;
  };
  if (shape.empty() || !ends_with(input.sizes(), shape) || product(shape) < 2) return false;
  for (const OptionalTensor& tensor : {weight, bias}) {
    if (tensor && tensor->defined() && (tensor->sizes() != shape || tensor->scalar_type() != input.scalar_type())) return false;
  }
  return true;
}

// NULL for a tensor that is not there.
template <typename T>
backplane::DevicePtr<const T> pointer_or_null(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? const_device_ptr<T>(*tensor) : backplane::DevicePtr<const T>{};
}
OptionalTensor dense(const OptionalTensor& tensor) { return tensor && tensor->defined() ? tensor->contiguous() : OptionalTensor(); }

struct LayerNorm : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias, double) {
    return takes_norm(input, shape, weight, bias);
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> run(const at::Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight,
                                                            const OptionalTensor& bias, double eps) {
    const c10::DeviceIndex device = input.device().index();
    const at::Tensor x = input.contiguous();
    const OptionalTensor w = dense(weight), b = dense(bias);
    c10::SmallVector<int64_t, 5> one_a_row(input.sizes().begin(), input.sizes().end());
    for (size_t i = one_a_row.size() - shape.size(); i < one_a_row.size(); ++i) one_a_row[i] = 1;
    at::Tensor out = backplane::empty(input.sizes(), input.scalar_type(), device);
    at::Tensor mean = backplane::empty(one_a_row, statistics_dtype(input), device);
    at::Tensor rstd = backplane::empty(one_a_row, statistics_dtype(input), device);
    if (out.numel() == 0) return {out, mean, rstd};
    Floats::dispatch(input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using C = backplane::ComputeType<T>;
      backplane::launch(device, [size = product(shape), count = mean.numel(), eps, px = const_device_ptr<T>(x), pw = pointer_or_null<T>(w),
                                 pb = pointer_or_null<T>(b), pout = device_ptr<T>(out), pmean = device_ptr<C>(mean),
                                 prstd = device_ptr<C>(rstd)](const DeviceMemory& memory) {
        const auto weight = parameter<C>(memory(pw), size, 1), bias = parameter<C>(memory(pb), size, 0);
        C* mean = memory(pmean);
        C* rstd = memory(prstd);
        rows::each<T, 1>({count, size, 1}, {memory(px)}, memory(pout), [&](int64_t n, const C* x, C* out) {
          const Statistics<C> s = statistics(n, x, static_cast<C>(eps));
          normalize(n, x, s, weight.get(), bias.get(), out);
          *mean++ = s.mean;
          *rstd++ = s.rstd;
        });
      });
    });
    return {out, mean, rstd};
  }
};

struct LayerNormBackward : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& mean, const at::Tensor& rstd,
                    const OptionalTensor& weight, const OptionalTensor& bias, std::array<bool, 3>) {
    const c10::ScalarType dtype = input.scalar_type();
    return takes_norm(input, shape, weight, bias) && grad.sizes() == input.sizes() && grad.scalar_type() == dtype &&
           mean.scalar_type() == statistics_dtype(input) && rstd.scalar_type() == statistics_dtype(input);
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> run(const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef shape,
                                                            const at::Tensor& mean, const at::Tensor& rstd, const OptionalTensor& weight,
                                                            const OptionalTensor&, std::array<bool, 3> mask) {
    const c10::DeviceIndex device = input.device().index();
    const at::Tensor g = grad_out.contiguous(), x = input.contiguous(), m = mean.contiguous(), r = rstd.contiguous();
    const OptionalTensor w = dense(weight);
    const auto make = [&](bool wanted, at::IntArrayRef sizes) {
      return wanted ? backplane::empty(sizes, input.scalar_type(), device) : at::Tensor();
    };
    at::Tensor grad_input = make(mask[0], input.sizes());
    at::Tensor grad_weight = make(mask[1], shape), grad_bias = make(mask[2], shape);
    Floats::dispatch(input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using C = backplane::ComputeType<T>;
      const auto result = [](const at::Tensor& tensor) { return tensor.defined() ? device_ptr<T>(tensor) : backplane::DevicePtr<T>{}; };
      backplane::launch(device,
                        [size = product(shape), count = m.numel(), pg = const_device_ptr<T>(g), px = const_device_ptr<T>(x),
                         pm = const_device_ptr<C>(m), pr = const_device_ptr<C>(r), pw = pointer_or_null<T>(w), pinput = result(grad_input),
                         pweight = result(grad_weight), pbias = result(grad_bias)](const DeviceMemory& memory) {
                          const auto weight = parameter<C>(memory(pw), size, 1);
                          const auto weight_grads = std::make_unique<C[]>(size), bias_grads = std::make_unique<C[]>(size);
                          T* const weight_out = memory(pweight);
                          T* const bias_out = memory(pbias);
                          T* const input_out = memory(pinput);
                          const C* mean = memory(pm);
                          const C* rstd = memory(pr);
                          const auto row = [&](int64_t n, const C* g, const C* x, C* out) {
                            const Statistics<C> s{*mean++, *rstd++};
                            if (weight_out != nullptr || bias_out != nullptr)
                              add_parameter_grads(n, g, x, s, weight_grads.get(), bias_grads.get());
                            if (out != nullptr) input_grad(n, g, x, s, weight.get(), out);
                          };
                          rows::each<T, 2>({count, size, 1}, {memory(pg), memory(px)}, input_out, row);
                          for (int64_t i = 0; i < size; ++i) {
                            if (weight_out != nullptr) weight_out[i] = static_cast<T>(weight_grads[i]);
                            if (bias_out != nullptr) bias_out[i] = static_cast<T>(bias_grads[i]);
                          }
                        });
    });
    return {grad_input, grad_weight, grad_bias};
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::function<LayerNorm>(m, "native_layer_norm");
  backplane::function<LayerNormBackward>(m, "native_layer_norm_backward");
}
