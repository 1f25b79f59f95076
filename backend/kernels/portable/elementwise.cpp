// kernels/portable/elementwise.cpp: names the unit that computes such operands (pointwise.bpc), and launches it.
#include "kernels/portable/elementwise.h"

#include <backplane/structured.h>

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/portable/dialect.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace elementwise_impl {
namespace {

constexpr int kMostDims = 12;
constexpr uint32_t kHostTile = 1024;  // elements of a group whose item is a core
constexpr uint32_t kLanes = 4;        // elements of an item otherwise
constexpr int64_t kStrip = 8;         // columns that one item walks row by row where operands disagree about the order (pointwise.bpc)
constexpr const char* kLetters[] = {"x", "y", "z", "w", "v", "u"};

// How an operand is walked along the innermost dimension. A number is on the host and travels in the kernel's struct.
enum class Advance : uint8_t { unit, zero, other, number };

// All that a kernel's text depends on, beside the operator.
struct Shape {
  int operands;  // the output is the first
  std::array<c10::ScalarType, kMostOperands> dtypes;
  std::array<Advance, kMostOperands> walks;
  c10::ScalarType common;
  int dims;  // of the rows: 0 for FLAT, else 1, 3, 5 or 11
  bool wide_index;
  bool across;  // some operand is dense down the columns, not along the rows
};

// Of an operand that is a number, or a tensor without dimensions.
bool keeps_value(const Expression& expression, int operand) { return operand == 2 && expression.numbers == HostNumbers::exact; }

bool is_wide_float(c10::ScalarType dtype) { return dtype == c10::kFloat || dtype == c10::kDouble; }

std::string convert(const std::string& value, c10::ScalarType from, c10::ScalarType to) {
  if (from == to) return value;
  if (!is_complex(from)) return join("bp_to_", dialect_name(to), "(", value, ")");
  if (to == c10::kBool) return join("c_is_true(", value, ")");
  return join("bp_to_", dialect_name(to), "((", value, ").re)");
}

// The lines in front of pointwise.bpc, which explains them.
std::string definitions(const Shape& shape, const Expression& expression) {
  const std::string_view compute = compute_type(shape.common);
  std::string parameters, members, begin, places, values, flat, row;
  std::string arrays, halves_in, values_of_halves;  // of operands that are rows of halves
  // Of bfloat16 where a function is called: a loop that hardly computes is better off with one pass.
  const bool calls = std::string_view(expression.text).find("m_") != std::string_view::npos;
  const auto is_halves = [&](int k) {
    return shape.walks[k] == Advance::unit && (shape.dtypes[k] == c10::kHalf || (calls && shape.dtypes[k] == c10::kBFloat16));
  };
  bool has_float16 = false;
  const bool is_struct = compute == "c64";  // in place one part may be written while the other is still to be read
  const std::string cast = is_struct ? "" : "(C)";
  const auto member = [&](const std::string& name) {
    if (is_struct) {
      append(members, "f32 ", name, "_re, ", name, "_im; ");
      append(begin, "const C ", name, " = bp_c64(bp_arg.", name, "_re, bp_arg.", name, "_im); ");
      return;
    }
    append(members, compute == "f64" ? "f64 " : compute == "f32" ? "f32 " : "i64 ", name, "; ");
    if (compute == "f32") append(members, "u32 ", name, "_; ");
    append(begin, "const C ", name, " = (C)bp_arg.", name, "; ");
  };
  for (int k = 0, pointer = 0; k < shape.operands; ++k) {
    const char* letter = k == 0 ? nullptr : kLetters[k - 1];
    if (shape.walks[k] == Advance::number) {
      member(letter);
      continue;
    }
    const int n = pointer;
    const char* separator = pointer == 0 ? "" : ", ";
    ++pointer;
    append(parameters, separator, "BP_GLOBAL ", k == 0 ? "" : "const ", memory_type(shape.dtypes[k]), is_struct ? "* p" : "* BP_RESTRICT p",
           n);
    append(places, separator, "i", n);
    append(flat, separator, shape.walks[k] == Advance::zero ? "0" : "(i)");
    append(row, separator, "o[", n, "]");
    if (shape.walks[k] == Advance::unit) append(row, " + (c)");
    if (shape.walks[k] == Advance::other) append(row, " + (c) * (IDX)bp_arg.inner[", n, "]");
    if (is_halves(k)) append(arrays, "BP_LOCAL_ARRAY(f32, h", n, ", HALF_ROW); ");
    has_float16 = has_float16 || (is_halves(k) && shape.dtypes[k] == c10::kHalf);
    if (k == 0) continue;
    const std::string loaded = join("bp_load_", dialect_name(shape.dtypes[k]), "(p", n, ", i", n, ")");
    const auto value = [&](const std::string& text) {
      const bool stays = keeps_value(expression, k) && is_wide_float(shape.dtypes[k]) && !is_struct;
      return join("const C ", letter, " = ", cast, stays ? text : convert(text, shape.dtypes[k], shape.common), "; ");
    };
    values += value(loaded);
    values_of_halves += value(is_halves(k) ? join("h", n, "[j]") : loaded);
    if (is_halves(k)) append(halves_in, "bp_", dialect_name(shape.dtypes[k]), "_row_to_f32(h", n, ", p", n, " + (i", n, "), n); ");
  }
  for (int k = 0; k < expression.scalars; ++k) member(join("s", k));
  std::string computed = join("(", expression.text, ")");
  if (expression.gives_bool && is_complex(shape.dtypes[0])) computed = convert(computed, c10::kBool, shape.dtypes[0]);
  const c10::ScalarType given = expression.gives_part ? c10::toRealValueType(shape.common) : shape.common;
  if (!expression.gives_bool && shape.dtypes[0] != given) {
    if (!expression.is_exact && !is_complex(given)) computed = convert(computed, c10::ScalarType::Undefined, given);
    if (!c10::isFloatingType(shape.dtypes[0]) || is_complex(given)) computed = convert(computed, given, shape.dtypes[0]);
  }
  std::string text;
  define(text, "C", compute);
  define(text, join("C_IS_", compute), 1);
  define(text, join("K_", dialect_name(shape.common)), 1);
  define(text, "K_ROUND(x)", "bp_to_", dialect_name(shape.common), "(x)");
  define(text, "K_BITS", c10::elementSize(shape.common) * 8);
  define(text, "BP_F8E4M3_OVERFLOW", int{c10::Float8_e4m3fn(1000.0f).x}, "u");  // torch's own says
  define(text, "IDX", shape.wide_index ? "i64" : "i32");
  int pointers = 0;
  for (int k = 0; k < shape.operands; ++k) pointers += shape.walks[k] != Advance::number;
  define(text, "POINTERS", pointers);
  define(text, "PARAMETERS", parameters);
  define(text, "MEMBERS", members);
  define(text, "BEGIN", begin);
  const std::string store = join("bp_store_", dialect_name(shape.dtypes[0]), "(p0, i0, ", computed, "); }");
  define(text, join("APPLY(", places, ")"), "{ ", values, store);
  const bool is_cast = shape.operands == 2 && is_halves(0) && shape.dtypes[0] == c10::kHalf && shape.dtypes[1] == c10::kFloat &&
                       shape.walks[1] == Advance::unit && std::string_view(expression.text) == "x";
  if (is_cast) {  // from where the row lies: a C compiler, which these words are for, has one kind of memory
    define(text, "HALVES", 16);
    define(text, "HALF_ROWS");
    define(text, join("HALVES_IN(n, ", places, ")"));
    define(text, join("HALVES_OUT(n, ", places, ")"), "bp_f32_row_to_f16(p0 + (i0), p1 + (i1), n);");
    define(text, join("APPLY_HALVES(j, ", places, ")"));
  } else if (!arrays.empty()) {
    define(text, "HALVES", has_float16 ? 16 : 1);
    define(text, "HALF_ROWS", arrays);
    define(text, join("HALVES_IN(n, ", places, ")"), halves_in);
    define(text, join("HALVES_OUT(n, ", places, ")"),
           is_halves(0) ? join("bp_f32_row_to_", dialect_name(shape.dtypes[0]), "(p0 + (i0), h0, n);") : "");
    define(text, join("APPLY_HALVES(j, ", places, ")"), "{ ", values_of_halves,
           is_halves(0) ? join("h0[j] = (f32)", computed, "; }") : store);
  }
  define(text, "AT_FLAT(i)", flat);
  define(text, "AT_ROW(c)", row);
  if (shape.across) define(text, "ACROSS", kStrip);
  define(text, shape.dims == 0 ? "FLAT" : "DIMS", shape.dims == 0 ? 1 : shape.dims);
  return text;
}

uint64_t key_of(const Shape& shape, c10::DeviceIndex device, int variant) {
  uint64_t key = static_cast<uint64_t>(device) & 63;
  key = key << 2 | static_cast<uint64_t>(variant);
  key = key << 1 | static_cast<uint64_t>(shape.wide_index);
  key = key << 4 | static_cast<uint64_t>(shape.dims + shape.across);  // dims is 0 or odd
  key = key << 3 | static_cast<uint64_t>(shape.operands);
  key = key << 4 | dtype_bits(shape.common);
  for (int k = 0; k < kMostOperands; ++k) {
    key = key << 6 | (k < shape.operands ? dtype_bits(shape.dtypes[k]) << 2 | static_cast<uint64_t>(shape.walks[k]) : 0);
  }
  return key;
}

KernelSource source_of(const std::string& name, const Shape& shape, const Expression& expression, const Target& target) {
  KernelSource source;
  source.name = join(name, "[");
  for (int k = 1; k < shape.operands; ++k) append(source.name, k > 1 ? "," : "", dialect_name(shape.dtypes[k]));
  source.name += "]";
  source.definitions = definitions(shape, expression);
  source.files = {"math.bpc", is_complex(shape.common) ? "complex.bpc" : "compute.bpc"};
  if (expression.is_special) source.files.insert(source.files.end(), {"special.bpc", "special_compute.bpc"});
  source.files.push_back("pointwise.bpc");
  source.kernel = "pointwise";
  source.per_item = target.is_host() ? kHostTile : kLanes;
  source.signature.struct_size = sizeof source.signature;
  uint32_t pointers = 0;
  uint32_t numbers = static_cast<uint32_t>(expression.scalars);
  for (int k = 0; k < shape.operands; ++k) ++(shape.walks[k] == Advance::number ? numbers : pointers);
  const auto dims = static_cast<uint32_t>(shape.dims);
  source.signature.pointers = pointers;
  source.signature.value_bytes = 8 * (numbers + (dims == 0 ? 1 : 2 + dims + pointers + dims * pointers));
  source.signature.written = 1;
  return source;
}

constexpr int64_t kWideExtent = int64_t{1} << 30;

uint64_t flat_groups(int64_t count, const Function& function, const Target& target) {
  return static_cast<uint64_t>(count) / (function.group * (target.is_host() ? kHostTile : kLanes)) + 1;
}

// The largest number that an index may reach, and more: a tile is added before the end is tested, and a grid of tiles.
int64_t extent_of(const at::TensorIteratorBase& iter) {
  int64_t extent = iter.numel();
  for (int k = 0; k < iter.ntensors(); ++k) {
    for (int d = 0; d < iter.ndim(); ++d) extent = std::max(extent, std::abs(iter.strides(k)[d]) * iter.shape()[d]);
  }
  return extent;
}

// Whether an operand that a walk along the rows reads, or writes, in steps is dense in the next dimension. Rows of halves are converted as
// such.
bool runs_across(const at::TensorIteratorBase& iter, const Shape& shape) {
  if (iter.ndim() < 2 || iter.shape()[0] < kStrip || iter.shape()[1] < kStrip) return false;
  bool is_across = false;
  for (int k = 0; k < shape.operands; ++k) {
    if (shape.dtypes[k] == c10::kHalf) return false;
    if (shape.walks[k] != Advance::other) continue;
    is_across = is_across || iter.strides(k)[1] == static_cast<int64_t>(c10::elementSize(shape.dtypes[k]));
  }
  return is_across;
}

int padded_rows(int dims) {
  for (const int size : {1, 3, 5, kMostDims - 1}) {
    if (dims <= size) return size;
  }
  return -1;
}

}  // namespace
}  // namespace elementwise_impl

