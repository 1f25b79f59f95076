// kernels/cuda/cudnn.h: convolutions by cuDNN, NVIDIA's library, loaded at run time.
//
// No test has run this on a GPU: tests/driver/fake_cudnn is a library in its place, which computes on the host by the same descriptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace backplane::cuda {

/// A convolution as the library describes it: y = x by w, of two or three dimensions behind the batch and the channels.
struct Convolution {
  c10::ScalarType dtype;  // float32, float16 or bfloat16
  int dims;
  int groups;
  std::array<int, 5> x, w, y;  // sizes, the first 2 + dims of them
  std::array<int, 3> padding, stride, dilation;
};

/// Which of the three is computed from the other two.
enum class Part { y, x, w };

/// Whether the driver is the CUDA driver, the library is there, and it has an algorithm, a deterministic one if torch is to have such. The
/// answer is kept for each kind of convolution. The first call loads the library.
bool can_convolve(c10::DeviceIndex device, const Convolution& convolution, Part part);

/// Computes a part that can_convolve(), of tensors of the convolution's sizes and without gaps, on the device's current stream. False, with
/// nothing written, if the library does not take it after all; can_convolve() knows it then.
bool convolve(const Convolution& convolution, Part part, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y);

}  // namespace backplane::cuda
