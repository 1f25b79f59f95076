// kernels/relu.cpp: aten::relu by the chip's own acme_relu: contiguous float32. An operator without a meta class makes its own result.
#include <backplane/structured.h>

#include "acme.h"

namespace {

struct Relu {
  using Takes = backplane::Dtypes<float>;
  static bool takes(const at::Tensor& self) { return self.is_contiguous() && self.numel() > 0; }

  static at::Tensor run(const at::Tensor& self) {
    at::Tensor out = backplane::empty(self.sizes(), self.scalar_type(), self.device().index());
    const backplane::NativeLaunch launch(self.device().index(), "acme_relu");
    acme_relu(reinterpret_cast<acme_queue*>(launch.stream()), out.mutable_data_ptr<float>(), self.const_data_ptr<float>(), self.numel());
    return out;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) { backplane::function<Relu>(m, "relu"); }
