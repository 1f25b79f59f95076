// kernels/portable/pool.cpp: the largest or the mean of windows, in two and three dimensions, and their gradients. torch makes the forms of
// one dimension from those of two.
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
#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/family.h"
#include "kernels/portable/product.h"
#include "kernels/portable/text.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace pool_impl {
namespace {

constexpr size_t kDims = 3;
using Triple = std::array<int64_t, kDims>;  // z, y, x

struct Operator {
  const char* name;
  const char* out;  // the overload that writes to tensors of the call, or NULL
  bool max, adaptive, backward;
  int64_t dims;
  bool keeps_format;  // of the input, in the result
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

// Whether an item's lanes lie along the channels, else along x.
bool has_lanes_of_channels(const Extents& to) { return to.strides[1] == 1 && to.sizes[1] > 1; }

// A number for all dimensions, or one for each.
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

// The arguments from the window's size on. False: they are refused, and the CPU tells why.
bool read_windows(const Operator& op, const c10::IValue* values, Windows& windows) {
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

const char* lowest(c10::ScalarType dtype) {
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

bool run(const Operator& op, const Windows& windows, const at::Tensor& to, const at::Tensor& from, const at::Tensor& index,
         KernelSlots& slots) {
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
  constexpr int64_t kMost = int64_t{1} << 28;  // places in a plane, and sums of them, are i32
  if (std::max(t.sizes[2] * t.sizes[3] * t.sizes[4], f.sizes[2] * f.sizes[3] * f.sizes[4]) >= kMost) return false;
  for (size_t d = 0; d < kDims; ++d) {
    const int64_t far = windows.size[d] * windows.dilation[d] + windows.padding[d];
    if (std::max({t.sizes[d + 2] * windows.stride[d], f.sizes[d + 2] * windows.stride[d], far}) >= kMost) return false;
  }
  const bool wide = target.is_host() || furthest >= (int64_t{1} << 30);
  uint64_t key = static_cast<uint64_t>(device) & 63;
  key = key << 5 | dtype_bits(dtype) << 1 | static_cast<uint64_t>(wide);
  const Function* function = slots.find(key, device, [&] {
    KernelSource source;
    source.name = join(op.name, "[", dialect_name(dtype), "]");
    source.definitions = element_definitions(dtype, dtype, wide);
    define(source.definitions, "MAX", op.max);
    define(source.definitions, "ADAPTIVE", op.adaptive);
    define(source.definitions, "BACKWARD", op.backward);
    define(source.definitions, "LOWEST", lowest(dtype));
    if (c10::elementSize(dtype) == 2) source.files.push_back("math.bpc");  // conversions of halves
    source.files.push_back("pool.bpc");
    source.kernel = "pool";
    source.per_item = target.is_host() ? 256 : 1;
    source.signature.struct_size = sizeof source.signature;
    source.signature.pointers = 3;
    source.signature.value_bytes = 8 * 38;
    source.signature.written = op.max && !op.backward ? 5 : 1;
    return source;
  });
  if (function == nullptr) return false;

  KernelArguments arguments;
  for (const at::Tensor* tensor : {&to, &from, &index}) {
    const bool is_written = tensor == &to || (tensor == &index && op.max && !op.backward);
    arguments.add(!tensor->defined() ? 0 : is_written ? writable_address_of(*tensor) : address_of(*tensor));
  }
  const bool lanes_c = has_lanes_of_channels(t);
  for (const int64_t word : {t.sizes[0], t.sizes[1], int64_t{lanes_c}}) arguments.add(word);
  const Extents& in = op.backward ? t : f;
  const Extents& out = op.backward ? f : t;
  for (size_t d = 2; d < 5; ++d) arguments.add(in.sizes[d]);
  for (size_t d = 2; d < 5; ++d) arguments.add(out.sizes[d]);
  for (const Triple* triple : {&windows.size, &windows.stride, &windows.padding, &windows.dilation}) {
    for (const int64_t word : *triple) arguments.add(word);
  }
  for (const Extents* extents : {&t, &f, &i}) {
    for (const int64_t word : extents->strides) arguments.add(word);
  }
  arguments.add(static_cast<int64_t>(windows.count_padding));
  arguments.add(windows.divisor);
  const int64_t lanes = lanes_c ? t.sizes[1] : t.sizes[4];
  const int64_t groups = target.is_host() ? to.numel() / lanes : to.numel() / function->group + 1;
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

// What the forms of an operator share.
struct Shared {
  explicit Shared(const Operator& op) : op(op), counter(portable_counter(op.name)) {}
  const Operator op;
  KernelCounter& counter;
  KernelSlots slots;
};

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(std::shared_ptr<Shared> shared, size_t arguments, bool has_out)
      : shared_(std::move(shared)), op_(shared_->op), arguments_(arguments), has_out_(has_out) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (C10_UNLIKELY(!can_compile() || kernel_policy() == KernelPolicy::off)) return decline_portable(handle, keys, stack);
    const c10::IValue* values = stack->data() + stack->size() - arguments_;
    at::Tensor result, index;
    if (!(op_.backward ? backward(values, result) : forward(values, result, index))) return decline_portable(handle, keys, stack);
    shared_->counter.count();
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments_), stack->end());
    stack->emplace_back(std::move(result));
    if (index.defined()) stack->emplace_back(std::move(index));
  }

