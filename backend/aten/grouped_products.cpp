// aten/grouped_products.cpp: _scaled_grouped_mm, products of float8 matrices in groups, with a scale for each row or column: the experts of
// a mixture. The CPU has no such kernel; each group is a product in float32.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

#include "dispatch/defaults.h"

namespace backplane::grouped_products_impl {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

bool is_row_major(const at::Tensor& matrix) { return matrix.stride(-1) == 1; }
bool is_column_major(const at::Tensor& matrix) { return matrix.stride(-2) == 1; }

// A vector of scales for each group. If both matrices are split along the summed dimension, one for every row and group.
void check_scale(const char* name, const at::Tensor& matrix, const at::Tensor& scale, int64_t dim, int64_t groups) {
  TORCH_CHECK_NOT_IMPLEMENTED(scale.scalar_type() == c10::kFloat, "_scaled_grouped_mm: ", name, " must be float32, and is ",
                              scale.scalar_type(), "; block scales (float8_e8m0fnu) are not supported on this device");
  if (matrix.dim() == 2) {
    TORCH_CHECK_VALUE(scale.dim() == 1 && scale.size(0) == matrix.size(dim) * groups, name, " must have shape [", matrix.size(dim) * groups,
                      "], and has ", scale.sizes());
  } else {
    TORCH_CHECK_VALUE(scale.dim() == 2 && scale.size(0) == matrix.size(0) && scale.size(1) == matrix.size(1 + dim), name,
                      " must have shape [", matrix.size(0), ", ", matrix.size(1 + dim), "], and has ", scale.sizes());
  }
  TORCH_CHECK_VALUE(scale.stride(-1) == 1, name, " must be contiguous in the last dimension");
}

// Ends of the groups, read on the host.
std::vector<int64_t> ends_of(const at::Tensor& offs, int64_t length) {
  TORCH_CHECK_VALUE(offs.dim() == 1, "offs has to be 1D");
  TORCH_CHECK_VALUE(offs.scalar_type() == c10::kInt, "Offsets have to be int32");
  const at::Tensor host = offs.to(c10::kCPU, c10::kLong).contiguous();
  std::vector<int64_t> ends(host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel());
  int64_t before = 0;
  for (const int64_t end : ends) {
    TORCH_CHECK_VALUE(before <= end && end <= length, "offs must not decrease, nor exceed the length ", length, " that it cuts");
    before = end;
  }
  return ends;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row_scale, const at::Tensor& column_scale) {
  const at::Tensor wide = at::mm(a.to(c10::kFloat), b.to(c10::kFloat));
  return wide.mul_(row_scale.unsqueeze(1)).mul_(column_scale.unsqueeze(0)).to(c10::kBFloat16);
}

at::Tensor scaled_grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b,
                             const OptionalTensor& offs, const OptionalTensor& bias, const OptionalTensor& scale_result,
                             std::optional<c10::ScalarType> out_dtype, bool /*use_fast_accum: sums are float32's*/) {
  TORCH_CHECK_VALUE(a.dim() == 2 || a.dim() == 3, "mat_a has to be 2 or 3d");
  TORCH_CHECK_VALUE(b.dim() == 2 || b.dim() == 3, "mat_b has to be 2 or 3d");
  TORCH_CHECK_VALUE(a.scalar_type() == c10::kFloat8_e4m3fn && b.scalar_type() == c10::kFloat8_e4m3fn,
                    "Expected inputs of E4M3 FP8 type but got mat_a.dtype=", a.scalar_type(), " and mat_b.dtype=", b.scalar_type(), ".");
  TORCH_CHECK_VALUE(is_row_major(a), "Expected mat1 to not be transposed");
  TORCH_CHECK_VALUE(is_column_major(b), "Expected mat2 to be transposed");
  TORCH_CHECK_VALUE(a.size(-1) == b.size(-2), "contraction dimension of mat_a and mat_b must match");
  const bool cuts_sum = a.dim() == 2 && b.dim() == 2;
  if (!cuts_sum) {
    TORCH_CHECK_VALUE(a.size(-1) % 16 == 0, "Expected a.size(-1) to be divisible by 16, but got ", a.sizes());
    TORCH_CHECK_VALUE(b.size(-2) % 16 == 0 && b.size(-1) % 16 == 0, "Expected the last two sizes of b to be divisible by 16, but got ",
                      b.sizes());
  }
  TORCH_CHECK_VALUE(!is_given(bias), "Bias not supported yet");
  TORCH_CHECK_VALUE(!is_given(scale_result), "Scale result not supported yet");
  TORCH_CHECK_VALUE(is_given(offs) == (a.dim() == 2 || b.dim() == 2),
                    "Have to provide offsets if there is a 2d matrix, or no offset if both are 3d");
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == c10::kBFloat16, "Only bf16 high precision output types are supported for grouped gemm");
  const int64_t groups = is_given(offs) ? offs->numel() : a.size(0);
  if (a.dim() == 3) TORCH_CHECK_VALUE(a.size(0) == groups, "matrix a has ", a.size(0), " groups, expected ", groups);
  if (b.dim() == 3) TORCH_CHECK_VALUE(b.size(0) == groups, "matrix b has ", b.size(0), " groups, expected ", groups);
  check_scale("scale_a", a, scale_a, 0, cuts_sum ? groups : 1);
  check_scale("scale_b", b, scale_b, 1, cuts_sum ? groups : 1);

  const int64_t length = cuts_sum ? a.size(1) : a.dim() == 2 ? a.size(0) : b.size(-1);
  const std::vector<int64_t> ends = is_given(offs) ? ends_of(*offs, length) : std::vector<int64_t>();
  const int64_t rows = a.size(-2), columns = b.size(-1);
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t end = ends.empty() ? 0 : ends[static_cast<size_t>(g)];
    if (cuts_sum) {
      parts.push_back(product(a.slice(1, begin, end), b.slice(0, begin, end), scale_a.slice(0, g * rows, (g + 1) * rows),
                              scale_b.slice(0, g * columns, (g + 1) * columns)));
    } else {
      const bool cuts_a = a.dim() == 2, cuts_b = b.dim() == 2;
      parts.push_back(product(cuts_a ? a.slice(0, begin, end) : a[g], cuts_b ? b.slice(1, begin, end) : b[g],
                              cuts_a ? scale_a.slice(0, begin, end) : scale_a[g], cuts_b ? scale_b.slice(0, begin, end) : scale_b[g]));
    }
    begin = end;
  }
  if (a.dim() == b.dim()) return parts.empty() ? at::empty({0, rows, columns}, a.options().dtype(c10::kBFloat16)) : at::stack(parts);
  // Elements after the last group are undefined.
  const int64_t dim = a.dim() == 2 ? 0 : 1;
  if (begin < length) {
    const at::DimVector rest = dim == 0 ? at::DimVector{length - begin, columns} : at::DimVector{rows, length - begin};
    parts.push_back(at::zeros(rest, a.options().dtype(c10::kBFloat16)));
  }
  return at::cat(parts, dim);
}

const Defaults defaults([](DefaultKernels& m) { m.impl("_scaled_grouped_mm", &scaled_grouped_mm); });

}  // namespace
}  // namespace backplane::grouped_products_impl
