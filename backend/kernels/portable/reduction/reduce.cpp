// kernels/portable/reduction/reduce.cpp: chooses the walk of a reduction and its unit, and launches it once, or twice for few rows of many
// elements.
#include "kernels/portable/reduction/reduce.h"

#include <ATen/core/DimVector.h>
#include <backplane/structured.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/unit.h"

namespace backplane::portable {
namespace reduce_impl {
namespace {

constexpr int kMostDims = 5;           // kept and reduced each, without the innermost one
constexpr int64_t kManyRows = 16;      // are walked side by side where they are short
constexpr int64_t kMostSteps = 16384;  // per sum: longer ones lose too many bits

struct Dim {
  int64_t size, in, out;
};
using Dims = c10::SmallVector<Dim, 6>;  // outermost first

// Sorts dimensions by their strides in memory, and merges those that can be.
void collapse(Dims& dims, bool sort) {
  dims.erase(std::remove_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.size == 1; }), dims.end());
  const auto far = [](const Dim& dim) { return dim.in == 0 ? std::numeric_limits<int64_t>::max() : dim.in; };
  if (sort) sort_few(dims, [&](const Dim& a, const Dim& b) { return far(a) > far(b); });
  Dims joined;
  for (const Dim& dim : dims) {
    if (!joined.empty() && joined.back().in == dim.in * dim.size && joined.back().out == dim.out * dim.size) {
      joined.back() = {joined.back().size * dim.size, dim.in, dim.out};
    } else {
      joined.push_back(dim);
    }
  }
  dims = std::move(joined);
}

int64_t count_of(const Dims& dims) {
  int64_t count = 1;
  for (const Dim& dim : dims) count *= dim.size;
  return count;
}

Dim take_innermost(Dims& dims) {
  if (dims.empty()) return {1, 1, 1};
  const Dim last = dims.back();
  dims.pop_back();
  return last;
}

// A launch, and everything that the kernel's text depends on.
struct Plan {
  bool is_rows = true, is_unit = true, is_wide = true, is_wide_index = false;
  bool from_states = false, to_states = false;
  uint32_t per_item = 0, row_items = 1;
  Dim column{1, 0, 0}, inner{1, 1, 0};
  Dims kept, outer;
  int64_t rows = 1, outer_count = 1, count = 1;
  int64_t splits = 1, inner_splits = 1, outer_part = 1, inner_part = 1;
  int64_t result_out = 0, result_split = 0;

