// aten/factories.cpp: the two factories that all others are built on, and the zero tensor without memory.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/fill.h>
#include <c10/core/StorageImpl.h>

#include <limits>

#include "dispatch/core_kernels.h"
#include "runtime/options.h"
#include "tensor/tensors.h"

namespace backplane {

namespace factories_impl {
namespace {

// Memory for a tensor that is known to be zero: none. Its bytes are never read, because of the ZeroTensor key.
class NoMemory final : public c10::Allocator {
 public:
  explicit NoMemory(c10::Device device) : device_(device) {}
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &do_nothing, device_}; }
  c10::DeleterFnPtr raw_deleter() const override { return &do_nothing; }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_INTERNAL_ASSERT(false, "a zero tensor has no bytes"); }

 private:
  static void do_nothing(void*) {}
  c10::Device device_;
};

}  // namespace
}  // namespace factories_impl

// The ZeroTensor key makes it a zero tensor.
at::Tensor zero_tensor(at::IntArrayRef size, c10::ScalarType dtype, c10::Device device) {
  factories_impl::NoMemory allocator(device);
  const auto backend = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet({backend, c10::DispatchKey::ZeroTensor}), dtype, std::nullopt);
}

namespace factories_impl {
namespace {

// torch warns of this for its own devices' tensors, in code that its headers do not export.
void warn_of_complex_half(c10::ScalarType dtype) {
  if (C10_UNLIKELY(dtype == c10::kComplexHalf)) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

// Checks the options that do not affect the shape; returns the device index.
c10::DeviceIndex checked_device(std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout || *layout == c10::kStrided, "empty on ", device_name(), " makes strided tensors; layout ", *layout,
              " was asked for");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned; pin_memory=True was asked for on ", device_name());
  if (!device) return current_device();
  TORCH_INTERNAL_ASSERT(device->type() == kDevice);
  return resolve_device(device->index());
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  warn_of_complex_half(c10::dtype_or_default(dtype));
  at::Tensor result = empty_tensor(size, c10::dtype_or_default(dtype), checked_device(layout, device, pin_memory), format);
  if (C10_UNLIKELY(fills_uninitialized())) fill_uninitialized(result);
  return result;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  warn_of_complex_half(c10::dtype_or_default(dtype));
  at::Tensor result = empty_strided_tensor(size, stride, c10::dtype_or_default(dtype), checked_device(layout, device, pin_memory));
  if (C10_UNLIKELY(fills_uninitialized())) fill_uninitialized(result);
  return result;
}

at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                               std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return zero_tensor(size, c10::dtype_or_default(dtype), c10::Device(kDevice, checked_device(layout, device, pin_memory)));
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
}

// The result has the ZeroTensor key, under which torch's own backends register it too.
BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_efficientzerotensor", &efficientzerotensor); }

}  // namespace factories_impl
}  // namespace backplane
