// distributed/host_copy.cpp: the copies between a device tensor and the network's buffer.
#include "distributed/host_copy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "runtime/driver.h"

namespace backplane::distributed {
namespace host_copy_impl {
namespace {

bool can_alias(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && loaded_driver()->zero_copy;
}

// The tensor's memory as a host tensor, which keeps the tensor alive.
at::Tensor alias_of(const at::Tensor& tensor, bool is_written) {
  void* data = is_written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
  return at::from_blob(data, {tensor.numel()}, [tensor](void*) {}, at::TensorOptions().dtype(tensor.scalar_type()));
}

}  // namespace
}  // namespace host_copy_impl

HostCopy::HostCopy(at::Tensor from, at::Tensor to, Given given, Prepare prepare)
    : from_(std::move(from)), to_(std::move(to)), prepare_(std::move(prepare)) {
  const bool is_one = !is_read() || !is_written() || from_.is_same(to_);
  const bool is_safe = !prepare_ && (is_written() || given == Given::kept);
  is_alias_ = is_one && is_safe && host_copy_impl::can_alias(tensor());
  if (is_alias_) {
    host_ = host_copy_impl::alias_of(tensor(), is_written());
  } else {
    host_ = at::empty({tensor().numel()}, at::TensorOptions().dtype(tensor().scalar_type()).pinned_memory(tensor().numel() > 0));
  }
}

void HostCopy::copy_to_host() {
  if (!is_alias_ && is_read()) host_.view(from_.sizes()).copy_(prepare_ ? prepare_(from_) : from_, /*non_blocking=*/true);
}

void HostCopy::copy_from_host() {
  if (!is_alias_ && is_written()) to_.copy_(host_.view(to_.sizes()), /*non_blocking=*/true);
}

}  // namespace backplane::distributed