// A number in eight bytes, as the struct's member of the compute type.
uint64_t word_of(double value, c10::ScalarType common) {
  if (common == c10::kDouble) return std::bit_cast<uint64_t>(value);
  return std::bit_cast<uint32_t>(static_cast<float>(value));  // the lower half; its neighbour pads it
}

uint64_t word_of(c10::complex<double> value) { return word_of(value.real(), c10::kFloat) | word_of(value.imag(), c10::kFloat) << 32; }

double rounded(double value, c10::ScalarType common) {
  const auto number = static_cast<float>(value);
  switch (common) {
    case c10::kHalf:
      return static_cast<float>(c10::Half(number));
    case c10::kBFloat16:
      return static_cast<float>(c10::BFloat16(number));
    case c10::ScalarType::Float8_e4m3fn:
      return static_cast<float>(c10::Float8_e4m3fn(number));
    case c10::ScalarType::Float8_e5m2:
      return static_cast<float>(c10::Float8_e5m2(number));
    case c10::ScalarType::Float8_e4m3fnuz:
      return static_cast<float>(c10::Float8_e4m3fnuz(number));
    case c10::ScalarType::Float8_e5m2fnuz:
      return static_cast<float>(c10::Float8_e5m2fnuz(number));
    case c10::ScalarType::Float8_e8m0fnu:
      return static_cast<float>(c10::Float8_e8m0fnu(number));
    default:
      return value;
  }
}