  int kept_dims() const { return kept.size() <= 1 ? 1 : kMostDims; }
  int outer_dims() const { return outer.size() <= 1 ? static_cast<int>(outer.size()) : kMostDims; }
};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The directions of lanes and groups, from the kept and the reduced dimensions.
void choose_walk(Plan& plan, const Fold& what, Dims kept, Dims reduced, const Target& target) {
  plan.count = count_of(reduced);
  plan.inner = take_innermost(reduced);
  plan.outer = std::move(reduced);
  plan.outer_count = count_of(plan.outer);
  const auto apart = [](const Dim& dim) { return dim.in == 0 ? std::numeric_limits<int64_t>::max() : dim.in; };
  const bool has_columns = !kept.empty() && kept.back().size > 1;
  plan.is_rows = !has_columns || apart(plan.inner) < apart(kept.back());
  if (plan.count == 1 && has_columns) plan.is_rows = false;
  // Side by side, a short row takes no fold of its lanes, which takes longer for several states. Items of a group fold them at once.
  const int64_t short_row = !target.is_host() ? 8 : what.states > 1 ? 128 : 64;
  if (has_columns && plan.inner.size < short_row && kept.back().size >= kManyRows) plan.is_rows = false;
  if (!plan.is_rows) plan.column = take_innermost(kept);
  plan.is_unit = (plan.is_rows ? plan.inner.in : plan.column.in) == 1;
  plan.kept = std::move(kept);
  plan.rows = count_of(plan.kept);
  const uint32_t group = target.properties.group_size;
  if (target.is_host()) {
    plan.per_item = !plan.is_rows ? 256 : plan.inner.size >= 512 ? 64 : plan.inner.size >= 32 ? 32 : 8;
  } else {
    plan.per_item = 4;
    plan.row_items = !plan.is_rows ? 1 : plan.inner.size >= group ? group : std::min<uint32_t>(32, group);
  }
}

// Splits long rows, if there are too few for a device of many cores, or if a sum would have too many steps.
void choose_parts(Plan& plan, const Target& target) {
  const int64_t tile = static_cast<int64_t>(plan.per_item) * target.properties.group_size;
  const int64_t lanes = plan.is_rows ? static_cast<int64_t>(plan.row_items) * plan.per_item : 1;
  const int64_t jobs = plan.rows * (plan.is_rows ? 1 : divided_up(plan.column.size, tile));
  const int64_t wanted = target.is_host() ? 16 : 1024;
  const int64_t least = plan.is_rows ? (target.is_host() ? 32768 : 4 * lanes) : (target.is_host() ? 1024 : 64);
  const int64_t splits = std::max(std::min(wanted / std::max<int64_t>(jobs, 1), plan.count / least), plan.count / (kMostSteps * lanes));
  plan.outer_part = plan.outer_count;
  plan.inner_part = plan.inner.size;
  if (splits <= 1) return;
  plan.outer_part = divided_up(plan.outer_count, std::min(splits, plan.outer_count));
  const int64_t outer_splits = divided_up(plan.outer_count, plan.outer_part);
  plan.inner_part = divided_up(plan.inner.size, std::min(divided_up(splits, outer_splits), plan.inner.size));
  plan.inner_splits = divided_up(plan.inner.size, plan.inner_part);
  plan.splits = outer_splits * plan.inner_splits;
}

// Few dense columns of many elements fill no vector: several rows are taken for one, whose columns are parts of the result's. Returns how
// many.
int64_t widen(Dims& kept, Dims& reduced, const Target& target) {
  constexpr int64_t kFewColumns = 64, kManyColumns = 256, kFewRows = 1024;
  if (!target.is_host() || kept.size() != 1 || reduced.size() != 1) return 1;
  Dim &column = kept[0], &row = reduced[0];
  if (column.in != 1 || row.in != column.size || column.size > kFewColumns || row.size < kFewRows) return 1;
  int64_t parts = kManyColumns / column.size;
  while (row.size % parts != 0) --parts;
  column.size *= parts;
  row = {row.size / parts, row.in * parts, row.out};
  return parts;
}

struct Types {
  c10::ScalarType element, converted;
  c10::ScalarType pair;  // Undefined: there is one operand
  bool is_summed;        // integers are summed in 64 bits
  c10::SmallVector<c10::ScalarType, 2> outputs;
};

constexpr uint32_t kWords = 16;  // of the kernel's struct, without the dimensions

const Function* find(const Fold& what, const Plan& plan, const Types& types, c10::DeviceIndex device) {
  const bool is_paired = types.pair != c10::ScalarType::Undefined;
  const auto states = static_cast<uint32_t>(what.states);
  const uint32_t written = plan.to_states ? states : static_cast<uint32_t>(types.outputs.size());
  const uint32_t pointers = written + (plan.from_states ? states : is_paired ? 4 : 1);
  Unit unit(device, "reduction.bpc", "reduction", what.name);
  unit.name(types.element).compute_in(types.converted, types.is_summed).op(what.name);
  unit.define("T", memory_type(types.element)).load("LOAD(i)", types.element, "x, i", types.converted).define("PAIRED", is_paired);
  const bool is_exact = types.converted == c10::kHalf || types.converted == c10::kFloat;
  unit.define("HALVES", types.element == c10::kHalf && is_exact && plan.is_unit && plan.row_items == 1);
  if (is_paired) unit.define("T1", memory_type(types.pair)).load("LOAD1(i)", types.pair, "y, i", types.converted);
  unit.define("OUTPUTS", types.outputs.size())
      .define("O0", memory_type(types.outputs[0]))
      .store("STORE0(i, v)", types.outputs[0], "r0, i, v");
  if (types.outputs.size() > 1) unit.define("O1", memory_type(types.outputs[1])).store("STORE1(i, v)", types.outputs[1], "r1, i, v");
  unit.define("I", plan.is_wide_index ? Literal("i64") : Literal("i32")).index(plan.is_wide).define("POINTERS", pointers);
  unit.define(plan.is_rows ? Literal("ROWS") : Literal("COLUMNS"), 1).define("UNIT", plan.is_unit).define("KEPT", plan.kept_dims());
  unit.define("REDUCED", plan.outer_dims()).define("ROW_ITEMS", plan.row_items);
  unit.define("FROM_STATES", plan.from_states).define("TO_STATES", plan.to_states);
  const auto words = static_cast<uint32_t>(3 * plan.kept_dims() + 2 * plan.outer_dims());
  return unit.find(plan.per_item, pointers, kWords + words, (uint64_t{1} << written) - 1);
}

void add_arguments(Arguments& arguments, const Plan& plan, const std::array<uint64_t, 2>& numbers) {
  arguments.words(plan.count, plan.rows, plan.column.size, plan.column.in, plan.column.out, plan.outer_count, plan.inner.size,
                  plan.inner.in, plan.splits, plan.inner_splits, plan.outer_part, plan.inner_part, plan.result_out, plan.result_split);
  const auto add = [&](const Dims& dims, int padded, auto member, int64_t none) {
    for (int d = 0; d < padded; ++d) {
      arguments.words(static_cast<size_t>(d) < dims.size() ? dims[dims.size() - 1 - static_cast<size_t>(d)].*member : none);
    }
  };
  add(plan.kept, plan.kept_dims(), &Dim::size, 1);
  add(plan.kept, plan.kept_dims(), &Dim::in, 0);
  add(plan.kept, plan.kept_dims(), &Dim::out, 0);
  add(plan.outer, plan.outer_dims(), &Dim::size, 1);
  add(plan.outer, plan.outer_dims(), &Dim::in, 0);
  arguments.all(numbers);
}

uint64_t groups_of(const Plan& plan, const Function& function) {
  if (plan.is_rows) return static_cast<uint64_t>(divided_up(plan.rows * plan.splits, function.group / plan.row_items));
  return static_cast<uint64_t>(plan.rows * plan.splits * divided_up(plan.column.size, int64_t{function.group} * plan.per_item));
}

}  // namespace
}  // namespace reduce_impl

