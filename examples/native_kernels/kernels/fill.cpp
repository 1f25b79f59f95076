// kernels/fill.cpp: aten::fill_.Scalar of what the driver's fill does not serve, by the chip's own acme_fill: rows with gaps between them,
// of float32. What is not taken comes back to the core.
#include <backplane/structured.h>

#include "acme.h"

namespace {

struct Fill {
  using Takes = backplane::Dtypes<float>;
  static bool takes(const at::Tensor& self, const at::Scalar& value) {
    return self.dim() == 2 && self.stride(1) == 1 && !self.is_contiguous() && !self.is_neg() && !value.isComplex();
  }

  static at::Tensor& run(at::Tensor& self, const at::Scalar& value) {
    const float pattern = value.to<float>();
    float* const data = self.mutable_data_ptr<float>();
    const backplane::NativeLaunch launch(self.device().index(), "acme_fill");
    for (int64_t row = 0; row < self.size(0); ++row) {
      acme_fill(reinterpret_cast<acme_queue*>(launch.stream()), data + row * self.stride(0), &pattern, sizeof(pattern),
                static_cast<uint64_t>(self.size(1)));
    }
    return self;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) { backplane::function<Fill>(m, "fill_.Scalar"); }
