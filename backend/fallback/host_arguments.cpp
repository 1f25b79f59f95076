// fallback/host_arguments.cpp: makes CPU tensors from device tensors.
#include "fallback/host_arguments.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

#include "memory/caching_allocator.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "tensor/copy.h"
#include "tensor/tensors.h"

namespace backplane {
namespace host_arguments_impl {
namespace {

constexpr size_t kFew = 16;           // up to this number a list is searched faster than a hash table
constexpr uint64_t kGaps = 12 << 10;  // gaps between operands that are copied along with them

// A data pointer into a storage that it keeps alive.
c10::DataPtr borrow(const c10::Storage& storage, c10::Device device, uint64_t offset = 0) {
  c10::StorageImpl* const owner = storage.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(owner);
  // The operator's schema defines what is written.
  void* const memory = const_cast<char*>(static_cast<const char*>(storage.data())) + offset;
  return {memory, owner, [](void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }, device};
}

template <typename Shared>
uint64_t address_of(const Shared& shared) {
  return reinterpret_cast<uint64_t>(shared.device.data()) + shared.begin;
}

// `end` is 0 if all tensors of the storage are empty.
template <typename Shared>
uint64_t staged_bytes(const Shared& shared) {
  return shared.end > shared.begin ? shared.end - shared.begin : 0;
}

// Positions in the small block are multiples of a cache line.
constexpr uint64_t rounded(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

}  // namespace
}  // namespace host_arguments_impl

at::Tensor HostArguments::make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  if (C10_UNLIKELY(like.is_conj())) tensor._set_conj(true);
  if (C10_UNLIKELY(like.is_neg())) tensor._set_neg(true);
  return tensor;
}

std::optional<size_t> HostArguments::find_argument(const at::Tensor& tensor, Use use) {
  const void* const identity = tensor.unsafeGetTensorImpl();
  if (arguments_.size() < host_arguments_impl::kFew) {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].device.unsafeGetTensorImpl() != identity) continue;
      arguments_[i].use = both(arguments_[i].use, use);
      return i;
    }
    return std::nullopt;
  }
  if (known_.empty()) {
    for (size_t i = 0; i < arguments_.size(); ++i) known_.emplace(arguments_[i].device.unsafeGetTensorImpl(), i);
    for (size_t i = 0; i < storages_.size(); ++i) known_.emplace(storages_[i].device.unsafeGetStorageImpl(), i);
  }
  const auto found = known_.find(identity);
  if (found == known_.end()) return std::nullopt;
  arguments_[found->second].use = both(arguments_[found->second].use, use);
  return found->second;
}

size_t HostArguments::add(const at::Tensor& tensor, Use use) {
  if (const auto found = find_argument(tensor, use)) {
    if (C10_UNLIKELY(arguments_[*found].is_compound)) {
      add_compound(tensor, use);  // its parts are used in the same way
    } else {
      storages_[arguments_[*found].index].use_also(use);
    }
    return *found;
  }
  if (C10_UNLIKELY(!is_dense_kind(tensor))) {
    TORCH_CHECK_NOT_IMPLEMENTED(has_kind(tensor), "the CPU fallback of ", device_name(), " does not support tensors of layout ",
                                tensor.layout());
    return add_compound(tensor, use);
  }
  arguments_.push_back({tensor, {}, use, false, share_span(tensor, use)});
  if (!known_.empty()) known_.emplace(tensor.unsafeGetTensorImpl(), arguments_.size() - 1);
  return arguments_.size() - 1;
}

// The parts come first, so that they are on the CPU before the whole is built.
size_t HostArguments::add_compound(const at::Tensor& tensor, Use use) {
  if (use == Use::write) use = Use::read_write;  // its layout is always read
  const Memory memory = memory_of(tensor);
  Compound compound;
  for (const at::Tensor& part : memory.tensors) {
    compound.parts.emplace_back(part, is_on_device(part) ? std::optional(add(part, use)) : std::nullopt);
  }
  if (const auto found = find_argument(tensor, use)) return *found;
  if (memory.storage) compound.storage = share(memory.storage, 0, memory.storage.nbytes(), use);
  compounds_.push_back(std::move(compound));
  arguments_.push_back({tensor, {}, use, true, static_cast<uint32_t>(compounds_.size() - 1)});
  if (!known_.empty()) known_.emplace(tensor.unsafeGetTensorImpl(), arguments_.size() - 1);
  return arguments_.size() - 1;
}

uint32_t HostArguments::share_span(const at::Tensor& tensor, Use use) {
  Span span = span_of(tensor);
  if (C10_UNLIKELY(tensor.numel() == 0)) {  // one element, if there is one: some operators read through other strides before they check
    span.end = span.begin + tensor.itemsize();
    if (span.end > tensor.storage().nbytes()) span = {0, 0};
  }
  return share(tensor.storage(), span.begin, span.end, use);
}

