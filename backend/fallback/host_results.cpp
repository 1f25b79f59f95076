// fallback/host_results.cpp: the second half of HostArguments: moves what the operator wrote and returned to the device.
#include "fallback/host_arguments.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cstring>

#include "memory/storage.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "tensor/copy.h"
#include "tensor/tensors.h"

namespace backplane {
namespace host_results_impl {
namespace {

// The operator has run, so its results are available: a dense copy is queued without a wait, which pinned memory with gaps would require.
at::Tensor dense(const at::Tensor& staged) {
  if (C10_LIKELY(staged.is_non_overlapping_and_dense())) return staged;
  at::Tensor packed = pinned_tensor(staged.sizes(), c10::contiguous_strides(staged.sizes()), staged.scalar_type());
  packed._set_conj(staged.is_conj());
  packed._set_neg(staged.is_neg());
  return packed.copy_(staged);
}

// A view is an inference tensor if its base is one, whatever the mode in which it is created.
class ModeOf {
 public:
  explicit ModeOf(const at::Tensor& base) {
    if (C10_UNLIKELY(base.is_inference() != c10::InferenceMode::is_enabled())) mode_.emplace(base.is_inference());
  }

 private:
  std::optional<c10::InferenceMode> mode_;
};

}  // namespace
}  // namespace host_results_impl

void HostArguments::close() {
  if (aliases_) {
    for (ArgumentStorage& shared : storages_) {
      if (C10_UNLIKELY(shared.host.data() != shared.host_data)) {
        adopt_growth(shared);
      } else if (C10_UNLIKELY(shared.host_data != shared.device.data())) {
        check_memory(shared);
      }
    }
  }
  for (const Argument& argument : arguments_) {
    if (!is_written(argument.use)) continue;
    argument.is_compound ? copy_back_compound(argument) : copy_back(argument);
  }
}

// The operator grew an aliased storage, in device memory with a CPU device.
void HostArguments::adopt_growth(ArgumentStorage& shared) {
  const size_t bytes = shared.host.nbytes();
  c10::DataPtr grown = shared.host.set_data_ptr({nullptr, c10::Device(c10::kCPU)});
  if (host_memory_ && host_memory_->owns(grown)) {
    shared.device.set_data_ptr_noswap(host_memory_->to_device_memory(std::move(grown)));
  } else {
    c10::Storage fresh = empty_storage(bytes, device_);
    std::memcpy(fresh.mutable_data(), grown.get(), bytes);
    shared.device.set_data_ptr_noswap(fresh.set_data_ptr({nullptr, c10::Device(kDevice, device_)}));
  }
  shared.device.set_nbytes(bytes);
}

void HostArguments::copy_back(const Argument& argument) {
  const ArgumentStorage& shared = storages_[argument.index];
  c10::TensorImpl* const device = argument.device.unsafeGetTensorImpl();
  const at::Tensor& host = argument.host;
  const bool is_another = !host.storage().is_alias_of(shared.host);
  if (C10_UNLIKELY(is_another)) {  // the operator set another storage
    device->set_storage_keep_dtype(adopt(host.storage(), /*sole_owner=*/false));
    device->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  } else if (!aliases_) {
    resize_tensor(device, host.sizes(), host.strides());
  } else if (device->sizes() != host.sizes() || device->strides() != host.strides() || device->storage_offset() != host.storage_offset()) {
    device->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
  // linalg_lu_solve sets the conjugate bit of its out.
  if (C10_UNLIKELY(host.is_conj() != argument.device.is_conj())) argument.device._set_conj(host.is_conj());
  if (aliases_ || is_another || host.numel() == 0) return;
  check_span(argument.device);
  traffic_.to_device += host.nbytes();
  const bool is_run = small_ && host.is_non_overlapping_and_dense() && host.strides() == argument.device.strides() &&
                      host.is_neg() == argument.device.is_neg() && host.nbytes() <= kSmall;
  if (is_run && small_->send(reinterpret_cast<uint64_t>(argument.device.mutable_data_ptr()), host.const_data_ptr(), host.nbytes())) return;
  // Elements may share memory.
  copy_tensor(host_results_impl::dense(without_repeats(host)), without_repeats(argument.device), /*non_blocking=*/true);
}

void HostArguments::copy_back_compound(const Argument& argument) {
  const Compound& compound = compounds_[argument.index];
  if (compound.storage && !aliases_) copy_back_storage(storages_[*compound.storage]);
  Memory memory = memory_of(argument.host);
  for (at::Tensor& part : memory.tensors) part = take(std::move(part));
  if (memory.storage) memory.storage = take_storage(std::move(memory.storage), /*sole_owner=*/false);
  assign_compound(argument.device, argument.host, memory);
}

void HostArguments::copy_back_storage(const ArgumentStorage& shared) {
  const size_t bytes = shared.host.nbytes();
  if (bytes > shared.device.nbytes()) overrides().resize_storage.get()(shared.device, bytes);
  queue_to_device(shared.device, shared.host, bytes);
}

// Returns at once: memory that is not pinned may be freed soon, and is staged.
void HostArguments::queue_to_device(const c10::Storage& device, const c10::Storage& host, uint64_t bytes) {
  if (bytes == 0) return;
  traffic_.to_device += bytes;
  const c10::Stream stream = current_stream(device_);
  if (!aliases_ && !small_ && bytes <= kSmall) small_.emplace(stream);
  const auto address = reinterpret_cast<uint64_t>(device.mutable_data());
  if (small_ && small_->send(address, host.data(), bytes)) return;
  const at::Tensor staged = pinned_tensor({static_cast<int64_t>(bytes)}, {1}, c10::kByte);
  std::memcpy(staged.mutable_data_ptr(), host.data(), bytes);
  copy_bytes({address, device_}, {reinterpret_cast<uint64_t>(staged.const_data_ptr()), -1}, bytes, stream, /*async=*/true);
  record_pinned(staged, stream);
}

std::optional<size_t> HostArguments::find_host(const c10::StorageImpl* host) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (storages_[i].host.unsafeGetStorageImpl() == host) return i;
  }
  return std::nullopt;
}

