// kernels/portable/reduction/scan.cpp: cumsum, cumprod, cummax, cummin and logcumsumexp. A device of many items scans a long row in parts,
// after it has folded them.
#include <ATen/ops/view_as_real.h>
#include <backplane/structured.h>

#include <string_view>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace scan_impl {
namespace {

constexpr int64_t kPart = 16384;     // elements of a row per group
constexpr int64_t kMostParts = 256;  // each group folds the parts before its own

struct Scan {
  Literal name;    // OP_<name>
  bool is_placed;  // also returns places
  bool is_summed;  // integers in 64 bits; floats in float64 where that is as fast
};

// Queues the scan of dense x along `dim`; `places` may be undefined.
bool scan(const Scan& op, const at::Tensor& x, int64_t dim, const at::Tensor& values, const at::Tensor& places) {
  if (x.numel() == 0) return true;
  const c10::DeviceIndex device = x.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType element = x.scalar_type(), result = values.scalar_type();
  const bool is_exact = op.is_summed && c10::isFloatingType(result) && target.is_host() && has_dtype(target, c10::kDouble);
  const int64_t size = x.dim() == 0 ? 1 : x.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t rows = x.numel() / (size * inner);
  const bool is_rows = inner == 1, is_wide = has_wide_extent(target, x.numel());
  const uint32_t per_item = !target.is_host() ? 4 : is_rows ? 1 : 128;
  const int64_t parts = !is_rows || target.is_host() || rows >= 256 ? 1 : std::min(kMostParts, size / kPart);
  const bool is_split = parts > 1;
  const int64_t part = is_split ? (size + parts - 1) / parts : size;
  const uint32_t outputs = op.is_placed ? 2 : 1;
  const auto find = [&](int stage) {  // `stage` is PARTS
    Unit unit(device, "scan.bpc", "scan", op.name);
    unit.name(element).compute_in(result, op.is_summed).define("A", is_exact ? Literal("f64") : Literal("C")).op(op.name);
    unit.define("T", memory_type(element)).define("O0", memory_type(result)).define("O1", "i64");
    unit.load("LOAD(i)", element, "x, i", result).store("STORE0(i, v)", result, "r0, i, v").store("STORE1(i, v)", c10::kLong, "r1, i, v");
    const uint32_t pointers = (stage == 2 ? 2 : 1) * outputs + 1;
    unit.define("POINTERS", pointers).index(is_wide).define(is_rows ? Literal("ROWS") : Literal("COLUMNS"), 1).define("PARTS", stage);
    unit.define("SERIAL", is_rows && target.is_host());
    return unit.find(per_item, pointers, 5, (uint64_t{1} << outputs) - 1);
  };
  const Function* first = is_split ? find(1) : nullptr;
  const Function* last = find(is_split ? 2 : 0);
  if (last == nullptr || (is_split && first == nullptr)) return false;

  const auto launch = [&](const Function& function, std::initializer_list<uint64_t> addresses) {
    Arguments arguments;
    for (const uint64_t address : addresses) {
      if (address != 0) arguments.add(address);
    }
    arguments.words(rows, size, inner, is_split ? parts : 1, part);
    const int64_t tile = int64_t{function.group} * per_item;
    const int64_t groups = rows * (is_rows ? (is_split ? parts : 1) : (inner + tile - 1) / tile);
    launch_function(device, function, static_cast<uint64_t>(groups), arguments);
  };
  const uint64_t to = writable_address_of(values), to_places = op.is_placed ? writable_address_of(places) : 0;
  if (!is_split) {
    launch(*last, {to, to_places, address_of(x)});
    return true;
  }
  const at::Tensor totals = empty({2, rows * parts}, c10::kLong, device);
  const uint64_t sums = writable_address_of(totals), wins = op.is_placed ? sums + 8 * static_cast<uint64_t>(totals.size(1)) : 0;
  launch(*first, {sums, wins, address_of(x)});
  launch(*last, {to, to_places, sums, wins, address_of(x)});
  return true;
}

// Views complex numbers as parts, in an additional dimension.
at::Tensor parts_of(const at::Tensor& tensor) { return at::view_as_real(tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor); }

// Computes a result of that dtype from `self`.
bool compute(Call& call, const Scan& op, c10::ScalarType dtype) {
  const at::Tensor& self = call.tensor(0);
  const auto dim = dimension_of(call[1].toInt(), self);
  if ((!has_dtype(target_of(self.device().index()), dtype) && !is_complex(dtype)) || !dim) return false;
  const at::Tensor dense = self.contiguous();
  const auto scan_to = [&](const at::Tensor& result) {
    const bool sums_parts = is_complex(dtype) && std::string_view(op.name) == "sum";
    return sums_parts ? scan(op, parts_of(dense), *dim, parts_of(result), {}) : scan(op, dense, *dim, result, {});
  };
  if (call.form() == Call::Form::inplace) {
    if (self.scalar_type() != dtype) return false;
    const at::Tensor result = empty(self.sizes(), dtype, self.device().index());
    if (!scan_to(result)) return false;
    call.give(self.copy_(result));
    return true;
  }
  const at::Tensor* const out = call.given();
  if (out != nullptr && !can_become(*out, self.sizes(), dtype, {self})) return false;
  const Output output(call, self.sizes(), dtype, self.device());
  if (!scan_to(output.dense())) return false;
  output.give(call);
  return true;
}

// self, dim, dtype
bool sum(Call& call, const Scan& op) {
  const at::Tensor& self = call.tensor(0);
  if (!is_usable(self) && !has_parts(self)) return false;
  const c10::ScalarType own = self.scalar_type();
  const c10::ScalarType dtype = call.has(2)                                   ? call[2].toScalarType()
                                : !call.is_functional()                       ? call.given()->scalar_type()
                                : c10::isFloatingType(own) || is_complex(own) ? own
                                                                              : c10::kLong;
  if (is_complex(own) != is_complex(dtype)) return false;
  return is_pointwise(dtype) && dtype != c10::kBool && compute(call, op, dtype);
}

// self, dim
bool logsumexp(Call& call, const Scan& op) { return is_float(call.tensor(0)) && compute(call, op, call.tensor(0).scalar_type()); }

// self, values, indices, dim -> ()
bool extreme(Call& call, const Scan& op) {
  const at::Tensor &self = call.tensor(0), &values = call.tensor(1), &indices = call.tensor(2);
  const auto dim = dimension_of(call[3].toInt(), self);
  if (!is_usable(self) || !dim || !can_become(values, self.sizes(), self.scalar_type(), {self}) ||
      !can_become(indices, self.sizes(), c10::kLong, {self, values})) {
    return false;
  }
  const Call outputs(&call[1], 2, Call::Form::out);
  const Output to(outputs, self.sizes(), self.scalar_type(), self.device(), 0, 2),
      places(outputs, self.sizes(), c10::kLong, self.device(), 1, 2);
  if (!scan(op, self.contiguous(), *dim, to.dense(), places.dense())) return false;
  to.finish();
  places.finish();
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  const auto of = [](bool (*compute)(Call&, const Scan&), const Scan& op) { return [=](Call& call) { return compute(call, op); }; };
  add_operator(kernels, {"cumsum", "cumsum.out", "cumsum_"}, of(&sum, {"sum", false, true}));
  add_operator(kernels, {"cumprod", "cumprod.out", "cumprod_"}, of(&sum, {"prod", false, true}));
  add_operator(kernels, {"_logcumsumexp", "_logcumsumexp.out"}, of(&logsumexp, {"logsumexp", false, false}));
  add_operator(kernels, {"_cummax_helper"}, of(&extreme, {"max", true, false}));
  add_operator(kernels, {"_cummin_helper"}, of(&extreme, {"min", true, false}));
});

}  // namespace
}  // namespace scan_impl
}  // namespace backplane::portable
