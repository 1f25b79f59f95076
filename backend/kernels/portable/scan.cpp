// kernels/portable/scan.cpp: cumulative sums, products, extremes and logarithms of sums of powers. A device of many items scans a long row
// in parts: their folds first.
#include <ATen/ops/view_as_real.h>
#include <backplane/structured.h>

#include <string_view>

#include "kernels/portable/family.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace scan_impl {
namespace {

constexpr int64_t kPart = 16384;     // elements of a row that one group scans
constexpr int64_t kMostParts = 256;  // each group folds those before its own

struct Operator {
  const char* name;  // OP_<name>
  bool is_placed;    // gives places, too
  bool is_summed;    // of integers in 64 bits; of floats in float64, where that costs nothing
};

struct Types {
  c10::ScalarType element, result;
  const char *compute, *running;
};

struct Shape {
  bool is_rows, is_wide;
  uint32_t per_item;
  int64_t rows, size, inner;
  int64_t parts, part;
};

// `stage` as PARTS.
KernelSource source_of(const Operator& op, const Types& types, const Shape& shape, int stage) {
  Definitions text;
  text.compute_in(types.compute);
  text.add("A", types.running);
  text.add(join("OP_", op.name), 1);
  text.add("T", memory_type(types.element));
  text.add("O0", memory_type(types.result));
  text.add("O1", "i64");
  text.add("LOAD(i)", "AS_C(", load_text(types.element, "x, i", types.result), ")");
  text.add("STORE0(i, v)", "bp_store_", dialect_name(types.result), "(r0, i, v)");
  text.add("STORE1(i, v)", "bp_store_i64(r1, i, v)");
  const uint32_t values = op.is_placed ? 2 : 1;
  const uint32_t pointers = (stage == 2 ? 2 : 1) * values + 1;
  text.add("POINTERS", pointers);
  text.add("IDX", shape.is_wide ? "i64" : "i32");
  text.add(shape.is_rows ? "ROWS" : "COLUMNS", 1);
  text.add("PARTS", stage);
  KernelSource source;
  source.name = join("scan_", op.name, "[", dialect_name(types.element), "]");
  source.definitions = text.text();
  source.files = {"math.bpc", is_complex(types.result) ? "complex.bpc" : "compute.bpc", "scan.bpc"};
  source.kernel = "scan";
  source.per_item = shape.per_item;
  source.signature.struct_size = sizeof source.signature;
  source.signature.pointers = pointers;
  source.signature.value_bytes = 40;
  source.signature.written = (uint64_t{1} << values) - 1;
  return source;
}

uint64_t key_of(const Types& types, const Shape& shape, int stage, c10::DeviceIndex device) {
  uint64_t key = static_cast<uint64_t>(device) & 63;
  key = key << 4 | dtype_bits(types.element);
  key = key << 4 | dtype_bits(types.result);
  key = key << 9 | shape.per_item;
  key = key << 2 | static_cast<uint64_t>(stage);
  return key << 2 | (shape.is_rows ? 2u : 0u) | (shape.is_wide ? 1u : 0u);
}

// Queues the scan of dense x along `dim`; `places` may be undefined.
bool scan(const Operator& op, const at::Tensor& x, int64_t dim, const at::Tensor& values, const at::Tensor& places, KernelSlots& slots) {
  if (x.numel() == 0) return true;
  const c10::DeviceIndex device = x.device().index();
  const Target& target = target_of(device);
  Types types{x.scalar_type(), values.scalar_type(), compute_type(values.scalar_type()), nullptr};
  const bool is_float = c10::isFloatingType(types.result);
  if (op.is_summed && !is_float && !is_complex(types.result)) types.compute = "i64";
  types.running = op.is_summed && is_float && target.is_host() && has_dtype(target, c10::kDouble) ? "f64" : types.compute;
  Shape shape{};
  shape.size = x.dim() == 0 ? 1 : x.size(dim);
  shape.inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) shape.inner *= x.size(d);
  shape.rows = x.numel() / (shape.size * shape.inner);
  shape.is_rows = shape.inner == 1;
  shape.is_wide = has_wide_extent(target, x.numel());
  shape.per_item = !target.is_host() ? 4 : shape.is_rows ? 1 : 128;
  shape.parts = !shape.is_rows || target.is_host() || shape.rows >= 256 ? 1 : std::min(kMostParts, shape.size / kPart);
  const bool is_split = shape.parts > 1;
  shape.part = is_split ? (shape.size + shape.parts - 1) / shape.parts : shape.size;
  const auto find = [&](int stage) {
    return slots.find(key_of(types, shape, stage, device), device, [&] { return source_of(op, types, shape, stage); });
  };
  const Function* first = is_split ? find(1) : nullptr;
  const Function* last = find(is_split ? 2 : 0);
  if (last == nullptr || (is_split && first == nullptr)) return false;

