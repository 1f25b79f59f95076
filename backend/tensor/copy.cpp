// tensor/copy.cpp: the steps of dst.copy_(src): which bytes are one run, what is converted where, on which stream, and how long memory must
// live.
//
// Note [Conversion]: between host and device, a run of bytes is copied, and the rest (strides, dtype, conj and neg bits) is torch's own
// copy on the CPU, or a queued elementwise copy on the device if strided device memory is involved. A staging tensor has the bits of the
// side whose bytes it has, so that torch's copy resolves them.
//
// Note [Pinned sources]: pinned memory may be the destination of a copy that was queued before. So it is read in stream order: its bytes
// are queued to the device and converted there, or the host waits for the stream before it converts.
//
// Note [Errors of copies]: an error of a queued copy would be a fault of the device, which is permanent. So everything that can fail is
// checked on the calling thread: overlap, memory, and whether torch converts the dtypes.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/copy_native.h>
#include <backplane/copy.h>
#include <backplane/host/tensor.h>
#include <torch/library.h>

#include <atomic>

#include "runtime/event.h"
#include "runtime/options.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "tensor/copy.h"
#include "tensor/tensors.h"
#include "torch/no_warnings.h"

namespace backplane {
namespace copy_impl {
namespace {

bool is_dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

bool is_one_run(const at::Tensor& src, const at::Tensor& dst) {
  if (converts(src, dst)) return false;
  return (src.is_contiguous() && dst.is_contiguous()) || (is_dense(src) && src.strides() == dst.strides());
}

void take_bits(const at::Tensor& tensor, const at::Tensor& like) {
  if (like.is_conj()) tensor._set_conj(true);
  if (like.is_neg()) tensor._set_neg(true);
}

// The strides of a dense tensor, else contiguous ones.
at::DimVector dense_strides(const at::Tensor& like) {
  return is_dense(like) ? at::DimVector(like.strides()) : c10::contiguous_strides(like.sizes());
}

// Dense tensors with the dtype, bits and, where they are dense, the strides of `like`.
at::Tensor host_like(const at::Tensor& like, bool pinned) {
  const at::DimVector strides = dense_strides(like);
  at::Tensor host = pinned ? pinned_tensor(like.sizes(), strides, like.scalar_type())
                           : at::Tensor(at::detail::empty_strided_cpu(like.sizes(), strides, like.scalar_type()));
  take_bits(host, like);
  return host;
}

at::Tensor device_like(const at::Tensor& like, c10::DeviceIndex device) {
  at::Tensor tensor = empty_strided_tensor(like.sizes(), dense_strides(like), like.scalar_type(), device);
  take_bits(tensor, like);
  return tensor;
}

CopyEnd written_end(const at::Tensor& tensor) {
  return {reinterpret_cast<uint64_t>(tensor.mutable_data_ptr()), is_on_device(tensor) ? tensor.device().index() : c10::DeviceIndex(-1)};
}

CopyEnd read_end(const at::Tensor& tensor) {
  return {reinterpret_cast<uint64_t>(tensor.const_data_ptr()), is_on_device(tensor) ? tensor.device().index() : c10::DeviceIndex(-1)};
}

bool is_pinned(const at::Tensor& host) { return overrides().is_pinned.get()(host.const_data_ptr()); }

// A graph can only hold copies of pinned memory, which each run reads or writes; it cannot hold work of the host in a copy.
void refuse_host_bytes(c10::DeviceIndex device) {
  refuse_in_capture(current_stream(device),
                    "aten::copy_ between the host and the device, unless its host memory is pinned and dense, with "
                    "the device's dtype, and non_blocking=True is given,");
}

// The bytes from a strided tensor's first element to its last, on the host, viewed with its strides.
at::Tensor read_span(const at::Tensor& src) {
  const auto count = static_cast<int64_t>(at::detail::computeStorageNbytes(src.sizes(), src.strides(), 1));
  at::Tensor span = at::detail::empty_cpu({count}, src.scalar_type());
  copy_bytes(written_end(span), read_end(src), span.nbytes(), current_stream(src.device().index()), false);
  at::Tensor seen = span.as_strided(src.sizes(), src.strides());
  take_bits(seen, src);
  return seen;
}

// A strided tensor's elements in transit: those between its first and its last, as one run.
at::Tensor run_of(const at::Tensor& tensor) {
  const Span span = span_of(tensor);
  at::Tensor run = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(is_on_device(tensor) ? c10::DispatchKey::PrivateUse1 : c10::DispatchKey::CPU),
      tensor.dtype());
  const auto count = static_cast<int64_t>((span.end - span.begin) / tensor.itemsize());
  run.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(count), at::IntArrayRef(int64_t{1}), tensor.storage_offset());
  return run;
}

// One-byte elements that torch copies only in some layouts (Float4, Int1), or not at all, are copied as plain bytes.
bool is_opaque(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  return tensor.itemsize() == 1 && dtype != c10::kByte && dtype != c10::kChar && dtype != c10::kBool;
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  at::Tensor bytes =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), c10::scalarTypeToTypeMeta(c10::kByte));
  bytes.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  bytes._set_neg(false);
  return bytes;
}

