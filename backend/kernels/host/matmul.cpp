// kernels/host/matmul.cpp: mm, addmm, bmm, baddbmm and addmv (so linear, matmul and mv) for float32, float64, bfloat16 and float16, all
// operands of one dtype; anything else is left to the CPU fallback.
//
// The product itself is the CPU's, as on a chip it is a library's.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/mm_meta.h>
#include <backplane/host/tensor.h>
#include <backplane/structured.h>

namespace {

using backplane::Floats;

bool same_dtype(const at::Tensor& first, const at::Tensor& second) { return first.scalar_type() == second.scalar_type(); }

// On the host. The half types are multiplied and summed up in float and rounded once, which on most processors is faster, too.
void multiply_on_host(at::Tensor a, at::Tensor b, double alpha, double beta, const at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  at::Tensor sum = out;
  if (c10::isReducedFloatingType(out.scalar_type())) {
    a = at::native::_to_copy(a, at::kFloat);
    b = at::native::_to_copy(b, at::kFloat);
    sum = beta == 0 ? at::Tensor(at::detail::empty_cpu(out.sizes(), at::kFloat)) : at::native::_to_copy(out, at::kFloat);
  }
  if (out.dim() == 3) {
    at::cpu::baddbmm_out(sum, sum, a, b, beta, alpha);
  } else {
    at::cpu::addmm_out(sum, sum, a, b, beta, alpha);
  }
  if (!sum.is_same(out)) at::native::copy_(const_cast<at::Tensor&>(out), sum);
}

// out = beta * out + alpha * a * b; matrices, or batches of them.
void multiply(const at::Tensor& a, const at::Tensor& b, double alpha, double beta, const at::Tensor& out) {
  if (out.numel() == 0) return;
  using backplane::TensorView;
  backplane::launch(out.device().index(), [alpha, beta, left = TensorView(a, false), right = TensorView(b, false),
                                           to = TensorView(out, true)](const backplane::DeviceMemory& memory) {
    multiply_on_host(left.host_tensor(memory), right.host_tensor(memory), alpha, beta, to.host_tensor(memory));
  });
}

// out = beta * self + alpha * a * b; self is broadcast.
void add_product(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
                 const at::Tensor& out, const at::Tensor& out_matrix) {
  const double factor = beta.toDouble();
  if (factor != 0 && !out.is_same(self)) out.copy_(self.expand(out.sizes()));
  multiply(a, b, alpha.toDouble(), factor, out_matrix);
}

struct Mm : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat2) { return same_dtype(self, mat2); }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
    multiply(self, mat2, 1, 0, out);
  }
};

struct Addmm : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar&,
                    const at::Scalar&) {
    return same_dtype(self, mat1) && same_dtype(self, mat2);
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                  const at::Scalar& alpha, const at::Tensor& out) {
    add_product(self, mat1, mat2, beta, alpha, out, out);
  }
};

struct Addmv : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar&,
                    const at::Scalar&) {
    return same_dtype(self, mat) && same_dtype(self, vec);
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
                  const at::Scalar& alpha, const at::Tensor& out) {
    add_product(self, mat, vec.unsqueeze(1), beta, alpha, out, out.unsqueeze(1));
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::structured<at::meta::structured_mm, Mm>(m, {"mm", "mm.out"});
  backplane::structured<at::meta::structured_addmm, Addmm>(m, {"addmm", "addmm.out", "addmm_"});
  backplane::structured<at::meta::structured_addmv, Addmv>(m, {"addmv", "addmv.out", "addmv_"});
  backplane::structured<at::meta::structured_bmm, Mm>(m, {"bmm", "bmm.out"});
  backplane::structured<at::meta::structured_baddbmm, Addmm>(m, {"baddbmm", "baddbmm.out", "baddbmm_"});
}
