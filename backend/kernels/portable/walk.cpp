// kernels/portable/walk.cpp: merges dimensions, names the unit, and launches it.
#include "kernels/portable/walk.h"

#include <algorithm>
#include <string>

#include "kernels/portable/dialect.h"
#include "kernels/portable/elementwise.h"
#include "kernels/portable/family.h"
#include "kernels/portable/text.h"
#include "modules/target.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace walk_impl {
namespace {

constexpr uint32_t kHostTile = 1024;  // elements of a group whose item is a core
constexpr uint32_t kLanes = 4;        // elements of an item otherwise
constexpr int64_t kShortRow = 8;      // rows below it cost more than strides, where an item walks whole rows

enum class Step : uint8_t { unit, zero, other, reversed };

constexpr int kRowDims[] = {0, 1, 3, 5, 11};  // 0: FLAT

}  // namespace
}  // namespace walk_impl

Walk::Walk(const char* name, at::IntArrayRef sizes, c10::DeviceIndex device)
    : name_(name), device_(device), sizes_(sizes.rbegin(), sizes.rend()) {}

Walk& Walk::add(const at::Tensor* tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset, bool is_written) {
  TORCH_INTERNAL_ASSERT(strides.size() == sizes_.size() && operands_.size() < kMost);
  uint64_t address = 0;
  if (tensor != nullptr) {
    const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
    address = (is_written ? writable_address_of(*tensor) : address_of(*tensor)) + static_cast<uint64_t>(offset * bytes);
  }
  operands_.push_back({address, tensor == nullptr ? c10::ScalarType::Undefined : dtype, is_written, {strides.rbegin(), strides.rend()}});
  return *this;
}

Walk& Walk::write(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset) {
  return add(&tensor, dtype, strides, offset, true);
}
Walk& Walk::read(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset) {
  return add(&tensor, dtype, strides, offset, false);
}
Walk& Walk::count(at::IntArrayRef strides) { return add(nullptr, c10::kLong, strides, 0, false); }

Walk& Walk::integer(int64_t value) {
  scalars_.push_back({static_cast<uint64_t>(value), false});
  return *this;
}
Walk& Walk::number(double value, c10::ScalarType computed) {
  computed_ = computed;
  scalars_.push_back({c10::isFloatingType(computed) ? word_of(value, computed) : static_cast<uint64_t>(static_cast<int64_t>(value)),
                      c10::isFloatingType(computed)});
  return *this;
}
Walk& Walk::compute_in(c10::ScalarType dtype) {
  computed_ = dtype;
  return *this;
}

Walk& Walk::reports(std::optional<int64_t> dim) {
  reports_ = true;
  reported_dim_ = dim;
  return *this;
}

Walk& Walk::in_order(int64_t dim) {
  ordered_ = static_cast<int64_t>(sizes_.size()) - 1 - dim;
  return *this;
}

// Drops dimensions of one element, sorts the others by the operands' strides, the first operand's above all, and merges neighbours.
void Walk::collapse(bool is_host) {
  const size_t dims = sizes_.size();
  c10::SmallVector<size_t, 6> order;
  for (size_t d = 0; d < dims; ++d) {
    if (sizes_[d] != 1 && static_cast<int64_t>(d) != ordered_) order.push_back(d);
  }
  const auto is_inside = [&](size_t a, size_t b) {
    for (const Operand& operand : operands_) {
      if (operand.dtype == c10::ScalarType::Undefined) continue;
      const int64_t x = std::abs(operand.strides[a]), y = std::abs(operand.strides[b]);
      if (x != 0 && y != 0 && x != y) return x < y;
    }
    return false;
  };
  sort_few(order, is_inside);
  c10::SmallVector<size_t, 6> kept;
  for (const size_t d : order) {
    const bool merges = !kept.empty() && std::all_of(operands_.begin(), operands_.end(), [&](const Operand& operand) {
      return operand.strides[d] == operand.strides[kept.back()] * sizes_[kept.back()];
    });
    if (merges) {
      sizes_[kept.back()] *= sizes_[d];
    } else {
      kept.push_back(d);
    }
  }
  if (is_host && kept.size() > 1 && sizes_[kept[0]] < walk_impl::kShortRow) {
    const auto longest = std::max_element(kept.begin(), kept.end(), [&](size_t a, size_t b) { return sizes_[a] < sizes_[b]; });
    std::swap(kept[0], *longest);
  }
  const auto pick = [&](c10::SmallVector<int64_t, 6>& values) {
    c10::SmallVector<int64_t, 6> picked;
    for (const size_t d : kept) picked.push_back(values[d]);
    values = std::move(picked);
  };
  pick(sizes_);
  for (Operand& operand : operands_) pick(operand.strides);
}

