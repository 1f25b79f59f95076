// tests/device/cpp/bad_kernels.cpp: kernels that cannot be registered: no such operator, another signature.
#include <ATen/core/Tensor.h>
#include <backplane/registration.h>

namespace {
at::Tensor same(const at::Tensor& self, const at::Tensor&, const at::Scalar&) { return self; }
}  // namespace

BACKPLANE_KERNELS(aten, m) { m.impl("addd.Tensor", &same); }

BACKPLANE_KERNELS(aten, m) { m.impl("mul.Tensor", &same); }