int64_t wrapped(int64_t value, c10::ScalarType common) {
  switch (common) {
    case c10::kByte:
      return static_cast<uint8_t>(value);
    case c10::kChar:
      return static_cast<int8_t>(value);
    case c10::kShort:
      return static_cast<int16_t>(value);
    case c10::kInt:
      return static_cast<int32_t>(value);
    case c10::kBool:
      return value != 0;
    default:
      return value;
  }
}

// An operand that is a number on the host, as a word of the common dtype.
static uint64_t number_word(at::TensorIteratorBase& iter, int k, c10::ScalarType common, bool keeps_value) {
  if (is_complex(common)) return word_of(iter.scalar_value<c10::complex<double>>(k));
  if (!c10::isFloatingType(common)) return static_cast<uint64_t>(wrapped(iter.scalar_value<int64_t>(k), common));
  const auto value = iter.scalar_value<double>(k);
  return word_of(keeps_value ? value : rounded(value, common), common);
}

bool compute(at::TensorIteratorBase& iter, const Computation& what, const Expression& expression, KernelSlots& slots) {
  const c10::ScalarType common = what.common;
  using namespace elementwise_impl;
  const int operands = iter.ntensors();
  const int dims = iter.ndim();
  if (operands > kMostOperands || dims > kMostDims) return false;
  const c10::Device first = iter.device(0);
  const c10::DeviceIndex device = first.index();
  const Target& target = target_of(device);
  Shape shape{};
  shape.operands = operands;
  shape.common = common;
  const auto takes = [&](c10::ScalarType dtype) { return is_complex(dtype) || is_float8(dtype) || has_dtype(target, dtype); };
  if (!takes(common)) return false;
  bool is_flat = dims <= 1;
  int pointers = 0;
  for (int k = 0; k < operands; ++k) {
    shape.dtypes[k] = what.bits ? common : iter.dtype(k);
    const bool is_elsewhere = k > 0 && iter.device(k) != first;
    const bool is_number = is_elsewhere && iter.is_cpu_scalar(k);
    if (is_elsewhere && !is_number) return false;
    if (is_number && is_complex(common)) shape.dtypes[k] = common;
    if (!is_number && !takes(shape.dtypes[k])) return false;  // a number travels in the common dtype
    const auto bytes = static_cast<int64_t>(c10::elementSize(shape.dtypes[k]));
    const int64_t stride = dims == 0 ? bytes : iter.strides(k)[0];
    shape.walks[k] = is_number ? Advance::number : stride == bytes ? Advance::unit : stride == 0 ? Advance::zero : Advance::other;
    if (dims == 1 && iter.shape()[0] == 1) shape.walks[k] = is_number ? Advance::number : Advance::unit;
    is_flat = is_flat && shape.walks[k] != Advance::other && !(k == 0 && shape.walks[k] == Advance::zero);
    pointers += !is_number;
  }
  const int64_t count = iter.numel();
  if (count == 0) return true;
  shape.dims = is_flat ? 0 : padded_rows(std::max(dims - 1, 1));
  shape.across = !is_flat && target.is_host() && runs_across(iter, shape);
  shape.wide_index = target.is_host() || extent_of(iter) >= kWideExtent;
  const Function* function =
      slots.find(key_of(shape, device, what.variant), device, [&] { return source_of(what.name, shape, expression, target); });
  if (function == nullptr) return false;

  KernelArguments arguments;
  for (int k = 0; k < operands; ++k) {
    if (shape.walks[k] == Advance::number) continue;
    check_allocated(iter.tensor_base(k));
    arguments.add(reinterpret_cast<uint64_t>(iter.data_ptr(k)));
  }
  uint64_t groups = 0;
  if (is_flat) {
    arguments.add(count);
    groups = flat_groups(count, *function, target);
  } else {
    const int64_t columns = iter.shape()[0];
    const int64_t rows = count / columns;
    arguments.add(rows);
    arguments.add(columns);
    const auto stride = [&](int k, int d) {
      return d < dims ? iter.strides(k)[d] / static_cast<int64_t>(c10::elementSize(shape.dtypes[k])) : 0;
    };
    for (int d = 1; d <= shape.dims; ++d) arguments.add(d < dims ? iter.shape()[d] : int64_t{1});
    for (int k = 0; k < operands; ++k) {
      if (shape.walks[k] != Advance::number) arguments.add(stride(k, 0));
    }
    for (int d = 1; d <= shape.dims; ++d) {
      for (int k = 0; k < operands; ++k) {
        if (shape.walks[k] != Advance::number) arguments.add(stride(k, d));
      }
    }
    const int64_t tasks = shape.across ? rows / iter.shape()[1] * ((columns + kStrip - 1) / kStrip) : rows;
    groups = target.is_host() ? static_cast<uint64_t>(tasks) : static_cast<uint64_t>(count) / (function->group * kLanes) + 1;
  }
  for (int k = 1; k < operands; ++k) {
    if (shape.walks[k] == Advance::number) arguments.add(number_word(iter, k, common, keeps_value(expression, k)));
  }
  for (int k = 0; k < expression.scalars; ++k) arguments.add(what.scalars[static_cast<size_t>(k)]);
  launch_function(device, *function, groups, arguments);
  return true;
}