  const auto launch = [&](const Function& function, std::initializer_list<uint64_t> addresses) {
    KernelArguments arguments;
    for (const uint64_t address : addresses) {
      if (address != 0) arguments.add(address);
    }
    for (const int64_t word : {shape.rows, shape.size, shape.inner, is_split ? shape.parts : 1, shape.part}) arguments.add(word);
    const int64_t tile = int64_t{function.group} * shape.per_item;
    const int64_t groups = shape.rows * (shape.is_rows ? (is_split ? shape.parts : 1) : (shape.inner + tile - 1) / tile);
    launch_function(device, function, static_cast<uint64_t>(groups), arguments);
  };
  const uint64_t to = writable_address_of(values), to_places = op.is_placed ? writable_address_of(places) : 0;
  if (!is_split) {
    launch(*last, {to, to_places, address_of(x)});
    return true;
  }
  const at::Tensor totals = empty({2, shape.rows * shape.parts}, c10::kLong, device);
  const uint64_t sums = writable_address_of(totals), wins = op.is_placed ? sums + 8 * static_cast<uint64_t>(totals.size(1)) : 0;
  launch(*first, {sums, wins, address_of(x)});
  launch(*last, {to, to_places, sums, wins, address_of(x)});
  return true;
}

bool wrap_dim(int64_t& dim, int64_t dims) {
  const int64_t most = std::max<int64_t>(dims, 1);
  if (dim < -most || dim >= most) return false;
  if (dim < 0) dim += most;
  return true;
}

enum class Form : uint8_t { functional, out, inplace };

struct Kernel {
  Kernel(const Operator& op, const char* name) : op(op), counter(portable_counter(name)) {}
  const Operator op;
  KernelCounter& counter;
  KernelSlots slots;
};

// With a dimension more, of the two parts.
at::Tensor parts_of(const at::Tensor& tensor) { return at::view_as_real(tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor); }

// Of `self` to a result of that dtype: new, `out`, or self.
bool compute(Kernel& kernel, const at::Tensor& self, int64_t dim, c10::ScalarType dtype, Form form, const at::Tensor& out,
             Results& results) {
  if ((!has_dtype(target_of(self.device().index()), dtype) && !is_complex(dtype)) || !wrap_dim(dim, self.dim())) return false;
  if (form == Form::out && !can_become(out, self.sizes(), dtype, {self})) return false;
  if (form == Form::inplace && self.scalar_type() != dtype) return false;
  const Output output(form == Form::out ? out : at::Tensor(), self.sizes(), dtype, self.device().index());
  const at::Tensor dense = self.contiguous();
  const bool sums_parts = is_complex(dtype) && std::string_view(kernel.op.name) == "sum";
  if (!(sums_parts ? scan(kernel.op, parts_of(dense), dim, parts_of(output.dense()), {}, kernel.slots)
                   : scan(kernel.op, dense, dim, output.dense(), {}, kernel.slots))) {
    return false;
  }
  kernel.counter.count();
  const at::Tensor result = output.finish();
  results.push_back(form == Form::inplace ? self.copy_(result) : result);
  return true;
}

