// dispatch/structured.cpp: what backplane/structured.h requires of the core: outputs by ATen's rules, and the fallback.
#include <backplane/signature.h>
#include <backplane/structured.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided.h>

#include "dispatch/defaults.h"
#include "tensor/tensors.h"

namespace backplane {

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device) {
  return empty_tensor(sizes, dtype, resolve_device(device));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype, c10::DeviceIndex device) {
  return empty_strided_tensor(sizes, strides, dtype, resolve_device(device));
}

bool is_flat(const at::TensorIteratorBase& iter) {
  for (int i = 0; i < iter.ntensors(); ++i) {
    if (iter.is_cpu_scalar(i) || iter.dtype(i) != iter.dtype(0)) return false;
  }
  return iter.is_contiguous();
}

namespace detail {
namespace {

at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options) {
  const c10::DeviceIndex device = resolve_device(options.device().index());
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  return strides.empty() ? empty_tensor(sizes, dtype, device, options.memory_format_opt())
                         : empty_strided_tensor(sizes, strides, dtype, device);
}

void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ", out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ", out.device(),
              " instead");
  if (!at::native::resize_output(out, sizes)) return;  // if it was not resized, it keeps its own strides
  if (!strides.empty()) {
    out.as_strided_(sizes, strides);
  } else if (options.memory_format_opt()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const c10::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(), " and output tensor dtype ",
              options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(), " and output tensor device ",
              options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ", sizes,
              " should match");
}

}  // namespace

std::optional<at::Tensor> prepare_output(Form form, at::Tensor& output, at::IntArrayRef sizes, at::IntArrayRef strides,
                                         const c10::TensorOptions& options, bool exact_strides) {
  switch (form) {
    case Form::functional:
      output = make_output(sizes, strides, options);
      return std::nullopt;
    case Form::out:
      resize_out(output, sizes, strides, options);
      break;
    case Form::inplace:
      check_inplace(output, sizes, options);
      break;
  }
  if (!exact_strides || output.strides() == strides) return std::nullopt;
  return make_output(sizes, strides, options);
}

void check_overlap(const at::Tensor& output) { at::assert_no_internal_overlap(output); }

void copy_back(const at::Tensor& proxy, const at::Tensor& output) { output.copy_(proxy); }

void check_same_device(const at::Tensor& first, const at::Tensor& other, const char* form) {
  if (C10_LIKELY(first.device() == other.device())) return;
  c10::impl::common_device_check_failure(first.device(), other, form, "an argument");
}

Stack run_fallback(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments) {
  Stack stack;
  stack.reserve(pushes.size());
  for (size_t i = 0; i < pushes.size(); ++i) pushes[i](stack, arguments[i]);
  decline(find_operator(name), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
  return stack;
}

at::Tensor run_fallback_for_tensor(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments) {
  return std::move(run_fallback(name, pushes, arguments)[0]).toTensor();
}

void run_fallback_in_place(const char* name, c10::ArrayRef<Push> pushes, const void* const* arguments) {
  run_fallback(name, pushes, arguments);
}

}  // namespace detail
}  // namespace backplane
