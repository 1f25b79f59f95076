// kernels/cuda/matmul.cpp: mm, addmm, bmm and baddbmm (hence linear and matmul) by cuBLASLt, for float32, float64, bfloat16 and float16.
// Unsupported calls, and all calls without the library, are passed on to the portable kernels.
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/mm_meta.h>
#include <backplane/structured.h>

#include "cublaslt.h"

namespace {

using backplane::Floats;
namespace cuda = backplane::cuda;

bool fits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.numel() > 0 && b.numel() > 0 && !a.is_conj() && !b.is_conj() && !a.is_neg() &&
         !b.is_neg() && cuda::is_matrix(a) && cuda::is_matrix(b) && cuda::has_cublaslt(a.device().index());
}

// out = alpha * a * b + beta * self + bias: into out, or into a temporary if the library cannot write out or out is also read.
void multiply_into(const at::Tensor& a, const at::Tensor& b, double alpha, double beta, const at::Tensor& self, const at::Tensor& bias,
                   const at::Tensor& out) {
  const auto is_read = [&](const at::Tensor& tensor) { return tensor.defined() && out.is_alias_of(tensor); };
  const bool direct =
      cuda::is_result(out) && !is_read(a) && !is_read(b) && !is_read(bias) && (beta == 0 || out.is_same(self) || !is_read(self));
  const at::Tensor to = direct ? out : backplane::empty(out.sizes(), out.scalar_type(), out.device().index());
  if (beta != 0 && !to.is_same(self)) to.copy_(self.expand(out.sizes()));
  cuda::multiply(a, b, alpha, beta, bias, to);
  if (!direct) out.copy_(to);
}

struct Mm {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat2) { return fits(self, mat2); }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
    multiply_into(self, mat2, 1, 0, {}, {}, out);
  }
};

struct Addmm {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                    const at::Scalar& beta, const at::Scalar& alpha) {
    return self.scalar_type() == mat1.scalar_type() && !beta.isComplex() && !alpha.isComplex() && fits(mat1, mat2);
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                  const at::Scalar& alpha, const at::Tensor& out) {
    const double factor = beta.toDouble(), scale = alpha.toDouble();
    // A row that is added to each row, as linear's bias, is added by the product itself.
    const bool is_bias = out.dim() == 2 && self.dim() == 1 && self.size(0) == out.size(1) && (self.size(0) == 1 || self.stride(0) == 1) &&
                         factor == 1 && scale == 1;
    if (is_bias) return multiply_into(mat1, mat2, 1, 0, {}, self, out);
    multiply_into(mat1, mat2, scale, factor, self, {}, out);
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::structured<at::meta::structured_mm, Mm>(m, {"mm", "mm.out"});
  backplane::structured<at::meta::structured_addmm, Addmm>(m, {"addmm", "addmm.out", "addmm_"});
  backplane::structured<at::meta::structured_bmm, Mm>(m, {"bmm", "bmm.out"});
  backplane::structured<at::meta::structured_baddbmm, Addmm>(m, {"baddbmm", "baddbmm.out", "baddbmm_"});
}