 private:
  // A dense tensor of the device, with a batch or without, whose other dimensions are not empty.
  bool takes(const at::Tensor& tensor) const {
    if (!tensor.defined() || !is_on_device(tensor) || tensor.layout() != c10::kStrided) return false;
    if (tensor.dim() != op_.dims + 1 && tensor.dim() != op_.dims + 2) return false;
    for (int64_t d = tensor.dim() - op_.dims - 1; d < tensor.dim(); ++d) {
      if (tensor.size(d) == 0) return false;
    }
    const c10::ScalarType dtype = tensor.scalar_type();
    bool known = c10::isFloatingType(dtype);
    if (!op_.adaptive) known = known || dtype == c10::kLong || (op_.max && op_.dims == 2 && dtype != c10::kBool && is_in_dialect(dtype));
    return known && has_dtype(target_of(tensor.device().index()), dtype);
  }

  c10::MemoryFormat format_of(const at::Tensor& input) const {
    return op_.keeps_format ? input.suggest_memory_format() : c10::MemoryFormat::Contiguous;
  }

  // The call's output, or a new tensor. False: the output is none that this kernel writes.
  bool prepare(const c10::IValue* out, at::IntArrayRef size, const at::Tensor& input, c10::ScalarType dtype, at::Tensor& tensor) const {
    const c10::MemoryFormat format = format_of(input);
    if (out == nullptr) {
      tensor = empty_tensor(size, dtype, input.device().index(), format);
      return true;
    }
    tensor = out->toTensor();
    if (!tensor.defined() || tensor.device() != input.device() || tensor.layout() != c10::kStrided || tensor.scalar_type() != dtype)
      return false;
    if (tensor.is_alias_of(input) || repeats_places(tensor)) return false;
    if (tensor.sizes() == size) return true;
    if (format != c10::MemoryFormat::Contiguous) return false;
    at::native::resize_output(tensor, size);
    return true;
  }

  // The sizes of the outputs of such an input; false if there are none.
  bool output_size(const at::Tensor& input, const c10::IValue* values, Windows& windows, c10::SmallVector<int64_t, 5>& size) const {
    size.assign(input.sizes().begin(), input.sizes().end());
    Triple out{1, 1, 1};
    if (op_.adaptive) {
      const auto list = values[0].toDimVector();
      if (static_cast<int64_t>(list.size()) != op_.dims) return false;
      std::copy(list.begin(), list.end(), out.end() - op_.dims);
    } else if (!read_windows(op_, values, windows)) {
      return false;
    }
    for (int64_t i = 0; i < op_.dims; ++i) {
      const auto d = static_cast<size_t>(i + static_cast<int64_t>(kDims) - op_.dims);
      int64_t& extent = size[size.size() - static_cast<size_t>(op_.dims - i)];
      extent = op_.adaptive
                   ? out[d]
                   : pooled(extent, windows.size[d], windows.stride[d], windows.padding[d], windows.dilation[d], windows.ceil_mode);
      if (extent < (op_.adaptive ? 0 : 1)) return false;
    }
    return true;
  }

  bool forward(const c10::IValue* values, at::Tensor& result, at::Tensor& index) {
    const at::Tensor& input = values[0].toTensor();
    if (!takes(input)) return false;
    Windows windows;
    c10::SmallVector<int64_t, 5> size;
    if (!output_size(input, values + 1, windows, size)) return false;
    const c10::IValue* outs = has_out_ ? values + arguments_ - (op_.max ? 2 : 1) : nullptr;
    if (!prepare(outs, size, input, input.scalar_type(), result)) return false;
    if (op_.max && !prepare(has_out_ ? outs + 1 : nullptr, size, input, c10::kLong, index)) return false;
    return run(op_, windows, result, input, index, shared_->slots);
  }

