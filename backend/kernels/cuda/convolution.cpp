// kernels/cuda/convolution.cpp: convolution_overrideable and its gradients by cuDNN, for float32, bfloat16 and float16. Unsupported calls,
// and all calls without the library, are passed on to the portable kernels.
//
// A transposed convolution is the gradient of another one's input. The library computes contiguous tensors; channels_last ones are copied.
#include <backplane/convolution.h>
#include <backplane/signature.h>
#include <backplane/structured.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "cudnn.h"

namespace {

namespace cuda = backplane::cuda;
using at::IntArrayRef;
using cuda::Part;
using OptionalTensor = std::optional<at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The call's arguments about the windows.
struct Windows {
  IntArrayRef stride, padding, dilation;
  bool transposed;
  IntArrayRef output_padding;
  int64_t groups;
};

// The sizes of a tensor in two or three dimensions; a single dimension gets one of size 1 before it. None if the library does not support
// them.
std::optional<std::array<int, 5>> sizes_of(IntArrayRef sizes) {
  std::array<int, 5> out{};
  int64_t elements = 1;
  size_t at = 0;
  for (const int64_t size : sizes) {
    if (at == 2 && sizes.size() == 3) out[at++] = 1;
    if (size <= 0 || size > INT32_MAX || (elements *= size) > INT32_MAX) return std::nullopt;
    out[at++] = static_cast<int>(size);
  }
  return out;
}

std::optional<std::array<int, 3>> numbers(IntArrayRef list, size_t dims, int least) {
  if (list.size() != dims) return std::nullopt;
  std::array<int, 3> out{};
  size_t at = 0;
  if (dims == 1) out[at++] = least;
  for (const int64_t number : list) {
    if (number < least || number > INT32_MAX) return std::nullopt;
    out[at++] = static_cast<int>(number);
  }
  return out;
}

bool is_plain(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.dim() == like.dim() && tensor.scalar_type() == like.scalar_type() && !tensor.is_neg();
}

// The convolution of a call, and the sizes of its result. x is the wider side: the input, or the result of a transposed one. None for
// invalid arguments: the next kernel reports the error.
std::optional<cuda::Convolution> describe(const at::Tensor& input, const at::Tensor& weight, const Windows& windows,
                                          c10::SmallVector<int64_t, 5>& result) {
  const size_t dims = static_cast<size_t>(input.dim()) - 2;
  if (input.dim() < 3 || input.dim() > 5 || !is_plain(weight, input) || windows.groups < 1 || windows.groups > INT32_MAX) return {};
  const auto padding = numbers(windows.padding, dims, 0), stride = numbers(windows.stride, dims, 1);
  const auto dilation = numbers(windows.dilation, dims, 1), more = numbers(windows.output_padding, dims, 0);
  const auto in = sizes_of(input.sizes()), w = sizes_of(weight.sizes());
  if (!padding || !stride || !dilation || !more || !in || !w || (*w)[0] % windows.groups != 0) return {};
  const int64_t narrow = weight.size(0), wide = weight.size(1) * windows.groups;
  if (input.size(1) != (windows.transposed ? narrow : wide)) return {};

  result = {input.size(0), windows.transposed ? wide : narrow};
  for (size_t d = 0; d < dims; ++d) {
    const int64_t from = input.size(static_cast<int64_t>(d) + 2), step = windows.stride[d];
    const int64_t reach = windows.dilation[d] * (weight.size(static_cast<int64_t>(d) + 2) - 1) + 1 - 2 * windows.padding[d];
    if (windows.transposed) {
      // Output padding for a further window would be another convolution's.
      if (windows.output_padding[d] >= step) return {};
      result.push_back((from - 1) * step + reach + windows.output_padding[d]);
    } else {
      if (from < reach) return {};
      result.push_back((from - reach) / step + 1);
    }
  }
  const auto out = sizes_of(result);
  if (!out) return {};
  cuda::Convolution made{};
  made.dtype = input.scalar_type();
  made.dims = std::max(static_cast<int>(dims), 2);
  made.groups = static_cast<int>(windows.groups);
  made.x = windows.transposed ? *out : *in;
  made.y = windows.transposed ? *in : *out;
  made.w = *w;
  made.padding = *padding;
  made.stride = *stride;
  made.dilation = *dilation;
  return made;
}

struct Convolution {
  using Takes = backplane::Dtypes<float, at::BFloat16, at::Half>;

