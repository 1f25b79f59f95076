// tests/device/cpp/half_ops.cpp: operators whose CPU kernels do not support half types, with the error of a dispatch over dtypes, as
// torchvision's.
#include <ATen/Dispatch.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace {

#define CHECK_DTYPE(x, name) AT_DISPATCH_FLOATING_TYPES((x).scalar_type(), name, [] {})

// Of positive numbers the places, as nms has: a result of another dtype.
at::Tensor positive(const at::Tensor& x, const at::Tensor& scores) {
  TORCH_CHECK(x.scalar_type() == scores.scalar_type(), "x should have the same type as scores");
  CHECK_DTYPE(x, "positive_kernel");
  return x.mul(scores).gt(0).nonzero().flatten();
}

// Writes before it finds out.
at::Tensor& add_and_double_(at::Tensor& x) {
  x.add_(1);
  CHECK_DTYPE(x, "double_kernel");
  return x.mul_(2);
}

// Draws before it finds out.
at::Tensor noisy(const at::Tensor& x, std::optional<at::Generator> generator) {
  const at::Tensor noise = at::empty(x.sizes(), x.options().dtype(c10::kDouble)).uniform_(0, 1, generator);
  CHECK_DTYPE(x, "noisy_kernel");
  return x.add(noise.to(x.scalar_type()));
}

std::vector<at::Tensor> halves(at::TensorList xs) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& x : xs) {
    CHECK_DTYPE(x, "halves_kernel");
    results.push_back(x.div(2));
  }
  return results;
}

at::Tensor thirds(const at::Tensor& like, std::optional<c10::ScalarType> dtype) {
  const at::Tensor x = at::empty(like.sizes(), like.options().dtype(dtype.value_or(like.scalar_type())));
  CHECK_DTYPE(x, "thirds_kernel");
  return x.fill_(1.0 / 3);
}

at::Tensor never(const at::Tensor& x) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "\"never_kernel\" not implemented for '", x.scalar_type(), "'");
}

at::Tensor fails(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "fails: two dimensions are needed, not ", x.dim());
  CHECK_DTYPE(x, "fails_kernel");
  return x.clone();
}

}  // namespace

TORCH_LIBRARY(bphalf, m) {
  m.def("positive(Tensor x, Tensor scores) -> Tensor");
  m.def("add_and_double_(Tensor(a!) x) -> Tensor(a!)");
  m.def("noisy(Tensor x, Generator? generator=None) -> Tensor");
  m.def("halves(Tensor[] xs) -> Tensor[]");
  m.def("thirds(Tensor like, *, ScalarType? dtype=None) -> Tensor");
  m.def("never(Tensor x) -> Tensor");
  m.def("fails(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(bphalf, CPU, m) {
  m.impl("positive", &positive);
  m.impl("add_and_double_", &add_and_double_);
  m.impl("noisy", &noisy);
  m.impl("halves", &halves);
  m.impl("thirds", &thirds);
  m.impl("never", &never);
  m.impl("fails", &fails);
}
