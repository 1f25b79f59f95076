// kernels/host/fused_adam.cpp: _fused_adam_ and _fused_adamw_, the whole optimizer step of all parameters in one launch, for float32
// parameters, gradients and states that are dense and laid out alike; with amsgrad, maximize, and a gradient scaler's grad_scale and
// found_inf. Other calls are left to the CPU fallback.
#include <ATen/core/List.h>
#include <backplane/structured.h>

#include <cmath>

#include "vectors.h"

namespace {

using backplane::DeviceMemory;
using backplane::DevicePtr;
using OptionalTensor = std::optional<at::Tensor>;

struct Settings {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;  // decoupled: AdamW
};

struct Parameter {
  int64_t count;
  DevicePtr<float> value, grad, mean, square, largest;
  DevicePtr<const float> step;
};

struct Pointers {
  float* value;
  float* grad;
  float* mean;
  float* square;
  float* largest;  // NULL without amsgrad
};

template <bool amsgrad>
VECTOR_VERSIONS void update(int64_t count, const Pointers& p, const Settings& s, double step, float inverse_scale) {
  const auto beta1 = static_cast<float>(s.beta1), beta2 = static_cast<float>(s.beta2);
  const auto rest1 = static_cast<float>(1 - s.beta1), rest2 = static_cast<float>(1 - s.beta2);
  const auto step_size = static_cast<float>(s.lr / (1 - std::pow(s.beta1, step)));
  const auto correction = static_cast<float>(std::sqrt(1 - std::pow(s.beta2, step)));
  const auto eps = static_cast<float>(s.eps);
  const float shrink = s.decoupled ? static_cast<float>(1 - s.lr * s.weight_decay) : 1.0f;
  const float decay = s.decoupled ? 0.0f : static_cast<float>(s.weight_decay);
  const float sign = s.maximize ? -1.0f : 1.0f;
  float *const values = p.value, *const grads = p.grad, *const means = p.mean, *const squares = p.square, *const largest = p.largest;
  vectors::each(count, [=](int64_t i) {
    const float unscaled = grads[i] * inverse_scale;
    grads[i] = unscaled;
    const float grad = sign * unscaled + decay * values[i];
    const float mean = beta1 * means[i] + rest1 * grad;
    float square = beta2 * squares[i] + rest2 * grad * grad;
    means[i] = mean;
    squares[i] = square;
    if constexpr (amsgrad) {
      square = largest[i] > square ? largest[i] : square;
      largest[i] = square;
    }
    values[i] = shrink * values[i] - step_size * mean / (std::sqrt(square) / correction + eps);
  });
}

bool is_alike(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.scalar_type() == c10::kFloat && tensor.device() == like.device() && tensor.sizes() == like.sizes() &&
         tensor.strides() == like.strides();
}

bool takes_lists(at::TensorList self, at::TensorList grads, at::TensorList means, at::TensorList squares, at::TensorList largest,
                 at::TensorList steps, bool amsgrad) {
  if (self.empty() || self[0].device().type() != c10::DeviceType::PrivateUse1) return false;
  for (size_t i = 0; i < self.size(); ++i) {
    const at::Tensor& value = self[i];
    if (value.device() != self[0].device() || !value.is_non_overlapping_and_dense() || !is_alike(value, value) ||
        !is_alike(grads[i], value) || !is_alike(means[i], value) || !is_alike(squares[i], value) ||
        (amsgrad && !is_alike(largest[i], value)) || steps[i].scalar_type() != c10::kFloat || steps[i].device() != value.device()) {
      return false;
    }
  }
  return true;
}

bool takes_scalar(const OptionalTensor& tensor, const at::Tensor& like) {
  return !tensor || !tensor->defined() || (tensor->scalar_type() == c10::kFloat && tensor->device() == like.device());
}
DevicePtr<const float> pointer_or_null(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? backplane::const_device_ptr<float>(*tensor) : DevicePtr<const float>{};
}

template <bool decoupled>
struct FusedAdam : backplane::HostKernel {
  static bool takes(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                    at::TensorList max_exp_avg_sqs, at::TensorList state_steps, double, double, double, double, double, bool amsgrad, bool,
                    const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
    return takes_lists(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, amsgrad) && takes_scalar(grad_scale, self[0]) &&
           takes_scalar(found_inf, self[0]);
  }

  static void run(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                  at::TensorList max_exp_avg_sqs, at::TensorList state_steps, double lr, double beta1, double beta2, double weight_decay,
                  double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
    using backplane::device_ptr;
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < self.size(); ++i) {
      parameters.push_back({self[i].numel(), device_ptr<float>(self[i]), device_ptr<float>(grads[i]), device_ptr<float>(exp_avgs[i]),
                            device_ptr<float>(exp_avg_sqs[i]), amsgrad ? device_ptr<float>(max_exp_avg_sqs[i]) : DevicePtr<float>{},
                            backplane::const_device_ptr<float>(state_steps[i])});
    }
    const Settings settings{lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled};
    backplane::launch(self[0].device().index(), [parameters = std::move(parameters), settings, pscale = pointer_or_null(grad_scale),
                                                 pinf = pointer_or_null(found_inf)](const DeviceMemory& memory) {
      const float* const scale = memory(pscale);
      const float* const inf = memory(pinf);
      if (inf != nullptr && *inf != 0) return;  // the scaler found an infinite gradient: no step
      for (const Parameter& p : parameters) {
        const Pointers pointers{memory(p.value), memory(p.grad), memory(p.mean), memory(p.square), memory(p.largest)};
        const auto& run = settings.amsgrad ? update<true> : update<false>;
        run(p.count, pointers, settings, *memory(p.step), scale == nullptr ? 1.0f : 1.0f / *scale);
      }
    });
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::function<FusedAdam<false>>(m, "_fused_adam_");
  backplane::function<FusedAdam<true>>(m, "_fused_adamw_");
}
