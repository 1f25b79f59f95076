// backend/kernels/matmul.cpp: mm, addmm, bmm, baddbmm and addmv (so linear, matmul and mv) for float32, float64, bfloat16 and float16, all
// operands of one dtype; anything else is left to the CPU fallback.
//
// The product itself is a library's (matmul_library.h), as on a real chip: this file brings tensors into the form that such libraries take.
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/mm_meta.h>
#include <backplane/structured.h>

#include "matmul_library.h"

namespace {

using backplane::Floats;

bool same_dtype(const at::Tensor& first, const at::Tensor& second) { return first.scalar_type() == second.scalar_type(); }

// One or several matrices as the library takes them: dense rows, or dense columns and so transposed.
struct Matrices {
  int64_t leading = 0;
  int64_t batch_stride = 0;
  bool transposed = false;
};

// Nothing where neither rows nor columns are dense.
std::optional<Matrices> as_matrices(const at::Tensor& tensor) {
  const int64_t rows = tensor.size(-2), columns = tensor.size(-1);
  const int64_t row = tensor.stride(-2), column = tensor.stride(-1);
  const int64_t batch = tensor.dim() == 3 ? tensor.stride(0) : 0;
  if ((column == 1 || columns <= 1) && (row >= std::max<int64_t>(columns, 1) || rows <= 1)) {
    return Matrices{rows <= 1 ? std::max<int64_t>(columns, 1) : row, batch, false};
  }
  if ((row == 1 || rows <= 1) && (column >= std::max<int64_t>(rows, 1) || columns <= 1)) {
    return Matrices{columns <= 1 ? std::max<int64_t>(rows, 1) : column, batch, true};
  }
  return std::nullopt;
}

struct Operand {
  explicit Operand(const at::Tensor& given) : tensor(given) {
    std::optional<Matrices> found = as_matrices(given);
    if (!found) {
      tensor = given.contiguous();  // freed when this function returns: in stream order, so after the product
      found = as_matrices(tensor);
    }
    matrices = *found;
  }

  at::Tensor tensor;
  Matrices matrices;
};

// out = beta * out + alpha * a * b; matrices, or batches of them.
void multiply(const at::Tensor& a, const at::Tensor& b, double alpha, double beta, const at::Tensor& out) {
  if (out.numel() == 0) return;
  const auto to = as_matrices(out);
  if (!to) {
    const at::Tensor dense = out.contiguous();
    multiply(a, b, alpha, beta, dense);
    out.copy_(dense);
    return;
  }
  if (to->transposed) return multiply(b.transpose(-2, -1), a.transpose(-2, -1), alpha, beta, out.transpose(-2, -1));
  const Operand left(a), right(b);
  Floats::dispatch(out.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    backplane::launch(
        out.device().index(),
        [m = out.size(-2), n = out.size(-1), k = a.size(-1), count = out.dim() == 3 ? out.size(0) : 1, alpha, beta, left = left.matrices,
         right = right.matrices, to = *to, pa = backplane::const_device_ptr<T>(left.tensor),
         pb = backplane::const_device_ptr<T>(right.tensor), pc = backplane::device_ptr<T>(out)](const backplane::DeviceMemory& memory) {
          const T* const a = memory(pa);
          const T* const b = memory(pb);
          T* const c = memory(pc);
          for (int64_t i = 0; i < count; ++i) {
            matmul_library::gemm(left.transposed, right.transposed, m, n, k, alpha, a + i * left.batch_stride, left.leading,
                                 b + i * right.batch_stride, right.leading, beta, c + i * to.batch_stride, to.leading);
          }
        });
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