  bool backward(const c10::IValue* values, at::Tensor& result) {
    const at::Tensor& grad = values[0].toTensor();
    const at::Tensor& input = values[1].toTensor();
    if (!takes(grad) || !takes(input) || grad.scalar_type() != input.scalar_type() || grad.dim() != input.dim()) return false;
    if (grad.device() != input.device()) return false;
    Windows windows;
    c10::SmallVector<int64_t, 5> size;
    if (op_.adaptive) {
      size.assign(grad.sizes().begin(), grad.sizes().end());
      for (int64_t d = 0; d < grad.dim() - op_.dims; ++d) {
        if (grad.size(d) != input.size(d)) return false;
      }
    } else if (!output_size(input, values + 2, windows, size) || grad.sizes() != at::IntArrayRef(size)) {
      return false;
    }
    at::Tensor index;
    if (op_.max) {
      index = values[arguments_ - (has_out_ ? 2 : 1)].toTensor();
      if (!index.defined() || index.device() != input.device() || index.scalar_type() != c10::kLong ||
          index.sizes() != at::IntArrayRef(size)) {
        return false;
      }
    }
    if (!prepare(has_out_ ? values + arguments_ - 1 : nullptr, input.sizes(), input, input.scalar_type(), result)) return false;
    if (op_.max && target_of(input.device().index()).is_host() && !has_lanes_of_channels(Extents(result, op_.dims))) {
      scatter(grad, index, result);
      return true;
    }
    return run(op_, windows, result, grad, index, shared_->slots);
  }

  // Each gradient to the place that its window found: where few items run, much less work than to ask at each point all windows around it.
  void scatter(const at::Tensor& grad, const at::Tensor& index, const at::Tensor& result) const {
    const auto planes = [&](const at::Tensor& tensor) { return tensor.flatten(tensor.dim() - op_.dims, -1); };
    const bool is_free = result.is_contiguous() && !result.is_alias_of(grad) && !result.is_alias_of(index);
    const at::Tensor sums = is_free ? result : empty_tensor(result.sizes(), result.scalar_type(), result.device().index());
    sums.zero_();
    planes(sums).scatter_add_(-1, planes(index), planes(grad));
    if (!sums.is_same(result)) result.copy_(sums);
  }

  const std::shared_ptr<Shared> shared_;
  const Operator& op_;
  const size_t arguments_;
  const bool has_out_;
};

constexpr Operator kOperators[] = {
    {"max_pool2d_with_indices", ".out", true, false, false, 2, true},
    {"max_pool2d_with_indices_backward", ".grad_input", true, false, true, 2, true},
    {"max_pool3d_with_indices", ".out", true, false, false, 3, true},
    {"max_pool3d_with_indices_backward", ".grad_input", true, false, true, 3, true},
    {"avg_pool2d", ".out", false, false, false, 2, true},
    {"avg_pool2d_backward", ".grad_input", false, false, true, 2, true},
    {"avg_pool3d", ".out", false, false, false, 3, false},
    {"avg_pool3d_backward", ".grad_input", false, false, true, 3, false},
    {"_adaptive_avg_pool2d", nullptr, false, true, false, 2, true},
    {"_adaptive_avg_pool2d_backward", nullptr, false, true, true, 2, true},
    {"_adaptive_avg_pool3d", nullptr, false, true, false, 3, false},
    {"_adaptive_avg_pool3d_backward", nullptr, false, true, true, 3, false},
    {"adaptive_max_pool2d", ".out", true, true, false, 2, true},
    {"adaptive_max_pool2d_backward", ".grad_input", true, true, true, 2, true},
    {"adaptive_max_pool3d", ".out", true, true, false, 3, false},
    {"adaptive_max_pool3d_backward", ".grad_input", true, true, true, 3, false},
};

void add_form(DefaultKernels& m, const std::string& name, const std::shared_ptr<Shared>& shared, bool has_out) {
  const size_t arguments = detail::find_operator(name.c_str()).schema().arguments().size();
  m.impl_portable(name.c_str(), c10::BoxedKernel::makeFromFunctor(std::make_unique<Kernel>(shared, arguments, has_out)));
}

const Defaults registered([](DefaultKernels& m) {
  for (const Operator& op : kOperators) {
    const auto shared = std::make_shared<Shared>(op);
    add_form(m, op.name, shared, false);
    if (op.out != nullptr) add_form(m, join(op.name, op.out), shared, true);
  }
});

}  // namespace
}  // namespace pool_impl
}  // namespace backplane::portable