// cumsum(self, dim, dtype), and with out
Compute sum_form(Kernel& kernel, Form form) {
  return [&kernel, form](const c10::IValue* a, Results& results) {
    const at::Tensor& self = a[0].toTensor();
    if (!can_walk(self) && !has_parts(self)) return false;
    const at::Tensor out = form == Form::out ? a[3].toTensor() : form == Form::inplace ? self : at::Tensor();
    const c10::ScalarType own = self.scalar_type();
    const c10::ScalarType dtype = dtype_of(a[2]).value_or(out.defined()                                 ? out.scalar_type()
                                                          : c10::isFloatingType(own) || is_complex(own) ? own
                                                                                                        : c10::kLong);
    if (is_complex(own) != is_complex(dtype)) return false;
    return is_pointwise(dtype) && dtype != c10::kBool && compute(kernel, self, a[1].toInt(), dtype, form, out, results);
  };
}

// _logcumsumexp(self, dim), and with out
Compute logsumexp_form(Kernel& kernel, Form form) {
  return [&kernel, form](const c10::IValue* a, Results& results) {
    const at::Tensor& self = a[0].toTensor();
    if (!can_walk(self) || !c10::isFloatingType(self.scalar_type())) return false;
    return compute(kernel, self, a[1].toInt(), self.scalar_type(), form, form == Form::out ? a[2].toTensor() : at::Tensor(), results);
  };
}

// _cummax_helper(self, values, indices, dim) -> ()
Compute place_form(Kernel& kernel) {
  return [&kernel](const c10::IValue* a, Results&) {
    const at::Tensor &self = a[0].toTensor(), &values = a[1].toTensor(), &indices = a[2].toTensor();
    int64_t dim = a[3].toInt();
    if (!can_walk(self) || !wrap_dim(dim, self.dim())) return false;
    if (!can_become(values, self.sizes(), self.scalar_type(), {self}) || !can_become(indices, self.sizes(), c10::kLong, {self, values})) {
      return false;
    }
    const c10::DeviceIndex device = self.device().index();
    const Output to(values, self.sizes(), self.scalar_type(), device), to_places(indices, self.sizes(), c10::kLong, device);
    if (!scan(kernel.op, self.contiguous(), dim, to.dense(), to_places.dense(), kernel.slots)) return false;
    kernel.counter.count();
    to.finish();
    to_places.finish();
    return true;
  };
}

const Defaults registered([](DefaultKernels& kernels) {
  static auto& sum = *new Kernel({"sum", false, true}, "cumsum");
  static auto& prod = *new Kernel({"prod", false, true}, "cumprod");
  static auto& max = *new Kernel({"max", true, false}, "_cummax_helper");
  static auto& min = *new Kernel({"min", true, false}, "_cummin_helper");
  static auto& logsumexp = *new Kernel({"logsumexp", false, false}, "_logcumsumexp");
  impl(kernels, "cumsum", sum_form(sum, Form::functional));
  impl(kernels, "cumsum.out", sum_form(sum, Form::out));
  impl(kernels, "cumsum_", sum_form(sum, Form::inplace));
  impl(kernels, "cumprod", sum_form(prod, Form::functional));
  impl(kernels, "cumprod.out", sum_form(prod, Form::out));
  impl(kernels, "cumprod_", sum_form(prod, Form::inplace));
  impl(kernels, "_logcumsumexp", logsumexp_form(logsumexp, Form::functional));
  impl(kernels, "_logcumsumexp.out", logsumexp_form(logsumexp, Form::out));
  impl(kernels, "_cummax_helper", place_form(max));
  impl(kernels, "_cummin_helper", place_form(min));
});

}  // namespace
}  // namespace scan_impl
}  // namespace backplane::portable