// Checks that torch converts elements of these dtypes and bits: its own copy of one element raises otherwise, once. (A cast that discards
// an imaginary part warns, each time if the program requests it.)
void check_conversion(const at::Tensor& src, const at::Tensor& dst) {
  constexpr auto kDtypes = static_cast<size_t>(c10::ScalarType::NumOptions);
  static std::atomic<bool> known[kDtypes][kDtypes][16];
  if (!converts(src, dst)) return;
  const size_t bits = (src.is_conj() ? 8u : 0u) | (src.is_neg() ? 4u : 0u) | (dst.is_conj() ? 2u : 0u) | (dst.is_neg() ? 1u : 0u);
  std::atomic<bool>& is_known = known[static_cast<size_t>(src.scalar_type())][static_cast<size_t>(dst.scalar_type())][bits];
  if (C10_LIKELY(is_known.load(std::memory_order_relaxed))) return;
  const at::Tensor from = at::detail::empty_cpu({1}, src.scalar_type());
  at::Tensor to = at::detail::empty_cpu({1}, dst.scalar_type());
  std::memset(from.mutable_data_ptr(), 0, from.nbytes());
  take_bits(from, src);
  take_bits(to, dst);
  at::native::copy_(to, from);
  is_known.store(!src.is_complex() || dst.is_complex(), std::memory_order_relaxed);
}

// torch copies a transposed matrix through a buffer; if the host has no memory for that, element by element, as in 3 dimensions.
void copy_on_host(at::Tensor& dst, const at::Tensor& src) {
  try {
    at::native::copy_(dst, src);
  } catch (const c10::Error&) {
    at::Tensor all = dst.unsqueeze(0);
    at::native::copy_(all, src.unsqueeze(0));
  }
}

// The vendor's kernel (backplane/copy.h). Set while libraries are loaded.
std::atomic<bool (*)(at::TensorIteratorBase&)> copy_kernel{nullptr};

// The kernel library's copy.
PortableCopy portable_copy{[] { return false; }, nullptr};

// Whether a kernel or a host function can copy elements on one device in stream order.
bool may_queue_elements() { return copy_kernel.load(std::memory_order_relaxed) != nullptr || can_launch() || portable_copy.can_run(); }

bool run_copy_kernel(bool (*kernel)(at::TensorIteratorBase&), const at::Tensor& src, const at::Tensor& dst) {
  at::TensorIterator iter = at::TensorIteratorConfig()
                                .set_check_mem_overlap(false)
                                .check_all_same_dtype(false)
                                .resize_outputs(false)
                                .add_output(dst)
                                .add_const_input(src)
                                .build();
  return kernel(iter);
}

// Copies with a kernel of the device: the vendor's, else a portable one.
bool run_copy_kernels(const at::Tensor& src, const at::Tensor& dst) {
  const auto vendors = copy_kernel.load(std::memory_order_relaxed);
  const bool has_other_bits = src.is_conj() != dst.is_conj() || src.is_neg() != dst.is_neg();
  if (vendors != nullptr && !has_other_bits && run_copy_kernel(vendors, src, dst)) return true;
  return portable_copy.can_run() && run_copy_kernel(portable_copy.run, src, dst);
}

}  // namespace
}  // namespace copy_impl

