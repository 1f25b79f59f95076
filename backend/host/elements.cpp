// host/elements.cpp: shared by all elementwise kernels (backplane/host/elementwise.h): the walk over strided operands.
#include <backplane/host/elementwise.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <cstring>

#include "host/conversion.h"

namespace backplane {
namespace elements_impl {
namespace {

using c10::ScalarType;

// One operand for the block function: its memory, or a buffer with converted chunks.
class Lane {
 public:
  // constant: an input with one value for all elements. common: Undefined if it is not rounded to the common dtype.
  void set(ScalarType dtype, ScalarType type, ScalarType common, int64_t stride, bool constant) {
    dtype_ = dtype;
    type_ = type;
    constant_ = constant;
    filled_ = 0;
    // Values of the common dtype are converted by it; conditions, and bool or index results, are not.
    via_ = rounds_to(common, dtype_, type_);
    direct_ = dtype_ == type_ && via_ == ScalarType::Undefined && stride == size_of(type_);  // an int64 of uint8 values wraps as they do
  }

  // Elements [k, k + count) of a row that begins at data.
  char* read(char* data, int64_t stride, int64_t k, int64_t count) {
    if (direct_) return data + k * size_of(type_);
    if (stride == 0 && filled_ >= count && (constant_ || k > 0)) return buffer_;
    if (stride == 0) {  // one conversion, then copies of it
      convert_via(via_, dtype_, {data, 0}, type_, {buffer_, size_of(type_)}, 1);
      convert(type_, {buffer_, 0}, type_, {buffer_ + size_of(type_), size_of(type_)}, count - 1);
      filled_ = count;
      return buffer_;
    }
    convert_via(via_, dtype_, {data + k * stride, stride}, type_, {buffer_, size_of(type_)}, count);
    return buffer_;
  }

  char* place(char* data, int64_t k) { return direct_ ? data + k * size_of(type_) : buffer_; }

  void write(char* data, int64_t stride, int64_t k, int64_t count) {
    if (!direct_) convert_via(via_, type_, {buffer_, size_of(type_)}, dtype_, {data + k * stride, stride}, count);
  }

 private:
  ScalarType dtype_ = ScalarType::Undefined;
  ScalarType type_ = ScalarType::Undefined;
  ScalarType via_ = ScalarType::Undefined;
  bool direct_ = false;
  bool constant_ = false;
  int64_t filled_ = 0;
  alignas(64) char buffer_[kChunk * 8];
};

// Rows in chunks that are converted before and after the block function.
struct Chunks {
  Chunks(Elements::BlockFunction block, const void* context, size_t count) : block(block), context(context), count(count) {}

  Elements::BlockFunction block;
  const void* context;
  size_t count;
  mutable Lane lanes[Elements::kMostOperands];