uint32_t HostArguments::share(const c10::Storage& storage, uint64_t begin, uint64_t end, Use use) {
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
  if (!index) {
    storages_.push_back({storage, {}, nullptr, begin, end, use});
    return static_cast<uint32_t>(storages_.size() - 1);
  }
  ArgumentStorage& shared = storages_[*index];
  shared.use_also(use);
  if (begin < end && shared.end == 0) {
    shared.begin = begin;
    shared.end = end;
  } else if (begin < end) {
    shared.begin = std::min(shared.begin, begin);
    shared.end = std::max(shared.end, end);
  }
  return static_cast<uint32_t>(*index);
}

// With zero-copy, also wait before memory is only written: queued device work may still use it.
bool HostArguments::must_wait() const {
  return std::any_of(storages_.begin(), storages_.end(),
                     [this](const ArgumentStorage& shared) { return shared.end > shared.begin && (aliases_ || is_read(shared.use)); });
}

// Raises for tensors over a storage that was resized below their size. Only an out= may be in this state, since the operator may let it
// grow.
void HostArguments::check_memory(const ArgumentStorage& shared) const {
  for (const Argument& argument : arguments_) {
    if (!argument.is_compound && &storages_[argument.index] == &shared) check_span(argument.device);
  }
}

void HostArguments::open(c10::DeviceIndex device, Content content, bool adopts) {
  device_ = device;
  const bool zero_copy = open_driver().zero_copy;
  aliases_ = zero_copy || content == Content::layout;
  const c10::Stream stream = current_stream(device);
  if (C10_LIKELY(content == Content::full)) {
    if (must_wait()) about_to_wait("it runs on the CPU");
    for (const ArgumentStorage& shared : storages_) {
      if (C10_UNLIKELY(!shared.has_memory() && (is_read(shared.use) || shared.device.nbytes() > 0))) check_memory(shared);
    }
    materialize_written();
  }
  if (aliases_) {
    if (content == Content::full && must_wait() && !query_stream(stream)) synchronize_stream(stream);
    if (zero_copy && adopts) host_memory_.emplace(device);
    for (ArgumentStorage& shared : storages_) {
      if (content == Content::full) traffic_.shared += shared.end - shared.begin;
      content == Content::layout || C10_LIKELY(shared.has_memory()) ? open_alias(shared) : open_without_memory(shared);
    }
  } else if (is_small()) {
    open_small(stream);
  } else {
    for (ArgumentStorage& shared : storages_) open_staged(shared);
    if (must_wait()) synchronize_stream(stream);
  }
  for (Argument& argument : arguments_) argument.host = argument.is_compound ? make_host_compound(argument) : make_host(argument);
  if (C10_UNLIKELY(!compounds_.empty())) {
    // Operators of sparse tensors on the CPU save what their gradients need only if the input requires one.
    for (Argument& argument : arguments_) {
      if (argument.device.requires_grad()) argument.host.set_requires_grad(true);
    }
  }
}

// A copy-on-write storage gets its own memory before the operator writes through an alias, which bypasses the copy, and before its address
// identifies it; the copy is queued.
void HostArguments::materialize_written() const {
  for (const ArgumentStorage& shared : storages_) {
    if (is_written(shared.use)) shared.device.mutable_data();
  }
}

void HostArguments::open_alias(ArgumentStorage& shared) const {
  shared.begin = 0;
  shared.host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(shared.device.nbytes()),
      host_arguments_impl::borrow(shared.device, c10::Device(c10::kCPU)), host_memory_allocator(), shared.device.resizable()));
  shared.host_data = shared.host.data();
}

// A storage without bytes, over memory that can be written: an operator that does not let it grow writes there, and close() raises.
void HostArguments::open_without_memory(ArgumentStorage& shared) {
  shared.begin = 0;
  auto* const place = new char[shared.end];
  c10::DataPtr data(place, place, [](void* bytes) { delete[] static_cast<char*>(bytes); }, c10::Device(c10::kCPU));
  shared.host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, std::move(data),
                                                                   host_memory_allocator(), shared.device.resizable()));
  shared.host_data = place;
}