bool compute_dense(at::ArrayRef<const at::Tensor*> inputs, const Computation& what, const Expression& expression, KernelSlots& slots,
                   at::Tensor& result) {
  using namespace elementwise_impl;
  const at::Tensor& first = *inputs[0];
  const c10::DeviceIndex device = first.device().index();
  const Target& target = target_of(device);
  if (!has_dtype(target, what.common)) return false;
  Shape shape{};  // walks: all of them Advance::unit
  shape.operands = static_cast<int>(inputs.size()) + 1;
  shape.common = what.common;
  shape.dtypes.fill(what.common);
  if (expression.gives_bool) shape.dtypes[0] = c10::kBool;
  const int64_t count = first.numel();
  shape.wide_index = target.is_host() || count * static_cast<int64_t>(first.itemsize()) >= kWideExtent;
  const Function* function = nullptr;
  if (count != 0) {
    function = slots.find(key_of(shape, device, what.variant), device, [&] { return source_of(what.name, shape, expression, target); });
    if (function == nullptr) return false;
  }
  result = empty(first.sizes(), shape.dtypes[0], device);
  if (count == 0) return true;
  KernelArguments arguments;
  arguments.add(reinterpret_cast<uint64_t>(result.mutable_data_ptr()));
  for (const at::Tensor* input : inputs) {
    check_allocated(*input);
    arguments.add(reinterpret_cast<uint64_t>(input->const_data_ptr()));
  }
  arguments.add(count);
  for (int k = 0; k < expression.scalars; ++k) arguments.add(what.scalars[static_cast<size_t>(k)]);
  launch_function(device, *function, flat_groups(count, *function, target), arguments);
  return true;
}

}  // namespace backplane::portable