  void operator()(char* const* data, const int64_t* strides, int64_t length) const {
    char* places[Elements::kMostOperands];
    for (int64_t k = 0; k < length; k += kChunk) {
      const int64_t n = std::min(kChunk, length - k);
      places[0] = lanes[0].place(data[0], k);
      for (size_t i = 1; i < count; ++i) places[i] = lanes[i].read(data[i], strides[i], k, n);
      block(context, places, n);
      lanes[0].write(data[0], strides[0], k, n);
    }
  }
};

// Gives the common dtype or Undefined: TensorIteratorBase::common_dtype() raises without one, and maybe_common_dtype() is new in torch
// 2.13.
struct CommonDtype : at::TensorIteratorBase {
  static ScalarType of(const at::TensorIteratorBase& iter) { return iter.*(&CommonDtype::common_dtype_); }
};

void write_scalar(const at::TensorBase& scalar, ScalarType dtype, void* bytes) {
  if (scalar.scalar_type() == dtype) {
    std::memcpy(bytes, scalar.const_data_ptr(), scalar.itemsize());
    return;
  }
  at::Tensor converted = at::detail::empty_cpu({}, dtype);
  at::native::copy_(converted, at::Tensor(scalar));
  std::memcpy(bytes, converted.const_data_ptr(), converted.itemsize());
}

}  // namespace
}  // namespace elements_impl

bool HostKernel::can_walk(const at::TensorIteratorBase& iter) { return Elements::takes(iter); }

Elements::Elements(const at::TensorIteratorBase& iter, Scalars scalars)
    : dims_(iter.ndim()), count_(iter.ntensors()), common_(elements_impl::CommonDtype::of(iter)) {
  TORCH_INTERNAL_ASSERT(dims_ <= kMostDims && count_ <= kMostOperands,
                        "a kernel was called for operands that Elements::takes refuses: derive it from backplane::HostKernel");
  std::copy_n(iter.shape().begin(), dims_, sizes_);
  for (int64_t i = 0; i < count_; ++i) {
    Operand& operand = operands_[i];
    const int arg = static_cast<int>(i);
    check_allocated(iter.tensor_base(arg));
    std::copy_n(iter.strides(arg).begin(), dims_, operand.strides);
    operand.dtype = iter.dtype(arg);
    operand.by_value = iter.is_cpu_scalar(arg);
    operand.exact = scalars == Scalars::exact && c10::isReducedFloatingType(common_) && i > 0 && iter.tensor_base(arg).numel() == 1;
    if (operand.by_value) {
      if (common_ != c10::ScalarType::Undefined) operand.dtype = operand.exact ? c10::kFloat : common_;
      elements_impl::write_scalar(iter.tensor_base(arg), operand.dtype, operand.value);
    } else {
      operand.address = reinterpret_cast<uint64_t>(iter.data_ptr(arg));
    }
  }
}

Elements::Elements(const Elements& other) : dims_(other.dims_), count_(other.count_), common_(other.common_) {
  std::copy_n(other.sizes_, dims_, sizes_);
  for (int64_t i = 0; i < count_; ++i) {
    const Operand& from = other.operands_[i];
    Operand& to = operands_[i];
    to.address = from.address;
    to.dtype = from.dtype;
    to.by_value = from.by_value;
    to.exact = from.exact;
    std::memcpy(to.value, from.value, sizeof(to.value));
    std::copy_n(from.strides, dims_, to.strides);
  }
}

void Elements::walk_rows(const DeviceMemory& memory, RowFunction row, const void* context) const {
  char* data[kMostOperands];
  int64_t strides[kMostOperands];
  for (int64_t i = 0; i < count_; ++i) {
    const Operand& operand = operands_[i];
    data[i] = operand.by_value ? const_cast<char*>(operand.value) : static_cast<char*>(memory.at(operand.address));
    strides[i] = dims_ == 0 ? 0 : operand.strides[0];
  }
  if (std::find(sizes_, sizes_ + dims_, 0) != sizes_ + dims_) return;
  int64_t position[kMostDims] = {};
  while (true) {
    row(context, data, strides, dims_ == 0 ? 1 : sizes_[0]);
    int64_t dim = 1;
    for (; dim < dims_; ++dim) {  // the next row: counts up over the outer dimensions
      const bool carries = ++position[dim] == sizes_[dim];
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t stride = operands_[i].strides[dim];
        data[i] += carries ? -stride * (sizes_[dim] - 1) : stride;
      }
      if (!carries) break;
      position[dim] = 0;
    }
    if (dim >= dims_) return;
  }
}

void Elements::walk_blocks(const DeviceMemory& memory, const c10::ScalarType* types, BlockFunction block, const void* context) const {
  using namespace elements_impl;
  const bool single = dims_ == 0 || sizes_[0] == 1;  // one element per row: strides do not matter
  bool direct = true;
  for (int64_t i = 0; i < count_ && direct; ++i) {
    direct = operands_[i].dtype == types[i] && (single || operands_[i].strides[0] == size_of(types[i]));
  }
  if (direct) {
    return each_row(memory, [block, context](char* const* data, const int64_t*, int64_t count) { block(context, data, count); });
  }
  Chunks chunks(block, context, static_cast<size_t>(count_));
  for (int64_t i = 0; i < count_; ++i) {
    const Operand& operand = operands_[i];
    const bool constant = i > 0 && std::all_of(operand.strides, operand.strides + dims_, [](int64_t stride) { return stride == 0; });
    chunks.lanes[i].set(operand.dtype, types[i], operand.by_value || operand.exact ? c10::ScalarType::Undefined : common_,
                        dims_ == 0 ? 0 : operand.strides[0], constant);
  }
  each_row(memory, chunks);
}

namespace detail {

void launch_blocks(const at::TensorIteratorBase& iter, const c10::ScalarType* types, size_t count, Elements::BlockFunction block,
                   const void* function, size_t bytes, Scalars scalars) {
  TORCH_INTERNAL_ASSERT(iter.ntensors() == static_cast<int>(count) && iter.noutputs() == 1, "a kernel of ", count - 1,
                        " inputs and an output was given an iterator over ", iter.ntensors(), " tensors");
  if (iter.numel() == 0) return;
  struct Task {  // constructed in place: launch() would copy the operands twice
    DeviceMemory memory;
    Elements elements;
    const c10::ScalarType* types;  // static
    Elements::BlockFunction block;
    alignas(16) char function[64];
  };
  const c10::DeviceIndex device = iter.device(0).index();
  auto* task = new Task{DeviceMemory(device), Elements(iter, scalars), types, block, {}};
  std::memcpy(task->function, function, bytes);
  enqueue(
      device,
      [](void* arg) -> int32_t {
        try {
          const auto* self = static_cast<const Task*>(arg);
          self->elements.walk_blocks(self->memory, self->types, self->block, self->function);
          return 0;
        } catch (...) {
          return report_exception();
        }
      },
      task, [](void* arg) { delete static_cast<Task*>(arg); });
}

}  // namespace detail
}  // namespace backplane