void CopyPath::copy(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const bool one_run = copy_impl::is_one_run(src, dst);
  if (C10_UNLIKELY(!one_run && copy_impl::is_opaque(src) && !converts(src, dst))) {
    return copy(copy_impl::as_bytes(src), copy_impl::as_bytes(dst), non_blocking);
  }
  if (!one_run) copy_impl::check_conversion(src, dst);
  if (C10_UNLIKELY(src.is_complex() && !dst.is_complex()) && !non_blocking && is_on_device(src) != is_on_device(dst)) {
    about_to_wait("a copy that the host waits for");  // here, because warnings are disabled below
  }
  const NoWarnings silence(src.is_complex() && !dst.is_complex());  // check_conversion has warned already
  if (!is_on_device(src)) {
    one_run ? run_from_host(src, dst, non_blocking) : elements_from_host(src, dst, non_blocking);
  } else if (!is_on_device(dst)) {
    one_run ? run_to_host(src, dst, non_blocking) : elements_to_host(src, dst, non_blocking);
    if (!non_blocking) raise_reports(current_stream(src.device().index()));
  } else if (src.device() == dst.device()) {
    one_run ? run_on_device(src, dst) : elements_on_device(src, dst);
  } else if (one_run) {
    run_between_devices(src, dst);
  } else {
    // Converted at the source, copied, and strided at the destination.
    const at::Tensor ready = copy_impl::device_like(dst, src.device().index());
    copy(src, ready, non_blocking);
    if (copy_impl::is_one_run(ready, dst)) return run_between_devices(ready, dst);
    const at::Tensor arrived = copy_impl::device_like(dst, dst.device().index());
    run_between_devices(ready, arrived);
    elements_on_device(arrived, dst);
  }
}

void CopyPath::elements_from_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const c10::DeviceIndex device = dst.device().index();
  if (copy_impl::is_pinned(src)) {  // Note [Pinned sources]
    const at::Tensor run = copy_impl::run_of(src);
    if (non_blocking && copy_impl::may_queue_elements() && run.numel() <= 2 * src.numel()) {
      const at::Tensor arrived = empty_tensor(run.sizes(), run.scalar_type(), device);
      run_from_host(run, arrived, true);
      at::Tensor seen = arrived.as_strided(src.sizes(), src.strides());
      copy_impl::take_bits(seen, src);
      if (queue_elements(seen, dst)) return;
    }
    copy_impl::refuse_host_bytes(device);
    about_to_wait("a copy out of pinned memory that the host converts");
    synchronize_stream(current_stream(device));
  }
  copy_impl::refuse_host_bytes(device);
  const at::Tensor ready = copy_impl::host_like(dst, non_blocking);
  ready.copy_(src);
  if (copy_impl::is_one_run(ready, dst)) return run_from_host(ready, dst, non_blocking);
  if (copy_impl::may_queue_elements()) {
    const at::Tensor dense = copy_impl::device_like(dst, device);
    run_from_host(ready, dense, non_blocking);
    if (queue_elements(dense, dst)) return;
  }
  const at::Tensor span = copy_impl::read_span(dst);  // the bytes between dst's elements are read and written back
  span.copy_(ready);
  copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(span), span.storage().nbytes(), current_stream(device), false);
}

void CopyPath::elements_to_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const c10::DeviceIndex device = src.device().index();
  const bool may_queue = copy_impl::may_queue_elements();
  if (non_blocking && may_queue && copy_impl::is_dense(dst) && copy_impl::is_pinned(dst)) {  // as for CUDA: the device converts
    const at::Tensor ready = copy_impl::device_like(dst, device);
    if (queue_elements(src, ready)) return run_to_host(ready, dst, true);
  }
  if (copy_impl::is_dense(src)) {
    const at::Tensor arrived = copy_impl::host_like(src, false);
    run_to_host(src, arrived, false);
    dst.copy_(arrived);
    return;
  }
  if (may_queue) {
    const at::Tensor dense = copy_impl::device_like(src, device);
    if (queue_elements(src, dense)) return copy(dense, dst, non_blocking);
  }
  dst.copy_(copy_impl::read_span(src));
}

bool CopyPath::queue_elements(const at::Tensor& src, const at::Tensor& dst) {
  if (!can_launch()) return copy_impl::run_copy_kernels(src, dst);
  elements_on_device(src, dst);
  return true;
}

