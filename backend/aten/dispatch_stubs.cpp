// aten/dispatch_stubs.cpp: torch's own kernels for all devices call functions from a table per device type, and fail with an internal
// assert where a device has none. These are the tables that a call with tensors of the device can reach.
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/i0.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

namespace backplane::dispatch_stubs_impl {
namespace {

// One number for each column of indices of a sparse tensor, which the check of invariants compares.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef size) {
  at::Tensor flat = indices.select(0, 0);
  for (int64_t dim = 1; dim < indices.size(0); ++dim) flat = flat.mul(size[static_cast<size_t>(dim)]).add(indices.select(0, dim));
  return flat.to(c10::kLong);
}

// The window at the positions of the input, 0 ... length - 1. Half types are computed in float32, as on the CPU.
void kaiser_window(at::TensorIteratorBase& iter, int64_t length, double beta) {
  const double middle = static_cast<double>(length - 1) / 2;
  const at::Tensor& places = iter.tensor(1);
  const at::Tensor wide = c10::isReducedFloatingType(places.scalar_type()) ? places.to(c10::kFloat) : places;
  const at::Tensor from_middle = wide.sub(middle).div(middle);
  const double most = at::i0(at::scalar_tensor(beta, c10::kDouble)).item<double>();
  iter.tensor(0).copy_(at::i0(from_middle.square().neg().add(1).sqrt().mul(beta)).div(most));
}

}  // namespace
}  // namespace backplane::dispatch_stubs_impl

namespace at::native {
// torch installs no header that declares this. Weak, so that the library loads with a torch without it.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
extern TORCH_API struct flatten_indices_stub_DECLARE_DISPATCH_type flatten_indices_stub __attribute__((weak));

static const bool has_stubs = [] {
  if (&flatten_indices_stub != nullptr) flatten_indices_stub.set_privateuse1_dispatch_ptr(&backplane::dispatch_stubs_impl::flatten_indices);
  kaiser_window_stub.set_privateuse1_dispatch_ptr(&backplane::dispatch_stubs_impl::kaiser_window);
  return true;
}();
}  // namespace at::native
