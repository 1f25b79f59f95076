// tensor/copy.h: every copy to, from and between devices. A vendor derives from CopyPath to change how copies are made
// (backplane/extend.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "memory/copy_bytes.h"
#include "runtime/overrides.h"

namespace at {
struct TensorIteratorBase;
}

namespace backplane {

class CopyPath {
 public:
  virtual ~CopyPath() = default;

  // dst.copy_(src) for tensors of equal sizes with at least one element, one of them on the device or both; any dtypes, strides, and conj
  // and neg bits. As for CUDA: a copy between host and device is complete when this returns, unless it is non_blocking and the host memory
  // is pinned or can be staged; a copy between devices is queued, on the source's current stream, and ordered with both devices' streams.
  virtual void copy(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

 protected:
  // The steps of copy(). run: both are dense in the same order, have one dtype and equal bits, so that their bytes are one run.
  virtual void run_from_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);
  virtual void run_to_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);
  virtual void run_on_device(const at::Tensor& src, const at::Tensor& dst);
  virtual void run_between_devices(const at::Tensor& src, const at::Tensor& dst);

  // Between host and device with other strides, another dtype or other bits. Pinned memory is read in stream order, whoever queued its
  // writes.
  virtual void elements_from_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);
  virtual void elements_to_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

  // Elementwise on one device: other strides, another dtype, other bits. With the vendor's kernel (backplane/copy.h) or host functions in
  // stream order, else through the host.
  virtual void elements_on_device(const at::Tensor& src, const at::Tensor& dst);

 private:
  // As above if it can be queued; else nothing is done.
  bool queue_elements(const at::Tensor& src, const at::Tensor& dst);
};

// Whether a copy computes: another dtype, or another conj or neg bit.
inline bool converts(const at::Tensor& src, const at::Tensor& dst) {
  return src.scalar_type() != dst.scalar_type() || src.is_conj() != dst.is_conj() || src.is_neg() != dst.is_neg();
}

Override<CopyPath*>& copy_path();

// The kernel library's copy of elements on one device, as a vendor's of backplane/copy.h, which takes precedence. can_run: whether there
// is a compiler; run: false if nothing was queued. The operands may differ in their conj and neg bits.
struct PortableCopy {
  bool (*can_run)();
  bool (*run)(at::TensorIteratorBase& iter);
};
void set_portable_copy(const PortableCopy& copy);

inline void copy_tensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking = false) {
  copy_path().get()->copy(src, dst, non_blocking);
}

// Pinned host memory of the device's allocator, as a tensor, for staging.
at::Tensor pinned_tensor(at::IntArrayRef size, at::IntArrayRef stride, c10::ScalarType dtype);

// Keeps the pinned block of a tensor's storage until the work queued so far on `stream` is complete.
void record_pinned(const at::Tensor& host, const c10::Stream& stream);

}  // namespace backplane
