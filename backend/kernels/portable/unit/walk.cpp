// kernels/portable/unit/walk.cpp: merges dimensions, finds the unit, and launches it.
#include "kernels/portable/unit/walk.h"

#include <algorithm>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace walk_impl {
namespace {

constexpr uint32_t kHostTile = 1024;  // elements of a group, if an item is a core
constexpr uint32_t kLanes = 4;        // elements of an item otherwise
constexpr int64_t kShortRow = 8;      // shorter rows cost more than strides, where an item walks whole rows
constexpr int64_t kLongRow = 64;      // as long as a strip is wide

constexpr int kRowDims[] = {1, 3, 5, 11};

}  // namespace
}  // namespace walk_impl

Walk::Walk(Literal name, at::IntArrayRef sizes, c10::DeviceIndex device)
    : name_(name), device_(device), sizes_(sizes.rbegin(), sizes.rend()) {}

Walk& Walk::add(const at::Tensor* tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset, bool is_written) {
  TORCH_INTERNAL_ASSERT(strides.size() == sizes_.size() && form_.count < kMostOperands);
  uint64_t address = 0;
  if (tensor != nullptr) {
    TORCH_INTERNAL_ASSERT(!is_written || form_.written == form_.count, "what is written comes first");
    TORCH_INTERNAL_ASSERT(form_.count == 0 || form_.operands[form_.count - 1].dtype != c10::ScalarType::Undefined,
                          "operands in memory stand before counts");
    const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
    address = (is_written ? writable_address_of(*tensor) : address_of(*tensor)) + static_cast<uint64_t>(offset * bytes);
  }
  form_.operands[form_.count++].dtype = dtype;
  form_.written += is_written;
  operands_.push_back({address, {strides.rbegin(), strides.rend()}});
  return *this;
}

Walk& Walk::write(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset) {
  return add(&tensor, dtype, strides, offset, true);
}
Walk& Walk::read(const at::Tensor& tensor, c10::ScalarType dtype, at::IntArrayRef strides, int64_t offset) {
  return add(&tensor, dtype, strides, offset, false);
}
Walk& Walk::count(at::IntArrayRef strides) { return add(nullptr, c10::ScalarType::Undefined, strides, 0, false); }

Walk& Walk::scalar(uint64_t word, bool is_number) {
  if (is_number) form_.numbers |= 1u << form_.scalars;
  ++form_.scalars;
  scalars_.push_back(word);
  return *this;
}
Walk& Walk::integer(int64_t value) { return scalar(static_cast<uint64_t>(value), false); }
Walk& Walk::number(double value, c10::ScalarType computed) {
  form_.computed = computed;
  if (!c10::isFloatingType(computed)) return integer(static_cast<int64_t>(value));
  return scalar(word_of(value, computed), true);
}
Walk& Walk::compute_in(c10::ScalarType dtype) {
  form_.computed = dtype;
  return *this;
}

Walk& Walk::reports(std::optional<int64_t> dim) {
  form_.reports = true;
  reported_dim_ = dim;
  return *this;
}

Walk& Walk::in_order(int64_t dim) {
  ordered_ = static_cast<int64_t>(sizes_.size()) - 1 - dim;
  form_.is_ordered = true;
  return *this;
}

