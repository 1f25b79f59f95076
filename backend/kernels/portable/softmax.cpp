// kernels/portable/softmax.cpp: softmax and log_softmax over one dimension, also masked, and their backwards. Half types are computed in
// float32; half_to_float is taken, as CUDA takes it.
#include <string>

#include "kernels/portable/family.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace softmax_impl {
namespace {

constexpr int64_t kKept = 4096;  // elements of a row that fits local memory of a core

struct Operator {
  const char* name;  // OP_<name>
};

struct Kernel {
  explicit Kernel(const char* name) : counter(portable_counter(name)) {}
  KernelCounter& counter;
  KernelSlots slots;
};

// The operands, dense and of one shape.
struct Operands {
  at::Tensor x, y, mask;
};

// All that the text depends on beside the operator.
struct Shape {
  bool is_rows, is_wide, keeps_out, keeps_local;
  uint32_t per_item, row_items;
};

KernelSource source_of(const Operator& op, const Operands& operands, c10::ScalarType result, const Shape& shape) {
  const c10::ScalarType dtype = operands.x.scalar_type();
  Definitions text;
  text.compute_in(compute_type(dtype));
  text.add(join("OP_", op.name), 1);
  std::string parameters = join("BP_GLOBAL ", memory_type(result), "* BP_RESTRICT out");
  uint32_t pointers = 1;
  const auto operand = [&](const at::Tensor& tensor, const char* word, const char* name) {
    const c10::ScalarType type = tensor.scalar_type();
    append(parameters, ", BP_GLOBAL const ", memory_type(type), "* BP_RESTRICT ", name);
    text.add(join(word, "(i)"), load_text(type, join(name, ", i")));
    ++pointers;
  };
  operand(operands.x, "X", "x");
  if (operands.y.defined()) operand(operands.y, "Y", "y");
  if (operands.mask.defined()) {
    operand(operands.mask, "MASKED", "mask");
  } else {
    text.add("MASKED(i)", 0);
  }
  text.add("STORE(i, v)", "bp_store_", dialect_name(result), "(out, i, v)");
  text.add("OUT(i)", "out[i]");
  text.add("POINTERS", pointers);
  text.add("PARAMETERS", parameters);
  text.add(shape.is_rows ? "ROWS" : "COLUMNS", 1);
  text.add("KEEPS_OUT", shape.keeps_out ? 1 : 0);
  text.add("KEEPS_LOCAL", shape.keeps_local ? kKept : 0);
  text.add("ROW_ITEMS", shape.row_items);
  text.add("IDX", shape.is_wide ? "i64" : "i32");
  KernelSource source;
  source.name = join(op.name, "[", dialect_name(dtype), "]");
  source.definitions = text.text();
  source.files = {"math.bpc", "compute.bpc", "rows.bpc", "softmax.bpc"};
  source.kernel = "softmax";
  source.per_item = shape.per_item;
  source.signature.struct_size = sizeof source.signature;
  source.signature.pointers = pointers;
  source.signature.value_bytes = 24;
  source.signature.written = 1;
  return source;
}

uint64_t key_of(const Operands& operands, c10::ScalarType result, const Shape& shape, c10::DeviceIndex device) {
  uint64_t key = static_cast<uint64_t>(device) & 63;
  const auto add = [&](uint64_t bits, uint64_t value) { key = key << bits | value; };
  add(4, dtype_bits(operands.x.scalar_type()));
  add(4, operands.y.defined() ? dtype_bits(operands.y.scalar_type()) : kNoDtype);
  add(4, operands.mask.defined() ? dtype_bits(operands.mask.scalar_type()) : kNoDtype);
  add(4, dtype_bits(result));
  add(9, shape.per_item);
  add(9, shape.row_items);
  for (const bool flag : {shape.is_rows, shape.is_wide, shape.keeps_out, shape.keeps_local}) add(1, flag);
  return key;
}

// Queues it over dimension `dim`.
bool run(const Operator& op, const Operands& operands, int64_t dim, const at::Tensor& out, KernelSlots& slots) {
  const at::Tensor& x = operands.x;
  if (x.numel() == 0) return true;
  const c10::DeviceIndex device = x.device().index();
  const Target& target = target_of(device);
  const int64_t size = x.dim() == 0 ? 1 : x.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t rows = x.numel() / (size * inner);
  const c10::ScalarType result = out.scalar_type();
  const uint32_t group = target.properties.group_size;
  Shape shape{};
  shape.is_rows = inner == 1;
  shape.is_wide = has_wide_extent(target, x.numel());
  shape.keeps_out = result == c10::kFloat || result == c10::kDouble;
  shape.keeps_local = !shape.keeps_out && shape.is_rows && target.is_host() && size <= kKept;
  shape.per_item = 4;
  shape.row_items = !shape.is_rows ? 1 : size >= group ? group : std::min<uint32_t>(32, group);
  if (target.is_host()) shape.per_item = !shape.is_rows ? 128 : size >= 256 ? 64 : size >= 32 ? 32 : 8;
  const Function* function =
      slots.find(key_of(operands, result, shape, device), device, [&] { return source_of(op, operands, result, shape); });
  if (function == nullptr) return false;
  KernelArguments arguments;
  arguments.add(writable_address_of(out));
  for (const at::Tensor& operand : {operands.x, operands.y, operands.mask}) {
    if (operand.defined()) arguments.add(address_of(operand));
  }
  arguments.add(rows);
  arguments.add(size);
  arguments.add(inner);
  const int64_t together = shape.is_rows ? function->group / shape.row_items : int64_t{function->group} * shape.per_item;
  const int64_t count = shape.is_rows ? rows : inner;
  launch_function(device, *function, static_cast<uint64_t>((count + together - 1) / together * (shape.is_rows ? 1 : rows)), arguments);
  return true;
}

bool wrap_dim(int64_t& dim, int64_t dims) {
  const int64_t most = std::max<int64_t>(dims, 1);
  if (dim < -most || dim >= most) return false;
  if (dim < 0) dim += most;
  return true;
}

bool is_float(const at::Tensor& tensor) { return can_walk(tensor) && c10::isFloatingType(tensor.scalar_type()); }

// To a result of the given dtype, which is new or `out`.
bool compute(const Operator& op, Operands operands, int64_t dim, c10::ScalarType result, const at::Tensor& out, Kernel& kernel,
             Results& results) {
  if (!wrap_dim(dim, operands.x.dim())) return false;
  if (out.defined() && !can_become(out, operands.x.sizes(), result, {operands.x, operands.y, operands.mask})) return false;
  for (at::Tensor* operand : {&operands.x, &operands.y, &operands.mask}) {
    if (operand->defined()) *operand = operand->contiguous();
  }
  const Output output(out, operands.x.sizes(), result, operands.x.device().index());
  if (!run(op, operands, dim, output.dense(), kernel.slots)) return false;
  kernel.counter.count();
  results.push_back(output.finish());
  return true;
}

bool is_fitting(const at::Tensor& tensor, const at::Tensor& like) {
  return can_walk(tensor) && tensor.sizes() == like.sizes() && tensor.device() == like.device();
}

// _softmax(self, dim, half_to_float), and with out.
Compute forward(const Operator& op, Kernel& kernel, bool has_out) {
  return [&op, &kernel, has_out](const c10::IValue* a, Results& results) {
    const at::Tensor& self = a[0].toTensor();
    if (!is_float(self)) return false;
    const bool half_to_float = a[2].toBool();
    if (half_to_float && self.scalar_type() != c10::kHalf) return false;
    const c10::ScalarType result = half_to_float ? c10::kFloat : self.scalar_type();
    return compute(op, {self, {}, {}}, a[1].toInt(), result, has_out ? a[3].toTensor() : at::Tensor(), kernel, results);
  };
}

// _softmax_backward_data(grad_output, output, dim, input_dtype), and with out.
Compute backward(const Operator& op, Kernel& kernel, bool has_out) {
  return [&op, &kernel, has_out](const c10::IValue* a, Results& results) {
    const at::Tensor &grad = a[0].toTensor(), &output = a[1].toTensor();
    const c10::ScalarType dtype = a[3].toScalarType();
    if (!is_float(grad) || !is_fitting(output, grad) || output.scalar_type() != grad.scalar_type()) return false;
    const bool is_half_to_float = grad.scalar_type() == c10::kFloat && dtype == c10::kHalf;
    if (dtype != grad.scalar_type() && !is_half_to_float) return false;
    return compute(op, {grad, output, {}}, a[2].toInt(), dtype, has_out ? a[4].toTensor() : at::Tensor(), kernel, results);
  };
}

// _masked_softmax(self, mask, dim, mask_type): 0: a mask of (L, L) for (B, H, L, L), 1: of (B, L), 2: of the input's shape.
Compute masked(const Operator& op, Kernel& kernel) {
  return [&op, &kernel](const c10::IValue* a, Results& results) {
    const at::Tensor& self = a[0].toTensor();
    at::Tensor mask = a[1].toTensor();
    if (!is_float(self) || !can_walk(mask) || mask.scalar_type() != c10::kBool || mask.device() != self.device()) return false;
    int64_t dim = a[2].isNone() ? self.dim() - 1 : a[2].toInt();
    if (a[3].isNone() || !wrap_dim(dim, self.dim())) return false;
    const int64_t type = a[3].toInt();
    if (type == 0 || type == 1) {
      const bool is_key = type == 1;
      if (self.dim() != 4 || mask.dim() != 2 || dim != 3) return false;
      if (mask.size(0) != self.size(is_key ? 0 : 2) || mask.size(1) != self.size(3)) return false;
      if (!is_key && self.size(2) != self.size(3)) return false;
      mask = (is_key ? mask.view({self.size(0), 1, 1, self.size(3)}) : mask.view({1, 1, self.size(2), self.size(3)})).expand(self.sizes());
    }
    if (type < 0 || type > 2 || mask.sizes() != self.sizes()) return false;
    return compute(op, {self, {}, mask}, dim, self.scalar_type(), {}, kernel, results);
  };
}

Compute masked_backward(const Operator& op, Kernel& kernel) {
  return [&op, &kernel](const c10::IValue* a, Results& results) {
    const at::Tensor &grad = a[0].toTensor(), &output = a[1].toTensor(), &mask = a[2].toTensor();
    if (!is_float(grad) || !is_fitting(output, grad) || output.scalar_type() != grad.scalar_type()) return false;
    if (!is_fitting(mask, grad) || mask.scalar_type() != c10::kBool) return false;
    const int64_t dim = a[3].isNone() ? output.dim() - 1 : a[3].toInt();
    return compute(op, {grad, output, mask}, dim, grad.scalar_type(), {}, kernel, results);
  };
}

const Defaults registered([](DefaultKernels& kernels) {
  static const Operator softmax{"softmax"}, log_softmax{"log_softmax"}, softmax_backward{"softmax_backward"},
      log_softmax_backward{"log_softmax_backward"};
  static auto& of_softmax = *new Kernel("_softmax");
  static auto& of_log_softmax = *new Kernel("_log_softmax");
  static auto& of_softmax_backward = *new Kernel("_softmax_backward_data");
  static auto& of_log_softmax_backward = *new Kernel("_log_softmax_backward_data");
  static auto& of_masked = *new Kernel("_masked_softmax");
  static auto& of_masked_backward = *new Kernel("_masked_softmax_backward");
  for (const bool has_out : {false, true}) {
    impl(kernels, has_out ? "_softmax.out" : "_softmax", forward(softmax, of_softmax, has_out));
    impl(kernels, has_out ? "_log_softmax.out" : "_log_softmax", forward(log_softmax, of_log_softmax, has_out));
    impl(kernels, has_out ? "_softmax_backward_data.out" : "_softmax_backward_data",
         backward(softmax_backward, of_softmax_backward, has_out));
    impl(kernels, has_out ? "_log_softmax_backward_data.out" : "_log_softmax_backward_data",
         backward(log_softmax_backward, of_log_softmax_backward, has_out));
  }
  impl(kernels, "_masked_softmax", masked(softmax, of_masked));
  impl(kernels, "_masked_softmax_backward", masked_backward(softmax_backward, of_masked_backward));
});

}  // namespace
}  // namespace softmax_impl
}  // namespace backplane::portable