at::DimVector reduced_size(at::IntArrayRef size, DimMask reduced, bool keepdim) {
  at::DimVector result;
  for (size_t d = 0; d < size.size(); ++d) {
    if (!reduced[d]) {
      result.push_back(size[d]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

bool fold(const Fold& what, const FoldCall& call, std::initializer_list<at::Tensor> outputs) {
  using namespace reduce_impl;
  const at::Tensor& self = call.self;
  const c10::DeviceIndex device = self.device().index();
  const Target& target = target_of(device);
  if (!has_dtype(target, call.dtype) && !is_complex(call.dtype)) return false;
  const int64_t results = outputs.begin()->numel();
  if (results == 0) return true;

  Dims kept, reduced;
  int64_t extent = self.numel();
  int64_t out_stride = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const Dim dim{self.size(d), self.stride(d), out_stride};
    extent = std::max(extent, dim.size * dim.in);
    if (call.reduced[static_cast<size_t>(d)]) {
      reduced.insert(reduced.begin(), {dim.size, dim.in, 0});
    } else {
      kept.insert(kept.begin(), dim);
      out_stride *= dim.size;
    }
  }
  for (Dim& dim : reduced) dim.out = dim.in;  // so that collapse() depends only on the elements
  if (self.numel() == 0) reduced = {{0, 1, 1}};
  collapse(kept, true);
  collapse(reduced, !what.is_ordered);

  Plan plan;
  const int64_t count = count_of(reduced);
  const int64_t widened = what.is_ordered || call.pair.defined() ? 1 : widen(kept, reduced, target);
  choose_walk(plan, what, std::move(kept), std::move(reduced), target);
  if (plan.kept.size() > kMostDims || plan.outer.size() > kMostDims) return false;
  choose_parts(plan, target);
  plan.count = count;
  const int64_t parts = plan.splits * widened;  // of each result
  plan.is_wide = has_wide_extent(target, extent);
  plan.is_wide_index = plan.count >= std::numeric_limits<int32_t>::max();

  Types types{
      self.scalar_type(), call.dtype, call.pair.defined() ? call.pair.scalar_type() : c10::ScalarType::Undefined, call.is_summed, {}};
  for (const at::Tensor& output : outputs) types.outputs.push_back(output.scalar_type());
  std::array<uint64_t, 2> numbers{};
  if (c10::isFloatingType(call.dtype)) numbers = {word_of(call.numbers[0], call.dtype), word_of(call.numbers[1], call.dtype)};

  const Function* second = nullptr;
  Plan last;
  if (parts > 1) {
    plan.to_states = true;
    last.from_states = true;
    last.is_wide = plan.is_wide;
    last.is_wide_index = plan.is_wide_index;
    plan.result_out = plan.is_rows ? parts : 1;
    plan.result_split = plan.is_rows ? 1 : results * widened;
    choose_walk(last, what, {{results, plan.result_out, 1}}, {{parts, plan.is_rows ? 1 : results, 0}}, target);
    last.outer_part = 1;
    last.inner_part = last.inner.size;
    last.count = plan.count;
    second = find(what, last, types, device);
    if (second == nullptr) return false;
  }
  const Function* first = find(what, plan, types, device);
  if (first == nullptr) return false;

  c10::SmallVector<uint64_t, 3> states;
  at::Tensor memory;
  if (plan.to_states) {
    memory = empty({what.states, results * parts}, c10::kLong, device);
    for (int k = 0; k < what.states; ++k) {
      states.push_back(writable_address_of(memory) + 8 * static_cast<uint64_t>(k * results * parts));
    }
  }
  const auto launch = [&](const Function& function, const Plan& stage) {
    Arguments arguments;
    if (stage.to_states) {
      arguments.all(states);
    } else {
      for (const at::Tensor& output : outputs) arguments.write(output);
    }
    if (stage.from_states) {
      arguments.all(states);
    } else {
      arguments.read(self);
      if (call.pair.defined()) arguments.read(call.pair).read(call.m).read(call.q);
    }
    add_arguments(arguments, stage, numbers);
    launch_function(device, function, groups_of(stage, function), arguments);
  };
  launch(*first, plan);
  if (second != nullptr) launch(*second, last);
  return true;
}

}  // namespace backplane::portable
