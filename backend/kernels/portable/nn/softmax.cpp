// kernels/portable/nn/softmax.cpp: softmax and log_softmax over one dimension, also masked, and their gradients. Half types are computed in
// float32; half_to_float is supported, as on CUDA.
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/unit.h"

namespace backplane::portable {
namespace softmax_impl {
namespace {

constexpr int64_t kKept = 4096;    // elements of a row that fit a core's local memory
constexpr int64_t kShortRow = 24;  // shorter ones are computed side by side,
constexpr int64_t kManyRows = 16;  // if there are so many

// The operands, dense and of one shape.
struct Operands {
  at::Tensor x, y, mask;
};

// Queues the kernel over dimension `dim`.
bool run(Literal op, const Operands& operands, int64_t dim, const at::Tensor& out) {
  const at::Tensor& x = operands.x;
  if (x.numel() == 0) return true;
  const c10::DeviceIndex device = x.device().index();
  const Target& target = target_of(device);
  const int64_t size = x.dim() == 0 ? 1 : x.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  int64_t rows = x.numel() / (size * inner);
  const bool has_short_rows = target.is_host() && inner == 1 && size < kShortRow && rows >= kManyRows;
  if (has_short_rows) std::swap(rows, inner);
  const c10::ScalarType result = out.scalar_type();
  const uint32_t group = target.properties.group_size;
  const bool is_rows = inner == 1;
  const bool keeps_out = result == c10::kFloat || result == c10::kDouble;
  const bool keeps_local = !keeps_out && is_rows && target.is_host() && size <= kKept;
  const uint32_t row_items = !is_rows ? 1 : size >= group ? group : std::min<uint32_t>(32, group);
  const uint32_t per_item = !target.is_host() ? 4 : !is_rows ? 128 : size >= 256 ? 64 : size >= 32 ? 32 : 8;

  Unit unit(device, "softmax.bpc", "softmax", op);
  unit.compute_in(x.scalar_type()).file("rows.bpc").op(op).write("out", result);
  Arguments arguments;
  arguments.write(out);
  const auto operand = [&](const at::Tensor& tensor, Literal name, Literal word, Literal place) {
    unit.read(name, tensor.scalar_type()).load(word, tensor.scalar_type(), place);
    arguments.read(tensor);
  };
  operand(x, "x", "X(i)", "x, i");
  if (operands.y.defined()) operand(operands.y, "y", "Y(i)", "y, i");
  if (operands.mask.defined()) {
    operand(operands.mask, "mask", "MASKED(i)", "mask, i");
  } else {
    unit.define("MASKED(i)", 0);
  }
  unit.store("STORE(i, v)", result, "out, i, v").define("OUT(i)", "out[i]").define(is_rows ? Literal("ROWS") : Literal("COLUMNS"), 1);
  unit.define("SHORT_ROWS", has_short_rows);
  unit.define("KEEPS_OUT", keeps_out).define("KEEPS_LOCAL", keeps_local ? kKept : 0).define("ROW_ITEMS", row_items);
  unit.define("HALVES", keeps_local && x.scalar_type() == c10::kHalf && result == c10::kHalf);
  const Function* function = unit.index(has_wide_extent(target, x.numel())).find(per_item, 3);
  if (function == nullptr) return false;
  arguments.words(rows, size, inner);
  const int64_t together = is_rows ? function->group / row_items : int64_t{function->group} * per_item;
  const int64_t count = is_rows ? rows : inner;
  launch_function(device, *function, static_cast<uint64_t>((count + together - 1) / together * (is_rows ? 1 : rows)), arguments);
  return true;
}

// Computes a result of that dtype.
bool compute(Call& call, Literal op, Operands operands, int64_t given_dim, c10::ScalarType dtype) {
  const auto dim = dimension_of(given_dim, operands.x);
  if (!dim) return false;
  const at::Tensor* const out = call.given();
  if (out != nullptr && !can_become(*out, operands.x.sizes(), dtype, {operands.x, operands.y, operands.mask})) return false;
  for (at::Tensor* operand : {&operands.x, &operands.y, &operands.mask}) {
    if (operand->defined()) *operand = operand->contiguous();
  }
  const Output output(call, operands.x.sizes(), dtype, operands.x.device());
  if (!run(op, operands, *dim, output.dense())) return false;
  output.give(call);
  return true;
}

bool is_fitting(const at::Tensor& tensor, const at::Tensor& like) {
  return is_usable(tensor) && tensor.sizes() == like.sizes() && tensor.device() == like.device();
}

// self, dim, half_to_float
bool forward(Call& call, Literal op) {
  const at::Tensor& self = call.tensor(0);
  const bool half_to_float = call[2].toBool();
  if (!is_float(self) || (half_to_float && self.scalar_type() != c10::kHalf)) return false;
  return compute(call, op, {self, {}, {}}, call[1].toInt(), half_to_float ? c10::kFloat : self.scalar_type());
}

// grad_output, output, dim, input_dtype
bool backward(Call& call, Literal op) {
  const at::Tensor &grad = call.tensor(0), &output = call.tensor(1);
  const c10::ScalarType dtype = call[3].toScalarType();
  if (!is_float(grad) || !is_fitting(output, grad) || output.scalar_type() != grad.scalar_type()) return false;
  const bool is_half_to_float = grad.scalar_type() == c10::kFloat && dtype == c10::kHalf;
  if (dtype != grad.scalar_type() && !is_half_to_float) return false;
  return compute(call, op, {grad, output, {}}, call[2].toInt(), dtype);
}

// self, mask, dim, mask_type: 0: a mask of (L, L) for (B, H, L, L), 1: of (B, L), 2: of the input's shape
bool masked(Call& call) {
  const at::Tensor& self = call.tensor(0);
  at::Tensor mask = call.tensor(1);
  if (!is_float(self) || !is_usable(mask) || mask.scalar_type() != c10::kBool || mask.device() != self.device()) return false;
  const auto dim = dimension_of(call.has(2) ? call[2].toInt() : self.dim() - 1, self);
  if (!call.has(3) || !dim) return false;
  const int64_t type = call[3].toInt();
  if (type == 0 || type == 1) {
    const bool is_key = type == 1;
    if (self.dim() != 4 || mask.dim() != 2 || *dim != 3) return false;
    if (mask.size(0) != self.size(is_key ? 0 : 2) || mask.size(1) != self.size(3)) return false;
    if (!is_key && self.size(2) != self.size(3)) return false;
    mask = (is_key ? mask.view({self.size(0), 1, 1, self.size(3)}) : mask.view({1, 1, self.size(2), self.size(3)})).expand(self.sizes());
  }
  if (type < 0 || type > 2 || mask.sizes() != self.sizes()) return false;
  return compute(call, "softmax", {self, {}, mask}, *dim, self.scalar_type());
}

// grad_output, output, mask, dim
bool masked_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &output = call.tensor(1), &mask = call.tensor(2);
  if (!is_float(grad) || !is_fitting(output, grad) || output.scalar_type() != grad.scalar_type()) return false;
  if (!is_fitting(mask, grad) || mask.scalar_type() != c10::kBool) return false;
  return compute(call, "softmax_backward", {grad, output, mask}, call.has(3) ? call[3].toInt() : output.dim() - 1, grad.scalar_type());
}

const Defaults registered([](DefaultKernels& kernels) {
  const auto of = [](bool (*compute)(Call&, Literal), Literal op) { return [=](Call& call) { return compute(call, op); }; };
  add_operator(kernels, {"_softmax", "_softmax.out"}, of(&forward, "softmax"));
  add_operator(kernels, {"_log_softmax", "_log_softmax.out"}, of(&forward, "log_softmax"));
  add_operator(kernels, {"_softmax_backward_data", "_softmax_backward_data.out"}, of(&backward, "softmax_backward"));
  add_operator(kernels, {"_log_softmax_backward_data", "_log_softmax_backward_data.out"}, of(&backward, "log_softmax_backward"));
  add_operator(kernels, {"_masked_softmax"}, &masked);
  add_operator(kernels, {"_masked_softmax_backward"}, &masked_backward);
});

}  // namespace
}  // namespace softmax_impl
}  // namespace backplane::portable