// Drops dimensions of one element, sorts the others by the operands' strides, first by the first operand's, and merges neighbours.
void Walk::collapse(bool is_host) {
  const size_t dims = sizes_.size();
  c10::SmallVector<size_t, 6> order;
  for (size_t d = 0; d < dims; ++d) {
    if (sizes_[d] != 1 && static_cast<int64_t>(d) != ordered_) order.push_back(d);
  }
  const auto is_inside = [&](size_t a, size_t b) {
    for (size_t k = 0; k < operands_.size(); ++k) {
      if (form_.operands[k].dtype == c10::ScalarType::Undefined) continue;
      const Operand& operand = operands_[k];
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
  const auto pick = [&](c10::SmallVector<int64_t, 6>& values) {
    c10::SmallVector<int64_t, 6> picked;
    for (const size_t d : kept) picked.push_back(values[d]);
    values = std::move(picked);
  };
  pick(sizes_);
  for (Operand& operand : operands_) pick(operand.strides);
  if (is_host) avoid_short_rows();
}

// Where the innermost dimension is short, makes another one the innermost: of those that are long enough the one with the smallest strides,
// or the longest. False: it is not short, or no other is longer.
bool Walk::avoid_short_rows() {
  using walk_impl::kLongRow;
  if (sizes_.size() < 2 || sizes_[0] >= walk_impl::kShortRow) return false;
  const auto reach = [&](size_t d) {
    int64_t sum = 0;
    for (const Operand& operand : operands_) sum += operand.strides.empty() ? 0 : std::abs(operand.strides[d]);
    return sum;
  };
  size_t best = 0;
  for (size_t d = 1; d < sizes_.size(); ++d) {
    const bool is_better = sizes_[best] >= kLongRow && sizes_[d] >= kLongRow ? reach(d) < reach(best) : sizes_[d] > sizes_[best];
    if (is_better) best = d;
  }
  if (best == 0) return false;
  std::swap(sizes_[0], sizes_[best]);
  for (Operand& operand : operands_) {
    if (!operand.strides.empty()) std::swap(operand.strides[0], operand.strides[best]);
  }
  return true;
}

bool Walk::has_dtypes(const Target& target) const {
  if (form_.computed != c10::ScalarType::Undefined && !has_dtype(target, form_.computed)) return false;
  return std::all_of(form_.operands.begin(), form_.operands.begin() + form_.count, [&](const WalkForm::Operand& operand) {
    return operand.dtype == c10::ScalarType::Undefined || has_dtype(target, operand.dtype);
  });
}

bool Walk::run(const Part& body) {
  if (std::find(sizes_.begin(), sizes_.end(), 0) != sizes_.end()) return true;
  const Target& target = target_of(device_);
  if (!has_dtypes(target)) return false;
  if (form_.is_ordered) {
    length_ = sizes_[ordered_];
    for (Operand& operand : operands_) operand.along = operand.strides[ordered_];
  }
  collapse(target.is_host());
  return choose_form(target) && launch(target, body);
}

// Whether an element of float16 is accessed at an index of its own, not a long row at one index.
bool Walk::has_scattered_halves() const {
  const auto end = form_.operands.begin() + form_.count;
  const auto is_half = [](const WalkForm::Operand& operand) { return operand.dtype == c10::kHalf; };
  const auto changes = [](const WalkForm::Operand& operand) {
    return c10::isIntegralType(operand.dtype, false) && operand.step != Step::zero;
  };
  if (!std::any_of(form_.operands.begin(), end, is_half)) return false;
  return sizes_.empty() || sizes_[0] < walk_impl::kLongRow || std::any_of(form_.operands.begin(), end, changes);
}

// Chooses the steps, the dimensions and the type of places. False: there are too many dimensions.
bool Walk::choose_form(const Target& target) {
  const size_t dims = sizes_.size();
  int64_t extent = 1;
  for (const int64_t size : sizes_) extent *= size;
  bool is_flat = dims <= 1 && !form_.is_ordered;
  for (size_t k = 0; k < operands_.size(); ++k) {
    const Operand& operand = operands_[k];
    Step& step = form_.operands[k].step;
    if (step == Step::number) continue;
    for (size_t d = 0; d < dims; ++d) extent = std::max(extent, std::abs(operand.strides[d]) * sizes_[d]);
    extent = std::max(extent, std::abs(operand.along) * length_);
    const int64_t stride = dims == 0 || (dims == 1 && sizes_[0] == 1) ? 1 : operand.strides[0];
    step = stride == 1 ? Step::unit : stride == 0 ? Step::zero : stride == -1 ? Step::reversed : Step::other;
    is_flat = is_flat && (step == Step::unit || (step == Step::zero && (k != 0 || form_.expression == nullptr)));
  }
  form_.is_wide = target.is_host() || extent >= (int64_t{1} << 30);
  form_.is_serial = target.is_host() && form_.reports && has_scattered_halves();
  if (is_flat) return true;
  for (const int rows : walk_impl::kRowDims) {
    if (static_cast<size_t>(rows) + 1 < dims) continue;
    form_.rows = static_cast<uint8_t>(rows);
    // Places, for the base and for each dimension; lengths; scalars; the words for reports and ordered walks.
    const size_t words = (static_cast<size_t>(rows) + 4) * (form_.count + 1) + scalars_.size() + 4;
    return words * 8 <= KernelArguments::kMost;
  }
  return false;
}

// The source that is compiled for a walk.
static KernelSource source_of(Literal name, const WalkForm& form, const Part& body, c10::DeviceIndex device) {
  uint32_t pointers = 0, places = 0, numbers = 0;
  bool has_halves = false;
  for (size_t k = 0; k < form.count; ++k) {
    const auto [dtype, step] = form.operands[k];
    has_halves = has_halves || c10::isReducedFloatingType(dtype);
    if (step == Step::number) {
      ++numbers;
    } else {
      ++places;
      pointers += dtype != c10::ScalarType::Undefined;
    }
  }
  const uint32_t outer = form.rows;
  uint32_t words = form.scalars + numbers + (outer == 0 ? 1 : 2 + outer + places + outer * places);
  if (form.is_ordered) words += 1 + places;
  uint64_t written = (uint64_t{1} << form.written) - 1;
  if (form.reports) {
    written |= uint64_t{1} << pointers++;
    ++words;
  }
  Unit unit(device, "pointwise.bpc", "pointwise", name);
  if (form.computed != c10::ScalarType::Undefined) {
    unit.compute_in(form.computed);
  } else if (has_halves) {
    unit.file("math.bpc");
  }
  if (form.is_special) unit.file("special.bpc").file("special_compute.bpc");
  if (form.expression == nullptr) unit.define("BODY", body);
  return unit.made_by(&write_walk, form).source(walk_tile(target_of(device)), pointers, words, written);
}

const Function* find_walk(Literal name, const WalkForm& form, const Part& body, c10::DeviceIndex device) {
  KernelKey key;
  key.add(name, 0);
  key.add_bytes(&form, sizeof form);
  if (body.is_literal()) {
    key.add(body.text().data(), 0);
  } else {
    key.add(nullptr, body.text().size());
    key.add_bytes(body.text().data(), body.text().size());
  }
  return key.find(device, [&] { return source_of(name, form, body, device); });
}

uint32_t walk_tile(const Target& target) { return target.is_host() ? walk_impl::kHostTile : walk_impl::kLanes; }

uint64_t walk_groups(const Function& function, const Target& target, int64_t elements) {
  return static_cast<uint64_t>(elements) / (uint64_t{function.group} * walk_tile(target)) + 1;
}

bool Walk::launch(const Target& target, const Part& body) {
  const Function* const function = find_walk(name_, form_, body, device_);
  if (function == nullptr) return false;
  const bool is_flat = form_.rows == 0;
  const size_t outer = form_.rows;

  Arguments arguments;
  const auto each = [&](const auto& add) {
    for (size_t k = 0; k < form_.count; ++k) {
      if (form_.operands[k].step != Step::number) add(operands_[k]);
    }
  };
  for (size_t k = 0; k < form_.count; ++k) {
    const WalkForm::Operand& operand = form_.operands[k];
    if (operand.step != Step::number && operand.dtype != c10::ScalarType::Undefined) arguments.add(operands_[k].address);
  }
  if (form_.reports) arguments.add(report_record(device_));
  int64_t elements = 1;
  for (const int64_t size : sizes_) elements *= size;
  uint64_t groups = walk_groups(*function, target, elements);
  if (is_flat) {
    arguments.words(elements);
  } else {
    const size_t dims = sizes_.size();
    const int64_t columns = dims == 0 ? 1 : sizes_[0], rows = elements / columns;
    arguments.words(rows, columns);
    if (form_.is_ordered) {
      arguments.words(length_);
      each([&](const Operand& operand) { arguments.words(operand.along); });
    }
    for (size_t d = 1; d <= outer; ++d) arguments.words(d < dims ? sizes_[d] : int64_t{1});
    for (size_t d = 0; d <= outer; ++d) {
      each([&](const Operand& operand) { arguments.words(d < dims ? operand.strides[d] : int64_t{0}); });
    }
    if (target.is_host() && form_.strip != 0) {
      int64_t height = sizes_[1];
      for (size_t d = 2; d < dims && height * sizes_[d] <= form_.strip; ++d) height *= sizes_[d];
      groups = static_cast<uint64_t>(rows / height * ((columns + form_.strip - 1) / form_.strip));
    } else if (target.is_host()) {
      const int64_t several = form_.is_ordered || columns >= walk_impl::kHostTile ? 1 : walk_impl::kHostTile / columns;
      groups = static_cast<uint64_t>((rows + several - 1) / several);
    }
  }
  arguments.all(scalars_);
  if (form_.reports) arguments.add(reported_dim_ ? report_site(*reported_dim_) : report_site(name_));
  launch_function(device_, *function, groups, arguments);
  if (form_.reports) raise_visible_reports(device_);
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