bool Walk::run(const char* body, KernelSlots& slots, int variant) {
  using namespace walk_impl;
  if (std::find(sizes_.begin(), sizes_.end(), 0) != sizes_.end()) return true;
  const Target& target = target_of(device_);
  if (computed_ != c10::ScalarType::Undefined && !has_dtype(target, computed_)) return false;
  for (const Operand& operand : operands_) {
    if (operand.dtype != c10::ScalarType::Undefined && !has_dtype(target, operand.dtype)) return false;
  }
  const bool is_ordered = ordered_ >= 0;
  const int64_t length = is_ordered ? sizes_[ordered_] : 1;
  c10::SmallVector<int64_t, 8> along;
  for (const Operand& operand : operands_) along.push_back(is_ordered ? operand.strides[ordered_] : 0);
  collapse(target.is_host());

  const size_t dims = sizes_.size();
  const size_t places = operands_.size();
  int64_t elements = 1;
  for (const int64_t size : sizes_) elements *= size;
  int64_t extent = elements;
  bool is_flat = dims <= 1 && !is_ordered;
  uint32_t pointers = 0;
  bp_signature signature{};
  c10::SmallVector<Step, 8> steps;
  for (size_t k = 0; k < places; ++k) {
    const Operand& operand = operands_[k];
    for (size_t d = 0; d < dims; ++d) extent = std::max(extent, std::abs(operand.strides[d]) * sizes_[d]);
    extent = std::max(extent, std::abs(along[k]) * length);
    const int64_t stride = dims == 0 ? 1 : operand.strides[0];
    steps.push_back(stride == 1 ? Step::unit : stride == 0 ? Step::zero : stride == -1 ? Step::reversed : Step::other);
    is_flat = is_flat && (steps.back() == Step::unit || steps.back() == Step::zero);
    if (operand.dtype == c10::ScalarType::Undefined) continue;
    TORCH_INTERNAL_ASSERT(pointers == k, "operands in memory stand before counts");
    if (operand.is_written) signature.written |= uint64_t{1} << pointers;
    ++pointers;
  }
  size_t shape = 0;
  while (!is_flat && shape < std::size(kRowDims) && (shape == 0 || static_cast<size_t>(kRowDims[shape]) + 1 < dims)) ++shape;
  if (shape == std::size(kRowDims)) return false;
  const auto outer = static_cast<size_t>(kRowDims[shape]);
  const bool is_wide = target.is_host() || extent >= (int64_t{1} << 30);

  uint64_t key = static_cast<uint64_t>(device_) & 63;
  const auto put = [&](uint64_t value, int bits) { key = key << bits | value; };
  put(static_cast<uint64_t>(variant), 4);
  put(static_cast<uint64_t>(is_wide), 1);
  put(static_cast<uint64_t>(is_ordered), 1);
  put(shape, 3);
  put(computed_ == c10::ScalarType::Undefined ? 15 : dtype_bits(computed_), 4);
  for (size_t k = 0; k < places; ++k) put(static_cast<uint64_t>(steps[k]), 2);
  c10::SmallVector<c10::ScalarType, 8> types;  // the operands' dtypes, each once
  for (const Operand& operand : operands_) {
    if (operand.dtype != c10::ScalarType::Undefined && std::find(types.begin(), types.end(), operand.dtype) == types.end()) {
      types.push_back(operand.dtype);
    }
  }
  TORCH_INTERNAL_ASSERT(types.size() <= 4);
  for (size_t k = 0; k < 4; ++k) put(k < types.size() ? dtype_bits(types[k]) : 15, 4);

  const auto words = static_cast<uint32_t>(scalars_.size()) + (reports_ ? 1 : 0) +
                     static_cast<uint32_t>(is_flat ? 1 : 2 + (is_ordered ? 1 + places : 0) + outer + places + outer * places);
  if (reports_) signature.written |= uint64_t{1} << pointers++;
  if ((pointers + words) * 8 > KernelArguments::kMost) return false;
  const uint32_t per_item = target.is_host() ? kHostTile : kLanes;
  const auto make = [&] {
    KernelSource source;
    source.name = name_;
    std::string text, parameters, members, begin, names, places_text, flat, row;
    const bool computes = computed_ != c10::ScalarType::Undefined;
    if (computes) {
      const char* const compute = compute_type(computed_);
      define(text, "C", compute);
      define(text, join("C_IS_", compute), 1);
      define(text, join("K_", dialect_name(computed_)), 1);
      define(text, "K_BITS", c10::elementSize(computed_) * 8);
    }
    for (size_t k = 0; k < places; ++k) {
      const char* separator = k == 0 ? "" : ", ";
      append(names, separator, "at", k);
      append(places_text, "const IDX i", k, " = at", k, "; ");  // named before the body has names of its own
      append(flat, separator, steps[k] == Step::zero ? "0" : "(i)");
      append(row, separator, "(o[", k, "]", steps[k] == Step::unit ? " + (c)" : steps[k] == Step::reversed ? " - (c)" : "");
      if (steps[k] == Step::other) append(row, " + (c) * (IDX)bp_arg.inner[", k, "]");
      if (is_ordered) append(row, " + r * (IDX)bp_arg.along[", k, "]");
      append(row, ")");
      const c10::ScalarType dtype = operands_[k].dtype;
      if (dtype == c10::ScalarType::Undefined) continue;
      append(parameters, separator, "BP_GLOBAL ", operands_[k].is_written ? "" : "const ", memory_type(dtype), "* BP_RESTRICT p", k);
      define(text, join("LOAD", k, "(i)"), "bp_load_", dialect_name(dtype), "(p", k, ", i)");
      define(text, join("STORE", k, "(i, x)"), "bp_store_", dialect_name(dtype), "(p", k, ", i, x)");
      define(text, join("T", k), memory_type(dtype));
      append(source.name, k == 0 ? "[" : ",", dialect_name(dtype));
    }
    source.name += "]";
    for (size_t k = 0; k < scalars_.size(); ++k) {
      const char* const type = !scalars_[k].is_number ? "i64" : computed_ == c10::kDouble ? "f64" : "f32";
      append(members, type, " s", k, "; ");
      if (scalars_[k].is_number && computed_ != c10::kDouble) append(members, "u32 s", k, "_; ");
      append(begin, "const ", type, " s", k, " = bp_arg.s", k, "; ");
    }
    if (reports_) {
      parameters += ", BP_GLOBAL i64* BP_RESTRICT record";
      members += "i64 site; ";
      begin += "const i64 site = bp_arg.site; ";
      define(text, "REPORT(place, size)", "bp_report(record, site, place, size)");
    }
    define(text, "IDX", is_wide ? "i64" : "i32");
    define(text, "POINTERS", pointers);
    define(text, "PLACES", places);
    define(text, "PARAMETERS", parameters);
    define(text, "MEMBERS", members);
    define(text, "BEGIN", begin);
    define(text, join("APPLY(", names, ")"), "{ ", places_text, body, " }");
    define(text, "AT_FLAT(i)", flat);
    define(text, "AT_ROW(c)", row);
    define(text, is_flat ? "FLAT" : "DIMS", is_flat ? 1 : outer);
    source.definitions = text;
    const auto is_half = [](c10::ScalarType dtype) { return c10::isReducedFloatingType(dtype); };
    if (computes || std::any_of(types.begin(), types.end(), is_half)) source.files.push_back("math.bpc");
    if (computes) source.files.push_back("compute.bpc");
    source.files.push_back(is_ordered ? "ordered.bpc" : "pointwise.bpc");
    source.kernel = is_ordered ? "ordered" : "pointwise";
    source.per_item = per_item;
    source.signature = signature;
    source.signature.struct_size = sizeof source.signature;
    source.signature.pointers = pointers;
    source.signature.value_bytes = 8 * words;
    return source;
  };
  const Function* function = slots.find(key, device_, make);
  if (function == nullptr) return false;

  KernelArguments arguments;
  for (uint32_t k = 0; k < pointers - (reports_ ? 1 : 0); ++k) arguments.add(operands_[k].address);
  if (reports_) arguments.add(report_record(device_));
  uint64_t groups = 0;
  if (is_flat) {
    arguments.add(elements);
    groups = static_cast<uint64_t>(elements) / (function->group * per_item) + 1;
  } else {
    const int64_t columns = dims == 0 ? 1 : sizes_[0];
    arguments.add(elements / columns);
    arguments.add(columns);
    if (is_ordered) {
      arguments.add(length);
      for (const int64_t stride : along) arguments.add(stride);
    }
    for (size_t d = 1; d <= outer; ++d) arguments.add(d < dims ? sizes_[d] : int64_t{1});
    for (const Operand& operand : operands_) arguments.add(dims == 0 ? int64_t{0} : operand.strides[0]);
    for (size_t d = 1; d <= outer; ++d) {
      for (const Operand& operand : operands_) arguments.add(d < dims ? operand.strides[d] : int64_t{0});
    }
    groups =
        target.is_host() ? static_cast<uint64_t>(elements / columns) : static_cast<uint64_t>(elements) / (function->group * kLanes) + 1;
  }
  for (const Scalar& scalar : scalars_) arguments.add(scalar.word);
  if (reports_) arguments.add(reported_dim_ ? report_site(*reported_dim_) : report_site(name_));
  launch_function(device_, *function, groups, arguments);
  if (reports_) raise_visible_reports(device_);
  return true;
}

c10::SmallVector<int64_t, 6> dense_strides(at::IntArrayRef sizes) {
  c10::SmallVector<int64_t, 6> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

c10::SmallVector<int64_t, 6> strides_with(const at::Tensor& tensor, int64_t dim, int64_t stride) {
  c10::SmallVector<int64_t, 6> strides(tensor.strides().begin(), tensor.strides().end());
  if (!strides.empty()) strides[static_cast<size_t>(dim)] = stride;
  return strides;
}

c10::SmallVector<int64_t, 6> broadcast_strides(const at::Tensor& tensor, at::IntArrayRef sizes) {
  c10::SmallVector<int64_t, 6> strides(sizes.size(), 0);
  const size_t missing = sizes.size() - tensor.sizes().size();
  for (size_t d = 0; d < tensor.sizes().size(); ++d) strides[missing + d] = tensor.sizes()[d] == 1 ? 0 : tensor.strides()[d];
  return strides;
}

}  // namespace backplane::portable