// Queues the copy. The staged storage begins at a multiple of 16, the largest element, so that offsets are whole elements.
void HostArguments::open_staged(ArgumentStorage& shared) {
  shared.begin &= ~uint64_t{15};
  const auto bytes = static_cast<int64_t>(shared.end - shared.begin);
  const at::Tensor staged = pinned_tensor({bytes}, {1}, c10::kByte);
  if (bytes > 0 && is_read(shared.use)) {
    const CopyEnd from{reinterpret_cast<uint64_t>(shared.device.data()) + shared.begin, device_};
    copy_bytes({reinterpret_cast<uint64_t>(staged.mutable_data_ptr()), -1}, from, bytes, current_stream(device_), /*async=*/true);
    traffic_.to_host += bytes;
  }
  shared.host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                   host_arguments_impl::borrow(staged.storage(), c10::Device(c10::kCPU)),
                                                                   c10::GetCPUAllocator(), shared.device.resizable()));
  shared.host_data = shared.host.data();
}

// Whether all operands are staged in the thread's block, see Note [Small staging].
bool HostArguments::is_small() {
  uint64_t bytes = 0;
  for (ArgumentStorage& shared : storages_) {
    shared.begin &= ~uint64_t{15};
    bytes += host_arguments_impl::rounded(host_arguments_impl::staged_bytes(shared));
    if (bytes > kSmall) return false;
  }
  if (storages_.empty()) return false;
  small_.emplace(current_stream(device_));
  if (must_wait() || small_->check_quiet()) return true;
  small_.reset();
  return false;
}

// Operands that are close to each other are copied together, with the gaps between them. If nothing is queued, the last copy waits; else
// the wait can be interrupted by Ctrl-C.
void HostArguments::open_small(const c10::Stream& stream) {
  c10::SmallVector<ArgumentStorage*, 6> order;
  for (ArgumentStorage& shared : storages_) order.push_back(&shared);
  std::sort(order.begin(), order.end(), [](const ArgumentStorage* a, const ArgumentStorage* b) {
    return std::make_pair(!is_read(a->use), host_arguments_impl::address_of(*a)) <
           std::make_pair(!is_read(b->use), host_arguments_impl::address_of(*b));
  });
  struct Run {
    uint64_t begin, end;  // device addresses
    uint64_t place;       // in the block
    const void* owner;
  };
  c10::SmallVector<Run, 6> runs;
  uint64_t used = 0;
  uint64_t gaps = 0;
  for (ArgumentStorage* shared : order) {
    const uint64_t begin = host_arguments_impl::address_of(*shared);
    const uint64_t bytes = host_arguments_impl::staged_bytes(*shared);
    uint64_t place = used;
    if (is_read(shared->use) && bytes > 0) {
      const void* const owner = shared->device.data();
      const uint64_t gap = runs.empty() || begin < runs.back().end ? 0 : begin - runs.back().end;
      if (!runs.empty() && gaps + gap <= host_arguments_impl::kGaps && CachingAllocator::are_neighbours(runs.back().owner, owner, stream)) {
        gaps += gap;
        place = runs.back().place + (begin - runs.back().begin);
        runs.back().end = std::max(runs.back().end, begin + bytes);
      } else {
        runs.push_back({begin, begin + bytes, used, owner});
      }
      traffic_.to_host += bytes;
    }
    used = std::max(used, host_arguments_impl::rounded(place + bytes));
    shared->host = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
        host_arguments_impl::borrow(small_->storage(), c10::Device(c10::kCPU), place), c10::GetCPUAllocator(), shared->device.resizable()));
    shared->host_data = shared->host.data();
  }
  if (runs.empty()) return;
  const bool idle = query_stream(stream);
  for (const Run& run : runs) {
    const bool waits = idle && &run == &runs.back();
    copy_bytes({reinterpret_cast<uint64_t>(small_->operands() + run.place), -1}, {run.begin, device_}, run.end - run.begin, stream, !waits);
  }
  if (!idle) synchronize_stream(stream);
  small_->is_quiet();
}

at::Tensor HostArguments::make_host(const Argument& argument) const {
  const ArgumentStorage& shared = storages_[argument.index];
  const int64_t shift = static_cast<int64_t>(shared.begin / argument.device.itemsize());
  const int64_t offset = aliases_ || argument.device.numel() > 0 ? argument.device.storage_offset() - shift : 0;
  at::Tensor host = make_tensor(shared.host, c10::DispatchKey::CPU, argument.device, offset);
  if (C10_UNLIKELY(argument.device.unsafeGetTensorImpl()->is_wrapped_number())) host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return host;
}

at::Tensor HostArguments::make_host_compound(const Argument& argument) const {
  const Compound& compound = compounds_[argument.index];
  Memory memory;
  for (const auto& [part, number] : compound.parts) memory.tensors.push_back(number ? arguments_[*number].host : part);
  if (compound.storage) memory.storage = storages_[*compound.storage].host;
  return compound_tensor(argument.device, memory, c10::Device(c10::kCPU));
}

}  // namespace backplane
