// aten/scalar.cpp: reads one value of a tensor (item) and writes one value into all of it (fill_, zero_).
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/fill_native.h>
#include <backplane/dtypes.h>
#include <backplane/host/tensor.h>

#include <cstring>

#include "dispatch/core_kernels.h"
#include "dispatch/defaults.h"
#include "memory/retry.h"
#include "runtime/activity.h"
#include "runtime/driver.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "tensor/copy.h"
#include "tensor/tensors.h"

namespace backplane::scalar_impl {
namespace {

constexpr size_t kLargestElement = 16;  // complex128

at::Tensor host_scalar(c10::ScalarType dtype) { return at::detail::empty_cpu({}, dtype); }

template <typename T>
T as(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// Blocks until the stream's work is done.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  alignas(16) char bytes[kLargestElement];
  const c10::DeviceIndex device = self.device().index();
  refuse_in_capture(current_stream(device), "aten::_local_scalar_dense (.item(), or a tensor that Python converts to a number)");
  check_span(self);
  const CopyEnd from{reinterpret_cast<uint64_t>(self.const_data_ptr()), device};
  copy_bytes({reinterpret_cast<uint64_t>(bytes), -1}, from, self.itemsize(), current_stream(device), false);
  raise_reports(current_stream(device));
  at::Scalar value;
  switch (self.scalar_type()) {
    case c10::kFloat:
      value = as<float>(bytes);
      break;
    case c10::kDouble:
      value = as<double>(bytes);
      break;
    case c10::kHalf:
      value = as<c10::Half>(bytes);
      break;
    case c10::kBFloat16:
      value = as<c10::BFloat16>(bytes);
      break;
    case c10::kLong:
      value = as<int64_t>(bytes);
      break;
    case c10::kInt:
      value = as<int32_t>(bytes);
      break;
    case c10::kBool:
      value = backplane::load(reinterpret_cast<const bool*>(bytes));
      break;
    default: {  // every other dtype: read by torch
      const at::Tensor host = host_scalar(self.scalar_type());
      std::memcpy(host.mutable_data_ptr(), bytes, self.itemsize());
      value = at::native::_local_scalar_dense_cpu(host);
    }
  }
  if (self.is_conj()) value = value.conj();
  return self.is_neg() ? -value : value;
}

// The element's bytes, with torch's own conversion and overflow check.
void element_bytes(const at::Scalar& value, c10::ScalarType dtype, char* bytes) {
  at::Tensor host = host_scalar(dtype);
  at::native::fill_(host, value);
  std::memcpy(bytes, host.const_data_ptr(), host.itemsize());
}

void driver_fill(c10::DeviceIndex device, uint64_t address, const char* pattern, uint32_t size, uint64_t count) {
  const int32_t status = memory::retry_when_full([&] {
    return try_call<&bp_driver::fill>(device, current_stream_handle(device), address, static_cast<const void*>(pattern), size, count, 0u);
  });
  if (C10_UNLIKELY(status != BP_OK)) throw_status(status, "fill", device, last_error_text());
}

// Fills a dense tensor through the driver; false where the driver's patterns do not support the element's size or address.
bool fill_dense(const at::Tensor& self, const char* element) {
  uint32_t size = static_cast<uint32_t>(self.itemsize());
  auto count = static_cast<uint64_t>(self.numel());
  if (size == 16 && std::memcmp(element, element + 8, 8) == 0) {
    size = 8;
    count *= 2;
  }
  const auto address = reinterpret_cast<uint64_t>(self.mutable_data_ptr());
  if (size > 8 || address % size != 0) return false;
  const c10::DeviceIndex device = self.device().index();
  driver_fill(device, address, element, size, count);
  if (activity_wanted()) note_queued(current_stream(device), "fill", count * size);
  return true;
}

// As on the CPU, elements may share memory. What the CPU refuses is refused before anything is queued.
at::Tensor& fill_scalar_(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  check_span(self);
  alignas(16) char element[kLargestElement];
  element_bytes(value, self.scalar_type(), element);
  const at::Tensor places = without_repeats(self);
  if (places.is_non_overlapping_and_dense() && !self.is_conj() && !self.is_neg() && fill_dense(places, element)) return self;
  if (can_launch()) {
    launch(self.device().index(), [to = TensorView(places, true), value](const DeviceMemory& memory) {
      at::Tensor host = to.host_tensor(memory);
      at::native::fill_(host, value);
    });
  } else {
    at::Tensor host = host_scalar(self.scalar_type());
    at::native::fill_(host, value);
    copy_tensor(host.expand(places.sizes()), places);
  }
  return self;
}

at::Tensor& fill_tensor_(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(), " dimensions.");
  if (value.device() != self.device()) return fill_scalar_(self, value.item());
  self.copy_(value.is_alias_of(self) ? value.clone() : value);
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  if (self.numel() == 0) return self;
  if (!self.is_non_overlapping_and_dense()) return fill_scalar_(self, 0);
  check_span(self);
  const c10::DeviceIndex device = self.device().index();
  const char nothing = 0;
  driver_fill(device, reinterpret_cast<uint64_t>(self.mutable_data_ptr()), &nothing, 1, self.nbytes());
  if (activity_wanted()) note_queued(current_stream(device), "fill", self.nbytes());
  return self;
}

}  // namespace

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("_local_scalar_dense", &local_scalar_dense); }

// A vendor's kernel replaces these, and passes on to them the calls that it does not support.
static const Defaults fills([](DefaultKernels& m) {
  m.impl("fill_.Scalar", &fill_scalar_);
  m.impl("fill_.Tensor", &fill_tensor_);
  m.impl("zero_", &zero_);
});

}  // namespace backplane::scalar_impl