  static bool takes(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
                    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
    c10::SmallVector<int64_t, 5> sizes;
    const auto described = describe(input, weight, {stride, padding, dilation, transposed, output_padding, groups}, sizes);
    if (!described || input.is_neg()) return false;
    if (bias && bias->defined() && (bias->dim() != 1 || bias->size(0) != sizes[1] || bias->scalar_type() != input.scalar_type()))
      return false;
    return cuda::can_convolve(input.device().index(), *described, transposed ? Part::x : Part::y);
  }

  static at::Tensor run(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias, IntArrayRef stride,
                        IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
    c10::SmallVector<int64_t, 5> sizes;
    const auto described = describe(input, weight, {stride, padding, dilation, transposed, output_padding, groups}, sizes);
    const at::Tensor in = input.contiguous(), w = weight.contiguous();
    at::Tensor out = backplane::empty(sizes, input.scalar_type(), input.device().index());
    const bool done = transposed ? cuda::convolve(*described, Part::x, out, w, in) : cuda::convolve(*described, Part::y, in, w, out);
    if (!done) {
      return backplane::call_fallback<decltype(run)>("convolution_overrideable", input, weight, bias, stride, padding, dilation, transposed,
                                                     output_padding, groups);
    }
    if (bias && bias->defined()) {
      c10::SmallVector<int64_t, 5> shape(sizes.size(), 1);
      shape[1] = sizes[1];
      out.add_(bias->view(shape));
    }
    return out.contiguous(backplane::convolution_format(input, weight));
  }
};

struct ConvolutionBackward {
  using Takes = Convolution::Takes;

  static bool takes(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
    c10::SmallVector<int64_t, 5> sizes;
    const auto described = describe(input, weight, {stride, padding, dilation, transposed, output_padding, groups}, sizes);
    if (!described || input.is_neg() || !is_plain(grad, input) || grad.sizes() != IntArrayRef(sizes)) return false;
    const c10::DeviceIndex device = input.device().index();
    return (!wanted[0] || cuda::can_convolve(device, *described, transposed ? Part::y : Part::x)) &&
           (!wanted[1] || cuda::can_convolve(device, *described, Part::w));
  }

  static Tensors3 run(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                      IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
    c10::SmallVector<int64_t, 5> sizes;
    const auto described = describe(input, weight, {stride, padding, dilation, transposed, output_padding, groups}, sizes);
    const at::Tensor out = grad.contiguous();
    const auto like = [&](const at::Tensor& tensor) {
      return backplane::empty(tensor.sizes(), tensor.scalar_type(), tensor.device().index());
    };
    Tensors3 results;
    auto& [of_input, of_weight, of_bias] = results;
    bool done = true;
    if (wanted[0]) {
      of_input = like(input);
      const at::Tensor w = weight.contiguous();
      done = transposed ? cuda::convolve(*described, Part::y, out, w, of_input) : cuda::convolve(*described, Part::x, of_input, w, out);
    }
    if (done && wanted[1]) {
      of_weight = like(weight);
      const at::Tensor in = input.contiguous();
      done = cuda::convolve(*described, Part::w, transposed ? out : in, of_weight, transposed ? in : out);
    }
    if (!done) {
      return backplane::call_fallback<decltype(run)>("convolution_backward_overrideable", grad, input, weight, stride, padding, dilation,
                                                     transposed, output_padding, groups, wanted);
    }
    const c10::MemoryFormat format = backplane::convolution_format(input, weight);
    if (wanted[0]) of_input = of_input.contiguous(format);
    if (wanted[1]) of_weight = of_weight.contiguous(format);
    if (wanted[2]) {
      c10::SmallVector<int64_t, 4> dims{0};
      for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
      of_bias = grad.sum(dims);
    }
    return results;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::function<Convolution>(m, "convolution_overrideable");
  backplane::function<ConvolutionBackward>(m, "convolution_backward_overrideable");
}
