// bindings/dlpack.cpp: what DLPack leaves to both sides: an importer's check that a capsule's memory is the device's, and a hint when a
// consumer refuses an exporter's capsule.
#include <ATen/DLConvertor.h>
#include <ATen/dlpack.h>

#include <cstring>
#include <string>

#include "bindings/module.h"
#include "runtime/driver.h"

namespace backplane::bindings {
namespace dlpack_impl {
namespace {

constexpr const char* kPlain = at::DLPackTraits<DLManagedTensor>::capsule;
constexpr const char* kVersioned = at::DLPackTraits<DLManagedTensorVersioned>::capsule;

// The contents of an unused capsule; NULL for any other object, and for a version whose layout is not known.
const DLTensor* tensor_of(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kPlain) != 0) return &static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kPlain))->dl_tensor;
  if (PyCapsule_IsValid(capsule, kVersioned) == 0) return nullptr;
  const auto* const managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
  return managed->version.major == DLPACK_MAJOR_VERSION ? &managed->dl_tensor : nullptr;
}

// The range of bytes of the elements, relative to the first one.
struct Extent {
  bool is_valid = true;
  bool is_empty = false;
  int64_t first = 0;
  int64_t last = 0;
};

Extent extent_of(const DLTensor& tensor) {
  Extent extent;
  int64_t step = 1;  // for a tensor without strides, whose elements are contiguous
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    const int64_t size = tensor.shape[i];
    if (size < 0) return {false};
    if (size == 0) extent.is_empty = true;
    if (size == 0 || extent.is_empty) continue;
    int64_t way = 0;
    int64_t& end = (tensor.strides == nullptr ? step : tensor.strides[i]) < 0 ? extent.first : extent.last;
    if (__builtin_mul_overflow(size - 1, tensor.strides == nullptr ? step : tensor.strides[i], &way)) return {false};
    if (__builtin_add_overflow(end, way, &end)) return {false};
    if (tensor.strides == nullptr && __builtin_mul_overflow(step, size, &step)) return {false};
  }
  const int64_t itemsize = (static_cast<int64_t>(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  const bool overflows = __builtin_mul_overflow(extent.first, itemsize, &extent.first) ||
                         __builtin_mul_overflow(extent.last, itemsize, &extent.last) ||
                         __builtin_add_overflow(extent.last, itemsize - 1, &extent.last);
  extent.is_valid = !overflows;
  return extent;
}

bool has_dtype(const DLDataType& dtype) {
  try {
    at::toScalarType(dtype);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

std::string memory_refusal(const DLTensor& tensor) {
  const Extent extent = extent_of(tensor);
  if (!extent.is_valid) return "its sizes and strides are not valid";
  if (extent.is_empty || !knows_pointers()) return "";
  const uint64_t data = reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
  for (const int64_t place : {extent.first, extent.last}) {
    const auto* const address = reinterpret_cast<const void*>(data + static_cast<uint64_t>(place));
    const c10::DeviceIndex owner = device_of_pointer(address);
    if (owner == tensor.device.device_id) continue;
    const std::string found = owner < 0 ? "which its driver does not know: it may be another backend's, or freed"
                                        : "which belongs to device " + std::to_string(owner);
    return c10::str("it is at the address ", address, ", ", found, ". Copy it through the host");
  }
  return "";
}

// Why a capsule is not a tensor of the device; "" if no error is found, and for capsules of other devices and other objects, which torch's
// own import checks. Opens the driver.
std::string refusal(const py::object& capsule) {
  const DLTensor* const tensor = tensor_of(capsule.ptr());
  if (tensor == nullptr || tensor->device.device_type != kDLExtDev) return "";
  {
    const py::gil_scoped_release no_gil;
    open_driver();
  }
  const int32_t index = tensor->device.device_id;
  if (index < 0 || index >= device_count()) {
    return c10::str("it is of device ", index, ", and there are ", static_cast<int>(device_count()), ", counted from 0");
  }
  if (!has_dtype(tensor->dtype)) {
    return c10::str("torch has no dtype for elements of type code ", static_cast<int>(tensor->dtype.code), ", ",
                    static_cast<int>(tensor->dtype.bits), " bits and ", tensor->dtype.lanes,
                    " lanes (DLDataType): let its library convert it first");
  }
  return memory_refusal(*tensor);
}

// Note [Hints for consumers]: numpy refuses unsupported dtypes ("Unsupported dtype in DLTensor."), when the exporter is no longer involved,
// and then drops the capsule, unused, with the error set. The capsule's destructor then appends a hint to the error. All other errors stay
// as they are.
std::string hint(const DLTensor& tensor, const std::string& error) {
  if (error.find("nsupported device") != std::string::npos && tensor.device.device_type == kDLExtDev) {
    return "Name the CPU: from_dlpack(x, device=\"cpu\"), or copy there first: x.cpu()";
  }
  if (error.find("nsupported dtype") == std::string::npos || tensor.device.device_type == kDLExtDev) return "";
  switch (tensor.dtype.code) {
    case kDLBfloat:
      return "For the bits of a torch.bfloat16 tensor write x.view(torch.uint16), for its values x.float()";
    case kDLComplex:
      return "For the parts of a torch.complex32 tensor write torch.view_as_real(x)";
    default:
      return "For the bits of a tensor of this dtype write x.view(torch.uint8), for its values x.float()";
  }
}

void add_hint(PyObject* capsule) {
  const DLTensor* const tensor = tensor_of(capsule);
  if (tensor == nullptr) return;
  py::error_already_set error;  // takes the error; restored below
  if (error.matches(PyExc_BufferError) || error.matches(PyExc_RuntimeError)) {
    const std::string text = py::str(error.value());
    if (const std::string advice = hint(*tensor, text); !advice.empty()) {
      PyErr_SetString(error.type().ptr(), (text + " " + advice).c_str());
      return;
    }
  }
  error.restore();
}

PyCapsule_Destructor torchs_plain = nullptr;
PyCapsule_Destructor torchs_versioned = nullptr;

template <PyCapsule_Destructor* torchs>
void destroy(PyObject* capsule) {
  if (PyErr_Occurred() != nullptr) add_hint(capsule);
  (*torchs)(capsule);
}

template <PyCapsule_Destructor* torchs>
void replace_destructor(PyObject* capsule) {
  const PyCapsule_Destructor found = PyCapsule_GetDestructor(capsule);
  if (found == nullptr || found == &destroy<torchs>) return;
  if (*torchs == nullptr) *torchs = found;
  if (*torchs == found) PyCapsule_SetDestructor(capsule, &destroy<torchs>);
}

// Registers the destructor that appends hints; returns the capsule, which is one of torch's. With the GIL, which guards the two pointers.
py::object with_cures(py::object capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kPlain) != 0) {
    replace_destructor<&torchs_plain>(capsule.ptr());
  } else if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    replace_destructor<&torchs_versioned>(capsule.ptr());
  }
  return capsule;
}

}  // namespace
}  // namespace dlpack_impl

void bind_dlpack(py::module_& module) {
  def_quick(module, "refusal", dlpack_impl::refusal);
  def_quick(module, "with_cures", dlpack_impl::with_cures);
}

}  // namespace backplane::bindings
