// aten/loan.cpp: lending device memory to the CPU and taking it back.
#include "aten/loan.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <cstring>

#include "aten/copy.h"
#include "aten/tensors.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {
namespace loan_impl {
namespace {

constexpr size_t kFew = 16;  // up to here looking through a list is faster than hashing

at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  if (C10_UNLIKELY(like.is_conj())) tensor._set_conj(true);
  if (C10_UNLIKELY(like.is_neg())) tensor._set_neg(true);
  return tensor;
}

// A data pointer into a storage that it keeps alive.
c10::DataPtr borrow(const c10::Storage& storage, c10::Device device) {
  c10::StorageImpl* const owner = storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(owner);
  void* const memory = const_cast<void*>(storage.data());  // who may write is the operator's schema's business
  return {memory, owner, [](void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }, device};
}

uint64_t span_begin(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize(); }

uint64_t span_end(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
}

}  // namespace
}  // namespace loan_impl

size_t Loan::lend(const at::Tensor& tensor, bool written) {
  const void* const identity = tensor.unsafeGetTensorImpl();
  if (lent_.size() < loan_impl::kFew) {
    for (size_t i = 0; i < lent_.size(); ++i) {
      if (lent_[i].device.unsafeGetTensorImpl() != identity) continue;
      lent_[i].written |= written;
      return i;
    }
  } else {
    if (known_.empty()) {
      for (size_t i = 0; i < lent_.size(); ++i) known_.emplace(lent_[i].device.unsafeGetTensorImpl(), i);
      for (size_t i = 0; i < storages_.size(); ++i) known_.emplace(storages_[i].device.unsafeGetStorageImpl(), i);
    }
    const auto [found, is_new] = known_.emplace(identity, lent_.size());
    if (!is_new) {
      lent_[found->second].written |= written;
      return found->second;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided && !tensor.is_quantized() && tensor.has_storage(), "the CPU fallback of ",
                              device_name(), " takes dense tensors only; it got one with layout ", tensor.layout(),
                              tensor.is_quantized() ? ", quantized" : "");
  lent_.push_back({tensor, {}, written, share(tensor)});
  return lent_.size() - 1;
}

size_t Loan::share(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const c10::StorageImpl* const identity = storage.unsafeGetStorageImpl();
  std::optional<size_t> index;
  if (known_.empty()) {
    for (size_t i = 0; i < storages_.size() && !index; ++i) {
      if (storages_[i].device.unsafeGetStorageImpl() == identity) index = i;
    }
  } else {
    const auto [found, is_new] = known_.emplace(identity, storages_.size());
    if (!is_new) index = found->second;
  }
  const bool has_elements = tensor.numel() > 0;
  const uint64_t begin = has_elements ? loan_impl::span_begin(tensor) : 0;
  const uint64_t end = has_elements ? loan_impl::span_end(tensor) : 0;
  if (!index) {
    storages_.push_back({storage, {}, nullptr, begin, end});
    return storages_.size() - 1;
  }
  SharedStorage& shared = storages_[*index];
  if (has_elements && shared.end == 0) {
    shared.begin = begin;
    shared.end = end;
  } else if (has_elements) {
    shared.begin = std::min(shared.begin, begin);
    shared.end = std::max(shared.end, end);
  }
  return *index;
}

void Loan::open(c10::DeviceIndex device) {
  device_ = device;
  zero_copy_ = open_driver().zero_copy;
  const c10::Stream stream = current_stream(device);
  if (zero_copy_) {
    if (!query_stream(stream)) synchronize_stream(stream);
    host_memory_.emplace(device);
    for (SharedStorage& shared : storages_) open_alias(shared);
  } else {
    for (SharedStorage& shared : storages_) open_staged(shared);
    synchronize_stream(stream);
  }
  for (Lent& lent : lent_) lent.host = make_host(lent);
}

void Loan::open_alias(SharedStorage& shared) const {
  shared.begin = 0;
  shared.host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(shared.device.nbytes()),
      loan_impl::borrow(shared.device, c10::Device(c10::kCPU)), host_memory_allocator(), shared.device.resizable()));
  shared.lent_data = shared.host.data();
}

// Queues the copy. The staged storage begins at a multiple of 16, the largest element, so that offsets stay whole.
void Loan::open_staged(SharedStorage& shared) const {
  shared.begin &= ~uint64_t{15};
  const auto bytes = static_cast<int64_t>(shared.end - shared.begin);
  const at::Tensor staged = pinned_tensor({bytes}, {1}, c10::kByte);
  if (bytes > 0) {
    const CopyEnd from{reinterpret_cast<uint64_t>(shared.device.data()) + shared.begin, device_};
    copy_bytes({reinterpret_cast<uint64_t>(staged.mutable_data_ptr()), -1}, from, bytes, current_stream(device_), /*async=*/true);
  }
  shared.host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                   loan_impl::borrow(staged.storage(), c10::Device(c10::kCPU)),
                                                                   c10::GetCPUAllocator(), shared.device.resizable()));
  shared.lent_data = shared.host.data();
}

