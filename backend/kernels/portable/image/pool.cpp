// kernels/portable/image/pool.cpp: max and average pooling in two and three dimensions, and their gradients. torch reduces one dimension to
// two.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "dispatch/defaults.h"
#include "kernels/portable/matrix/product.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/text.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace pool_impl {
namespace {

constexpr size_t kDims = 3;
using Triple = std::array<int64_t, kDims>;  // z, y, x

struct Pool {
  Literal name;
  Literal out;  // the out= form, or NULL
  bool max, adaptive, backward;
  int64_t dims;
  bool keeps_format;  // the result has the input's memory format
};

struct Windows {
  Triple size{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool ceil_mode = false, count_padding = false;
  int64_t divisor = 0;
};

// A tensor as batch, channel, z, y, x.
struct Extents {
  std::array<int64_t, 5> sizes{1, 1, 1, 1, 1}, strides{0, 0, 0, 0, 0};

  Extents(const at::Tensor& tensor, int64_t dims) {
    const auto batched = static_cast<size_t>(tensor.dim() - dims - 1);  // 0 or 1
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      const auto i = static_cast<size_t>(d);
      const size_t at = i < batched + 1 ? i + 1 - batched : i + 5 - static_cast<size_t>(tensor.dim());
      sizes[at] = tensor.size(d);
      strides[at] = tensor.stride(d);
    }
  }
};

// Whether an item's lanes are along the channels, otherwise along x.
bool has_lanes_of_channels(const Extents& to) { return to.strides[1] == 1 && to.sizes[1] > 1; }

// Reads one number for all dimensions, or one for each.
bool read_list(const c10::IValue& value, int64_t dims, Triple& triple) {
  const auto list = value.toDimVector();
  if (list.size() == 1) {
    std::fill(triple.end() - dims, triple.end(), list[0]);
  } else if (static_cast<int64_t>(list.size()) == dims) {
    std::copy(list.begin(), list.end(), triple.end() - dims);
  } else {
    return false;
  }
  return true;
}

// Reads the arguments from the window's size on. False: the CPU raises the error.
bool read_windows(const Pool& op, const c10::IValue* values, Windows& windows) {
  if (!read_list(values[0], op.dims, windows.size)) return false;
  windows.stride = windows.size;
  if (!values[1].toDimVector().empty() && !read_list(values[1], op.dims, windows.stride)) return false;
  if (!read_list(values[2], op.dims, windows.padding)) return false;
  if (op.max) {
    if (!read_list(values[3], op.dims, windows.dilation)) return false;
    windows.ceil_mode = values[4].toBool();
  } else {
    windows.ceil_mode = values[3].toBool();
    windows.count_padding = values[4].toBool();
    windows.divisor = values[5].isNone() ? 0 : values[5].toInt();
    if (!values[5].isNone() && windows.divisor == 0) return false;
  }
  for (size_t d = 0; d < kDims; ++d) {
    if (windows.size[d] <= 0 || windows.stride[d] <= 0 || windows.dilation[d] <= 0 || windows.padding[d] < 0) return false;
    if (windows.padding[d] > windows.size[d] / 2) return false;
  }
  return true;
}

int64_t pooled(int64_t size, int64_t window, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t room = size + 2 * padding - dilation * (window - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t out = room / stride + 1;
  return ceil_mode && (out - 1) * stride >= size + padding ? out - 1 : out;
}

Literal lowest(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kByte:
      return "0";
    case c10::kChar:
      return "-128";
    case c10::kShort:
      return "-32768";
    case c10::kInt:
      return "(-2147483647 - 1)";
    case c10::kLong:
      return "((i64)1 << 63)";
    default:
      return "(-BP_INFINITY)";
  }
}

// Windows that divide the input evenly are usual ones if all are as large. False: they are not.
bool become_even(const Pool& op, const Extents& to, const Extents& from, Windows& windows) {
  const Extents &in = op.backward ? to : from, &out = op.backward ? from : to;
  for (size_t d = 0; d < kDims; ++d) {
    if (in.sizes[d + 2] % out.sizes[d + 2] != 0) return false;
    windows.size[d] = windows.stride[d] = in.sizes[d + 2] / out.sizes[d + 2];
  }
  return true;
}

bool run(const Pool& op, Windows windows, const at::Tensor& to, const at::Tensor& from, const at::Tensor& index) {
  if (to.numel() == 0) return true;
  const c10::DeviceIndex device = to.device().index();
  const c10::ScalarType dtype = to.scalar_type();
  const Target& target = target_of(device);
  const Extents t(to, op.dims), f(from, op.dims);
  const Extents i = index.defined() ? Extents(index, op.dims) : Extents(to, op.dims);
  int64_t furthest = to.numel();
  for (const Extents* extents : {&t, &f, &i}) {
    int64_t reach = 0;
    for (size_t d = 0; d < 5; ++d) reach += extents->sizes[d] * extents->strides[d];
    furthest = std::max(furthest, reach);
  }
  constexpr int64_t kMost = int64_t{1} << 28;  // places in a plane, and sums of them, fit an i32
  if (std::max(t.sizes[2] * t.sizes[3] * t.sizes[4], f.sizes[2] * f.sizes[3] * f.sizes[4]) >= kMost) return false;
  for (size_t d = 0; d < kDims; ++d) {
    const int64_t far = windows.size[d] * windows.dilation[d] + windows.padding[d];
    if (std::max({t.sizes[d + 2] * windows.stride[d], f.sizes[d + 2] * windows.stride[d], far}) >= kMost) return false;
  }
  const bool adapts = op.adaptive && !become_even(op, t, f, windows);
  const bool wide = target.is_host() || furthest >= (int64_t{1} << 30);
  const bool gives_index = op.max && !op.backward;
  Unit unit(device, "pool.bpc", "pool", op.name);
  unit.element("", dtype).define("C", compute_type(dtype)).index(wide);
  unit.define("MAX", op.max).define("ADAPTIVE", adapts).define("BACKWARD", op.backward).define("LOWEST", lowest(dtype));
  const Function* function = unit.find(target.is_host() ? 256 : 1, 3, 38, gives_index ? 5 : 1);
  if (function == nullptr) return false;

  Arguments arguments;
  arguments.write(to).read(from);
  if (gives_index) {
    arguments.write(index);
  } else {
    arguments.read(index);
  }
  const bool lanes_c = has_lanes_of_channels(t);
  arguments.words(t.sizes[0], t.sizes[1], lanes_c);
  const Extents& in = op.backward ? t : f;
  const Extents& out = op.backward ? f : t;
  arguments.words(in.sizes[2], in.sizes[3], in.sizes[4], out.sizes[2], out.sizes[3], out.sizes[4]);
  for (const Triple* triple : {&windows.size, &windows.stride, &windows.padding, &windows.dilation}) arguments.all(*triple);
  for (const Extents* extents : {&t, &f, &i}) arguments.all(extents->strides);
  arguments.words(windows.count_padding, windows.divisor);
  const int64_t lanes = lanes_c ? t.sizes[1] : t.sizes[4];
  const int64_t groups = target.is_host() ? to.numel() / lanes : to.numel() / function->group + 1;
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

// Whether it is a dense tensor of the device, with or without a batch, whose other dimensions are not empty.
bool takes(const Pool& op, const at::Tensor& tensor) {
  if (!tensor.defined() || !is_on_device(tensor) || tensor.layout() != c10::kStrided) return false;
  if (tensor.dim() != op.dims + 1 && tensor.dim() != op.dims + 2) return false;
  for (int64_t d = tensor.dim() - op.dims - 1; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return false;
  }
  const c10::ScalarType dtype = tensor.scalar_type();
  bool known = c10::isFloatingType(dtype);
  if (!op.adaptive) known = known || dtype == c10::kLong || (op.max && op.dims == 2 && dtype != c10::kBool && is_in_dialect(dtype));
  return known && has_dtype(target_of(tensor.device().index()), dtype);
}

// The call's output, or a new tensor. Undefined: this kernel cannot write the output.
at::Tensor prepare(const Pool& op, const at::Tensor* given, at::IntArrayRef size, const at::Tensor& input, c10::ScalarType dtype) {
  const c10::MemoryFormat format = op.keeps_format ? input.suggest_memory_format() : c10::MemoryFormat::Contiguous;
  if (given == nullptr) return empty_tensor(size, dtype, input.device().index(), format);
  if (!given->defined() || given->device() != input.device() || given->layout() != c10::kStrided || given->scalar_type() != dtype ||
      given->is_alias_of(input) || repeats_places(*given)) {
    return {};
  }
  if (given->sizes() == size) return *given;
  if (format != c10::MemoryFormat::Contiguous) return {};
  at::native::resize_output(*given, size);
  return *given;
}

// The sizes of the outputs for this input. False: they are invalid.
bool output_size(const Pool& op, const at::Tensor& input, const c10::IValue* values, Windows& windows, c10::SmallVector<int64_t, 5>& size) {
  size.assign(input.sizes().begin(), input.sizes().end());
  Triple out{1, 1, 1};
  if (op.adaptive) {
    const auto list = values[0].toDimVector();
    if (static_cast<int64_t>(list.size()) != op.dims) return false;
    std::copy(list.begin(), list.end(), out.end() - op.dims);
  } else if (!read_windows(op, values, windows)) {
    return false;
  }
  for (int64_t i = 0; i < op.dims; ++i) {
    const auto d = static_cast<size_t>(i + static_cast<int64_t>(kDims) - op.dims);
    int64_t& extent = size[size.size() - static_cast<size_t>(op.dims - i)];
    extent = op.adaptive ? out[d]
                         : pooled(extent, windows.size[d], windows.stride[d], windows.padding[d], windows.dilation[d], windows.ceil_mode);
    if (extent < (op.adaptive ? 0 : 1)) return false;
  }
  return true;
}

bool forward(const Pool& op, Call& call) {
  const at::Tensor& input = call.tensor(0);
  Windows windows;
  c10::SmallVector<int64_t, 5> size;
  if (!takes(op, input) || !output_size(op, input, &call[1], windows, size)) return false;
  const size_t outputs = op.max ? 2 : 1;
  const at::Tensor result = prepare(op, call.given(0, outputs), size, input, input.scalar_type());
  const at::Tensor index = op.max ? prepare(op, call.given(1, outputs), size, input, c10::kLong) : at::Tensor();
  if (!result.defined() || index.defined() != op.max || !run(op, windows, result, input, index)) return false;
  call.give(result);
  if (op.max) call.give(index);
  return true;
}

// Adds each gradient at the place that its window found. With few items this is much less work than reading, for each point, all windows
// around it.
void scatter(const Pool& op, const at::Tensor& grad, const at::Tensor& index, const at::Tensor& result) {
  const auto planes = [&](const at::Tensor& tensor) { return tensor.flatten(tensor.dim() - op.dims, -1); };
  const bool is_free = result.is_contiguous() && !result.is_alias_of(grad) && !result.is_alias_of(index);
  const at::Tensor sums = is_free ? result : empty_tensor(result.sizes(), result.scalar_type(), result.device().index());
  sums.zero_();
  planes(sums).scatter_add_(-1, planes(index), planes(grad));
  if (!sums.is_same(result)) result.copy_(sums);
}

bool backward(const Pool& op, Call& call) {
  const at::Tensor &grad = call.tensor(0), &input = call.tensor(1);
  if (!takes(op, grad) || !takes(op, input) || grad.scalar_type() != input.scalar_type() || grad.dim() != input.dim()) return false;
  if (grad.device() != input.device()) return false;
  Windows windows;
  c10::SmallVector<int64_t, 5> size;
  if (op.adaptive) {
    size.assign(grad.sizes().begin(), grad.sizes().end());
    for (int64_t d = 0; d < grad.dim() - op.dims; ++d) {
      if (grad.size(d) != input.size(d)) return false;
    }
  } else if (!output_size(op, input, &call[2], windows, size) || grad.sizes() != at::IntArrayRef(size)) {
    return false;
  }
  at::Tensor index;
  if (op.max) {
    index = call.tensor(call.size() - (call.is_functional() ? 1 : 2));
    if (!index.defined() || index.device() != input.device() || index.scalar_type() != c10::kLong ||
        index.sizes() != at::IntArrayRef(size)) {
      return false;
    }
  }
  const at::Tensor result = prepare(op, call.given(), input.sizes(), input, input.scalar_type());
  if (!result.defined()) return false;
  if (op.max && target_of(input.device().index()).is_host() && !has_lanes_of_channels(Extents(result, op.dims))) {
    scatter(op, grad, index, result);
  } else if (!run(op, windows, result, grad, index)) {
    return false;
  }
  call.give(result);
  return true;
}

constexpr Pool kPools[] = {
    {"max_pool2d_with_indices", "max_pool2d_with_indices.out", true, false, false, 2, true},
    {"max_pool2d_with_indices_backward", "max_pool2d_with_indices_backward.grad_input", true, false, true, 2, true},
    {"max_pool3d_with_indices", "max_pool3d_with_indices.out", true, false, false, 3, true},
    {"max_pool3d_with_indices_backward", "max_pool3d_with_indices_backward.grad_input", true, false, true, 3, true},
    {"avg_pool2d", "avg_pool2d.out", false, false, false, 2, true},
    {"avg_pool2d_backward", "avg_pool2d_backward.grad_input", false, false, true, 2, true},
    {"avg_pool3d", "avg_pool3d.out", false, false, false, 3, false},
    {"avg_pool3d_backward", "avg_pool3d_backward.grad_input", false, false, true, 3, false},
    {"_adaptive_avg_pool2d", Literal(), false, true, false, 2, true},
    {"_adaptive_avg_pool2d_backward", Literal(), false, true, true, 2, true},
    {"_adaptive_avg_pool3d", Literal(), false, true, false, 3, false},
    {"_adaptive_avg_pool3d_backward", Literal(), false, true, true, 3, false},
    {"adaptive_max_pool2d", "adaptive_max_pool2d.out", true, true, false, 2, true},
    {"adaptive_max_pool2d_backward", "adaptive_max_pool2d_backward.grad_input", true, true, true, 2, true},
    {"adaptive_max_pool3d", "adaptive_max_pool3d.out", true, true, false, 3, false},
    {"adaptive_max_pool3d_backward", "adaptive_max_pool3d_backward.grad_input", true, true, true, 3, false},
};

const Defaults registered([](DefaultKernels& kernels) {
  for (const Pool& op : kPools) {
    const auto compute = [&op](Call& call) { return op.backward ? backward(op, call) : forward(op, call); };
    if (op.out == nullptr) {
      add_operator(kernels, {op.name}, compute);
    } else {
      add_operator(kernels, {op.name, op.out}, compute);
    }
  }
});

}  // namespace
}  // namespace pool_impl
}  // namespace backplane::portable
