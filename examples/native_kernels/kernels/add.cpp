// kernels/add.cpp: aten::add.Tensor by the chip's own acme_add, in its three forms: float32, without gaps. The rest is left to the
// fallback.
#include <ATen/ops/add_meta.h>
#include <backplane/structured.h>

#include "acme.h"

namespace {

struct Add {
  using Takes = backplane::Dtypes<float>;

  static bool takes(const at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Scalar&) {
    return backplane::is_flat(iter);
  }

  // ATen has made the output, or checked the one it was given. An iterator without elements has no kernel to launch.
  static void run(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor&, const at::Scalar& alpha, const at::Tensor& out) {
    if (iter.numel() == 0) return;
    const backplane::NativeLaunch launch(out.device().index(), "acme_add");
    acme_add(reinterpret_cast<acme_queue*>(launch.stream()), static_cast<float*>(iter.data_ptr(0)),
             static_cast<const float*>(iter.data_ptr(1)), static_cast<const float*>(iter.data_ptr(2)), alpha.to<float>(), iter.numel());
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) { backplane::structured<at::meta::structured_add_Tensor, Add>(m, {"add.Tensor", "add.out", "add_.Tensor"}); }