void CopyPath::run_from_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const c10::Stream stream = current_stream(dst.device().index());
  if (!non_blocking || !copy_impl::is_pinned(src)) copy_impl::refuse_host_bytes(stream.device_index());
  if (!non_blocking) return copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(src), src.nbytes(), stream, false);
  at::Tensor pinned = src;
  if (!copy_impl::is_pinned(src)) {  // the caller may free or modify pageable memory at once
    pinned = pinned_tensor(src.sizes(), src.strides(), src.scalar_type());
    std::memcpy(pinned.mutable_data_ptr(), src.const_data_ptr(), src.nbytes());
  }
  copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(pinned), pinned.nbytes(), stream, true);
  record_pinned(pinned, stream);
}

void CopyPath::run_to_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const c10::Stream stream = current_stream(src.device().index());
  const bool async = non_blocking && copy_impl::is_pinned(dst);
  if (!async) copy_impl::refuse_host_bytes(stream.device_index());
  copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(src), src.nbytes(), stream, async);
  if (async) record_pinned(dst, stream);
}

void CopyPath::run_on_device(const at::Tensor& src, const at::Tensor& dst) {
  if (src.const_data_ptr() == dst.const_data_ptr()) return;
  copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(src), src.nbytes(), current_stream(src.device().index()), true);
}

void CopyPath::run_between_devices(const at::Tensor& src, const at::Tensor& dst) {
  const c10::Stream from = current_stream(src.device().index());
  const c10::Stream to = current_stream(dst.device().index());
  refuse_in_capture(from, "aten::copy_ between two devices");
  refuse_in_capture(to, "aten::copy_ between two devices");
  const PooledEvent writable = pooled_event(to.device_index());  // earlier work on dst completes before the copy begins ...
  writable->record(to);
  writable->block(from);
  copy_bytes(copy_impl::written_end(dst), copy_impl::read_end(src), src.nbytes(), from, true);
  const PooledEvent copied = pooled_event(from.device_index());  // ... and later work there sees the copy
  copied->record(from);
  copied->block(to);
}

void CopyPath::elements_on_device(const at::Tensor& src, const at::Tensor& dst) {
  if (copy_impl::run_copy_kernels(src, dst)) return;
  const c10::DeviceIndex device = dst.device().index();
  if (!can_launch()) {
    const at::Tensor host = copy_impl::host_like(dst, false);
    copy(src, host, false);
    return copy(host, dst, false);
  }
  launch(device, [from = TensorView(src, false), to = TensorView(dst, true)](const DeviceMemory& memory) {
    const NoWarnings silence;
    at::Tensor result = to.host_tensor(memory);
    copy_impl::copy_on_host(result, from.host_tensor(memory));
  });
}

void detail::set_copy_kernel(const Site& site, bool (*copy)(at::TensorIteratorBase&)) {
  static Site first{};
  bool (*none)(at::TensorIteratorBase&) = nullptr;
  TORCH_CHECK(copy_impl::copy_kernel.compare_exchange_strong(none, copy), "there is a kernel for copies already, registered at ",
              first.file, ":", first.line, ". Keep one of the two");
  first = site;
}

void set_portable_copy(const PortableCopy& copy) { copy_impl::portable_copy = copy; }

Override<CopyPath*>& copy_path() {
  static CopyPath* const path = new CopyPath;
  static Override<CopyPath*> slot{.core = path, .vendor = nullptr};
  return slot;
}

at::Tensor pinned_tensor(at::IntArrayRef size, at::IntArrayRef stride, c10::ScalarType dtype) {
  return at::detail::empty_strided_generic(size, stride, overrides().pinned_allocator.get()(), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                           dtype);
}

void record_pinned(const at::Tensor& host, const c10::Stream& stream) {
  auto* const allocator = dynamic_cast<at::HostAllocator*>(overrides().pinned_allocator.get()());
  TORCH_INTERNAL_ASSERT(allocator != nullptr, "the pinned allocator is not an at::HostAllocator");
  const c10::DataPtr& data = host.storage().data_ptr();
  allocator->record_event(data.get(), data.get_context(), stream);
}

}  // namespace backplane
