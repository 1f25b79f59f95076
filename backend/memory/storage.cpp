// memory/storage.cpp: the StorageImpl factory registered for the device, and storage resize.
#include "memory/storage.h"

#include <algorithm>

#include "runtime/device.h"

namespace backplane {
namespace storage_impl {
namespace {

c10::intrusive_ptr<c10::StorageImpl> create_core(c10::StorageImpl::use_byte_size_t use_byte_size, c10::SymInt bytes, c10::DataPtr data,
                                                 c10::Allocator* allocator, bool resizable) {
  // A null pointer that already has the device is an empty storage.
  if (data != nullptr || data.device().type() == kDevice) {
    return c10::make_intrusive<c10::StorageImpl>(use_byte_size, std::move(bytes), std::move(data), allocator, resizable);
  }
  return c10::make_intrusive<c10::StorageImpl>(use_byte_size, bytes, allocator, resizable);
}

c10::intrusive_ptr<c10::StorageImpl> create(c10::StorageImpl::use_byte_size_t use_byte_size, c10::SymInt bytes, c10::DataPtr data,
                                            c10::Allocator* allocator, bool resizable) {
  return storage_factory().get()(use_byte_size, std::move(bytes), std::move(data), allocator, resizable);
}

const bool registered = [] {
  storage_factory().core = &create_core;
  c10::SetStorageImplCreate(kDevice, &create);
  overrides().resize_storage.core = &resize_storage;
  return true;
}();

}  // namespace
}  // namespace storage_impl

Override<c10::StorageImplCreateHelper>& storage_factory() {
  static Override<c10::StorageImplCreateHelper> slot;
  return slot;
}

c10::Storage new_storage(size_t bytes, c10::DataPtr data) {
  return c10::Storage(storage_impl::create(c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(data),
                                           c10::GetAllocator(kDevice), /*resizable=*/true));
}

c10::Storage new_storage(size_t bytes) { return new_storage(bytes, c10::GetAllocator(kDevice)->allocate(bytes)); }

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  c10::Allocator* allocator = impl->allocator();
  TORCH_CHECK(allocator != nullptr, "Trying to resize storage without an allocator");
  const c10::Device device = impl->device();
  const DeviceSwitch guard(device.index());
  c10::DataPtr data = allocator->allocate(bytes);
  impl->mutable_data();  // a lazy clone gets its own memory first: torch keeps its mark after the exchange
  const size_t kept = std::min(bytes, impl->nbytes());
  if (kept != 0 && impl->data() != nullptr) allocator->copy_data(data.get(), impl->data(), kept);
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

}  // namespace backplane
