// kernels/cuda/cudnn.h: convolutions by cuDNN, NVIDIA's library, loaded at run time.
//
// No test has run this on a GPU: tests/driver/fake_cudnn replaces the library, and computes on the host by the same descriptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace backplane::cuda {

// A convolution as the library describes it: y = x by w, in two or three dimensions after the batch and the channels.
struct Convolution {
  c10::ScalarType dtype;  // float32, float16 or bfloat16
  int dims;
  int groups;
  std::array<int, 5> x, w, y;  // sizes, the first 2 + dims of them
  std::array<int, 3> padding, stride, dilation;
};

// The one of the three that is computed from the other two.
enum class Part { y, x, w };

// Whether the driver is the CUDA driver, the library is available, and it has an algorithm, a deterministic one if torch requests it.
// Cached for each kind of convolution. Loads the library at the first call.
bool can_convolve(c10::DeviceIndex device, const Convolution& convolution, Part part);

// Computes a part for which can_convolve() is true, with dense tensors of the convolution's sizes, on the device's current stream. False:
// the library does not support it after all, and nothing was written; can_convolve() then returns false.
bool convolve(const Convolution& convolution, Part part, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y);

}  // namespace backplane::cuda
