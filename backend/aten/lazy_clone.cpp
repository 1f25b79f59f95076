// aten/lazy_clone.cpp: copy-on-write clones: the first write allocates on the clone's own device, whichever is current.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_lazy_clone_native.h>

#include <array>

#include "dispatch/core_kernels.h"
#include "tensor/tensors.h"

namespace backplane::lazy_clone_impl {
namespace {

// The device's allocator, on one device. c10 asks a storage's allocator for the memory of the first write, deep inside the writing code.
class AllocatorOn final : public c10::Allocator {
 public:
  explicit AllocatorOn(c10::DeviceIndex device) : device_(device) {}

  c10::DataPtr allocate(size_t bytes) override {
    const DeviceSwitch guard(device_);
    return inner().allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner().raw_deleter(); }
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    const DeviceSwitch guard(device_);
    inner().copy_data(dst, src, bytes);
  }

 private:
  static c10::Allocator& inner() { return *c10::GetAllocator(kDevice); }

  c10::DeviceIndex device_;
};

c10::Allocator* allocator_on(c10::DeviceIndex device) {
  static auto* const allocators = [] {  // lives until the end of the process, as storages may
    auto* const all = new std::array<AllocatorOn*, kMaxDevices>;
    for (size_t i = 0; i < all->size(); ++i) (*all)[i] = new AllocatorOn(static_cast<c10::DeviceIndex>(i));
    return all;
  }();
  return allocators->at(static_cast<size_t>(device));
}

at::Tensor lazy_clone(const at::Tensor& self) {
  at::Tensor clone = with_metadata(at::native::_lazy_clone(self), self);
  for (const at::Tensor& tensor : {self, clone}) {
    tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_allocator(allocator_on(self.device().index()));
  }
  return clone;
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_lazy_clone", &lazy_clone); }

}  // namespace backplane::lazy_clone_impl