at::Tensor Loan::make_host(const Lent& lent) const {
  const SharedStorage& shared = storages_[lent.storage];
  const int64_t shift = static_cast<int64_t>(shared.begin / lent.device.itemsize());
  const int64_t offset = lent.device.numel() == 0 ? 0 : lent.device.storage_offset() - shift;
  at::Tensor host =
      loan_impl::make_tensor(shared.host, c10::DispatchKey::CPU, lent.device, zero_copy_ ? lent.device.storage_offset() : offset);
  if (C10_UNLIKELY(lent.device.unsafeGetTensorImpl()->is_wrapped_number())) host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return host;
}

void Loan::close() {
  if (zero_copy_) {
    for (SharedStorage& shared : storages_) {
      if (C10_UNLIKELY(shared.host.data() != shared.lent_data)) adopt_growth(shared);
    }
  }
  for (const Lent& lent : lent_) {
    if (lent.written) bring_back(lent);
  }
}

// The operator let an aliased storage grow, by device memory under a CPU label.
void Loan::adopt_growth(SharedStorage& shared) {
  const size_t bytes = shared.host.nbytes();
  c10::DataPtr grown = shared.host.set_data_ptr({nullptr, c10::Device(c10::kCPU)});
  if (host_memory_->owns(grown)) {
    shared.device.set_data_ptr_noswap(relabel(std::move(grown), c10::Device(kDevice, device_)));
  } else {
    c10::Storage fresh = empty_storage(bytes, device_);
    std::memcpy(fresh.mutable_data(), grown.get(), bytes);
    shared.device.set_data_ptr_noswap(fresh.set_data_ptr({nullptr, c10::Device(kDevice, device_)}));
  }
  shared.device.set_nbytes(bytes);
}

void Loan::bring_back(const Lent& lent) {
  const SharedStorage& shared = storages_[lent.storage];
  c10::TensorImpl* const device = lent.device.unsafeGetTensorImpl();
  const at::Tensor& host = lent.host;
  if (C10_UNLIKELY(!host.storage().is_alias_of(shared.host))) {  // the operator set another storage
    device->set_storage_keep_dtype(adopt(host.storage(), /*sole_owner=*/false));
    device->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    return;
  }
  if (zero_copy_) {
    if (device->sizes() != host.sizes() || device->strides() != host.strides() || device->storage_offset() != host.storage_offset()) {
      device->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
    return;
  }
  resize_tensor(device, host.sizes(), host.strides());
  if (host.numel() > 0) copy_tensor(host, lent.device);
}

std::optional<size_t> Loan::find_host(const c10::StorageImpl* host) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (storages_[i].host.unsafeGetStorageImpl() == host) return i;
  }
  return std::nullopt;
}

at::Tensor Loan::take(at::Tensor result) {
  if (!result.defined() || !result.device().is_cpu()) return result;
  for (const Lent& lent : lent_) {
    if (lent.host.is_same(result)) return lent.device;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided && !result.is_quantized() && result.has_storage(), "the CPU fallback of ",
                              device_name(), " returns dense tensors only; the operator made one with layout ", result.layout(),
                              result.is_quantized() ? ", quantized" : "", ". Move its arguments to the CPU first");
  const c10::Storage& host = result.storage();
  if (const auto index = find_host(host.unsafeGetStorageImpl())) {
    const SharedStorage& shared = storages_[*index];
    const auto shift = static_cast<int64_t>(shared.begin / result.itemsize());
    return loan_impl::make_tensor(shared.device, c10::DispatchKey::PrivateUse1, result, result.storage_offset() + shift);
  }
  const bool sole_owner = result.use_count() == 1 && host.use_count() == 1;
  return loan_impl::make_tensor(adopt(host, sole_owner), c10::DispatchKey::PrivateUse1, result, result.storage_offset());
}

// A device storage with a CPU storage's bytes: its very memory where that is the device's and nobody else knows it.
c10::Storage Loan::adopt(c10::Storage host, bool sole_owner) {
  for (const auto& [known, device] : adopted_) {
    if (known.is_alias_of(host)) return device;
  }
  if (sole_owner && zero_copy_ && host_memory_->owns(host.data_ptr())) {
    const size_t bytes = host.nbytes();
    c10::Allocator* const allocator = c10::GetAllocator(kDevice);
    return c10::Storage(c10::make_storage_impl(c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
                                               relabel(host.set_data_ptr({nullptr, c10::Device(c10::kCPU)}), c10::Device(kDevice, device_)),
                                               allocator, /*resizable=*/true, c10::Device(kDevice, device_)));
  }
  c10::Storage device = empty_storage(host.nbytes(), device_);
  if (host.nbytes() > 0) {
    if (zero_copy_) {
      const c10::Stream stream = current_stream(device_);
      if (!query_stream(stream)) synchronize_stream(stream);  // the block may have been freed with work in flight
      std::memcpy(device.mutable_data(), host.data(), host.nbytes());
    } else {
      copy_bytes({reinterpret_cast<uint64_t>(device.mutable_data()), device_}, {reinterpret_cast<uint64_t>(host.data()), -1}, host.nbytes(),
                 current_stream(device_), /*async=*/false);
    }
  }
  adopted_.emplace_back(std::move(host), device);
  return device;
}

}  // namespace backplane
