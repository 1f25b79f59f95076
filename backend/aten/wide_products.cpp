// aten/wide_products.cpp: products of half matrices with a float32 result, mm(a, b, out_dtype=) and similar, which the CPU does not have.
// Each is the product of the widened matrices: nothing is rounded in between.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "dispatch/defaults.h"

namespace backplane::wide_products_impl {
namespace {

// CUDA's rules and messages.
void check(const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "input dtypes must be the same, found ", a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK(dtype == a.scalar_type() || (dtype == c10::kFloat && c10::isReducedFloatingType(a.scalar_type())),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

void check_self(const at::Tensor& self, const at::Tensor& a, c10::ScalarType dtype, const char* name) {
  TORCH_CHECK(self.scalar_type() == dtype || self.scalar_type() == a.scalar_type(), "self dtype must match either out_dtype or ", name,
              " dtype");
}

void check_out(const at::Tensor& out, c10::ScalarType dtype) {
  TORCH_CHECK(out.scalar_type() == dtype, "out_dtype must be the same as the dtype of the provided out tensor");
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType dtype) {
  check(self, mat2, dtype);
  return at::mm(self.to(dtype), mat2.to(dtype));
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType dtype, at::Tensor& out) {
  check_out(out, dtype);
  check(self, mat2, dtype);
  return at::mm_out(out, self.to(dtype), mat2.to(dtype));
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType dtype) {
  check(self, mat2, dtype);
  return at::bmm(self.to(dtype), mat2.to(dtype));
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, c10::ScalarType dtype, at::Tensor& out) {
  check_out(out, dtype);
  check(self, mat2, dtype);
  return at::bmm_out(out, self.to(dtype), mat2.to(dtype));
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, c10::ScalarType dtype, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  check_self(self, mat1, dtype, "mat1");
  check(mat1, mat2, dtype);
  return at::addmm(self.to(dtype), mat1.to(dtype), mat2.to(dtype), beta, alpha);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, c10::ScalarType dtype, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  check_out(out, dtype);
  check_self(self, mat1, dtype, "mat1");
  check(mat1, mat2, dtype);
  return at::addmm_out(out, self.to(dtype), mat1.to(dtype), mat2.to(dtype), beta, alpha);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, c10::ScalarType dtype,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  check_self(self, batch1, dtype, "batch1");
  check(batch1, batch2, dtype);
  return at::baddbmm(self.to(dtype), batch1.to(dtype), batch2.to(dtype), beta, alpha);
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, c10::ScalarType dtype,
                        const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  check_out(out, dtype);
  check_self(self, batch1, dtype, "batch1");
  check(batch1, batch2, dtype);
  return at::baddbmm_out(out, self.to(dtype), batch1.to(dtype), batch2.to(dtype), beta, alpha);
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl("mm.dtype", &mm);
  m.impl("mm.dtype_out", &mm_out);
  m.impl("bmm.dtype", &bmm);
  m.impl("bmm.dtype_out", &bmm_out);
  m.impl("addmm.dtype", &addmm);
  m.impl("addmm.dtype_out", &addmm_out);
  m.impl("baddbmm.dtype", &baddbmm);
  m.impl("baddbmm.dtype_out", &baddbmm_out);
});

}  // namespace
}  // namespace backplane::wide_products_impl