// The first tensor that was added for a storage.
const at::Tensor& HostArguments::owner_of(size_t storage) const {
  const auto owns = [&](const Argument& argument) {
    return (argument.is_compound ? compounds_[argument.index].storage : std::optional(argument.index)) == std::optional<uint32_t>(storage);
  };
  return std::find_if(arguments_.begin(), arguments_.end(), owns)->device;
}

at::Tensor HostArguments::take(at::Tensor result) {
  if (!result.defined() || !result.device().is_cpu()) return result;
  for (const Argument& argument : arguments_) {
    if (argument.host.is_same(result)) return argument.device;
  }
  if (C10_UNLIKELY(!is_dense_kind(result))) return take_compound(result);
  const c10::Storage& host = result.storage();
  if (const auto index = find_host(host.unsafeGetStorageImpl())) {
    const ArgumentStorage& shared = storages_[*index];
    const auto shift = static_cast<int64_t>(shared.begin / result.itemsize());
    const host_results_impl::ModeOf mode(owner_of(*index));
    return make_tensor(shared.device, c10::DispatchKey::PrivateUse1, result, result.storage_offset() + shift);
  }
  const bool sole_owner = result.use_count() == 1 && host.use_count() == 1;
  return make_tensor(adopt(host, sole_owner), c10::DispatchKey::PrivateUse1, result, result.storage_offset());
}

at::Tensor HostArguments::take_compound(const at::Tensor& result) {
  TORCH_CHECK_NOT_IMPLEMENTED(has_kind(result), "the operator returned a tensor of layout ", result.layout(), " on the CPU, which ",
                              device_name(), " does not support. Move its arguments to the CPU first");
  Memory memory = memory_of(result);
  if (result.use_count() == 1) result.unsafeGetTensorImpl()->release_resources();  // so that its memory has one owner and can be adopted
  for (at::Tensor& part : memory.tensors) part = take(std::move(part));
  if (!memory.storage) return compound_tensor(result, memory, c10::Device(kDevice, device_));
  if (const auto index = find_host(memory.storage.unsafeGetStorageImpl())) {
    memory.storage = storages_[*index].device;
    const host_results_impl::ModeOf mode(owner_of(*index));
    return compound_tensor(result, memory, c10::Device(kDevice, device_));
  }
  const bool sole_owner = memory.storage.use_count() == 1;
  memory.storage = adopt(std::move(memory.storage), sole_owner);
  return compound_tensor(result, memory, c10::Device(kDevice, device_));
}

c10::Storage HostArguments::take_storage(c10::Storage host, bool sole_owner) {
  if (const auto index = find_host(host.unsafeGetStorageImpl())) return storages_[*index].device;
  return adopt(std::move(host), sole_owner);
}

// A device storage with a CPU storage's bytes: the same memory if it is the device's and has no other owner.
c10::Storage HostArguments::adopt(c10::Storage host, bool sole_owner) {
  for (const auto& [known, device] : adopted_) {
    if (known.is_alias_of(host)) return device;
  }
  const size_t bytes = host.nbytes();
  if (sole_owner && host_memory_ && host_memory_->owns(host.data_ptr())) {
    traffic_.shared += bytes;
    return new_storage(bytes, host_memory_->to_device_memory(host.set_data_ptr({nullptr, c10::Device(c10::kCPU)})));
  }
  c10::Storage device = empty_storage(bytes, device_);
  if (host_memory_ && bytes > 0) {  // the host can access it
    const c10::Stream stream = current_stream(device_);
    if (!query_stream(stream)) {  // the block may have been freed with queued work
      about_to_wait("it runs on the CPU");
      synchronize_stream(stream);
    }
    std::memcpy(device.mutable_data(), host.data(), bytes);
    traffic_.to_device += bytes;
  } else {
    queue_to_device(device, host, bytes);
  }
  adopted_.emplace_back(std::move(host), device);
  return device;
}

}  // namespace backplane
