// kernels/cuda/cublaslt.h: products of matrices by cuBLASLt, NVIDIA's library, loaded at run time.
//
// No test has run this on a GPU: tests/driver/fake_cuda replaces the library, and computes on the host by the same descriptions.
#pragma once

#include <ATen/core/Tensor.h>

namespace backplane::cuda {

// Whether the driver is the CUDA driver and the library is available. Loads it at the first call.
bool has_cublaslt(c10::DeviceIndex device);

// Whether the library can read the last two dimensions of a tensor: one of them is dense.
bool is_matrix(const at::Tensor& tensor);

// out = alpha * a * b + beta * out, plus `bias` (one number per column) if it is defined. Matrices or batches of one dtype and device, with
// elements; all are is_matrix(), and the rows of out are dense. Queued on the device's current stream.
void multiply(const at::Tensor& a, const at::Tensor& b, double alpha, double beta, const at::Tensor& bias, const at::Tensor& out);

/// Whether out can be written by multiply().
bool is_result(const at::Tensor& out);

}  // namespace backplane::cuda
