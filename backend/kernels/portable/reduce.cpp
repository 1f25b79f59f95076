// kernels/portable/reduce.cpp: chooses how a reduction is walked, names the unit that does it, and launches it once, or twice where few
// rows have many elements.
#include "kernels/portable/reduce.h"

#include <ATen/core/DimVector.h>
#include <backplane/structured.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "kernels/portable/elementwise.h"
#include "kernels/portable/family.h"
#include "kernels/portable/text.h"
#include "modules/target.h"

namespace backplane::portable {
namespace reduce_impl {
namespace {

constexpr int kMostDims = 5;           // beside the innermost one, kept and reduced each
constexpr int64_t kShortRow = 8;       // shorter rows are walked side by side
constexpr int64_t kMostSteps = 16384;  // of one sum: longer ones lose too many bits

struct Dim {
  int64_t size, in, out;
};
using Dims = c10::SmallVector<Dim, 6>;  // outermost first

// Brings neighbours in memory together, and makes one dimension of those that can be.
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

// A launch, and all that the kernel's text depends on.
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

// How lanes and groups lie, from the kept and the reduced dimensions.
void choose_walk(Plan& plan, Dims kept, Dims reduced, const Target& target) {
  plan.count = count_of(reduced);
  plan.inner = take_innermost(reduced);
  plan.outer = std::move(reduced);
  plan.outer_count = count_of(plan.outer);
  const auto apart = [](const Dim& dim) { return dim.in == 0 ? std::numeric_limits<int64_t>::max() : dim.in; };
  const bool has_columns = !kept.empty() && kept.back().size > 1;
  plan.is_rows = !has_columns || apart(plan.inner) < apart(kept.back());
  if (plan.count == 1 && has_columns) plan.is_rows = false;
  if (has_columns && plan.inner.size < kShortRow && kept.back().size >= 2 * kShortRow) plan.is_rows = false;
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

// Parts of long rows, where there are too few for a device of many cores, or where a sum would have too many steps.
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

struct Types {
  c10::ScalarType element, converted;
  c10::ScalarType pair;  // Undefined: one operand
  std::string compute;
  c10::SmallVector<c10::ScalarType, 2> outputs;
};

uint32_t written_of(const Fold& what, const Plan& plan, const Types& types) {
  return plan.to_states ? static_cast<uint32_t>(what.states) : static_cast<uint32_t>(types.outputs.size());
}

uint32_t read_of(const Fold& what, const Plan& plan, const Types& types) {
  if (plan.from_states) return static_cast<uint32_t>(what.states);
  return types.pair == c10::ScalarType::Undefined ? 1 : 4;
}

std::string definitions(const Fold& what, const Plan& plan, const Types& types) {
  Definitions text;
  text.compute_in(types.compute);
  text.add(join("OP_", what.name), 1);
  text.add("T", memory_type(types.element));
  text.add("LOAD(i)", "AS_C(", load_text(types.element, "x, i", types.converted), ")");
  const bool is_paired = types.pair != c10::ScalarType::Undefined;
  text.add("PAIRED", is_paired ? 1 : 0);
  if (is_paired) {
    text.add("T1", memory_type(types.pair));
    text.add("LOAD1(i)", "((C)", load_text(types.pair, "y, i", types.converted), ")");
  }
  text.add("OUTPUTS", types.outputs.size());
  for (size_t k = 0; k < types.outputs.size(); ++k) {
    text.add(join("O", k), memory_type(types.outputs[k]));
    text.add(join("STORE", k, "(i, v)").c_str(), "bp_store_", dialect_name(types.outputs[k]), "(r", k, ", i, v)");
  }
  text.add("I", plan.is_wide_index ? "i64" : "i32");
  text.add("IDX", plan.is_wide ? "i64" : "i32");
  text.add("POINTERS", written_of(what, plan, types) + read_of(what, plan, types));
  const bool is_f32 = types.compute == "f32";
  const std::string member = is_f32 ? "f32" : types.compute == "f64" ? "f64" : "i64";
  text.add("MEMBERS", member, " s0; ", is_f32 ? "u32 s0_; " : "", member, " s1;", is_f32 ? " u32 s1_;" : "");
  const bool has_numbers = types.compute != "c64";
  text.add("BEGIN", has_numbers ? "const C s0 = (C)bp_arg.s0; const C s1 = (C)bp_arg.s1; (void)s0; (void)s1;" : "");
  text.add(plan.is_rows ? "ROWS" : "COLUMNS", 1);
  text.add("UNIT", plan.is_unit ? 1 : 0);
  text.add("KEPT", plan.kept_dims());
  text.add("REDUCED", plan.outer_dims());
  text.add("ROW_ITEMS", plan.row_items);
  text.add("FROM_STATES", plan.from_states ? 1 : 0);
  text.add("TO_STATES", plan.to_states ? 1 : 0);
  return text.text();
}

constexpr uint32_t kWords = 16;  // of the kernel's struct, without the dimensions

KernelSource source_of(const Fold& what, const Plan& plan, const Types& types) {
  KernelSource source;
  source.name = join(what.name, plan.from_states ? " 2" : "", "[", dialect_name(types.element), "]");
  source.definitions = definitions(what, plan, types);
  source.files = {"math.bpc", types.compute == "c64" ? "complex.bpc" : "compute.bpc", "reduction.bpc"};
  source.kernel = "reduction";
  source.per_item = plan.per_item;
  source.signature.struct_size = sizeof source.signature;
  const uint32_t written = written_of(what, plan, types);
  source.signature.pointers = written + read_of(what, plan, types);
  source.signature.value_bytes = 8 * (kWords + 3 * static_cast<uint32_t>(plan.kept_dims()) + 2 * static_cast<uint32_t>(plan.outer_dims()));
  source.signature.written = (uint64_t{1} << written) - 1;
  return source;
}

uint64_t key_of(const Plan& plan, const Types& types, c10::DeviceIndex device) {
  uint64_t key = static_cast<uint64_t>(device) & 63;
  const auto add = [&](uint64_t bits, uint64_t value) { key = key << bits | value; };
  add(4, dtype_bits(types.element));
  add(4, dtype_bits(types.converted));
  add(4, types.pair == c10::ScalarType::Undefined ? kNoDtype : dtype_bits(types.pair));
  for (size_t k = 0; k < 2; ++k) add(4, k < types.outputs.size() ? dtype_bits(types.outputs[k]) : kNoDtype);
  add(9, plan.per_item);
  add(11, plan.row_items);
  add(3, static_cast<uint64_t>(plan.kept_dims()));
  add(3, static_cast<uint64_t>(plan.outer_dims()));
  for (const bool flag : {plan.is_rows, plan.is_unit, plan.is_wide, plan.is_wide_index, plan.from_states, plan.to_states}) add(1, flag);
  return key;
}

void add_arguments(KernelArguments& arguments, const Plan& plan, const std::array<uint64_t, 2>& numbers) {
  for (const int64_t word : {plan.count, plan.rows, plan.column.size, plan.column.in, plan.column.out, plan.outer_count, plan.inner.size,
                             plan.inner.in, plan.splits, plan.inner_splits, plan.outer_part, plan.inner_part, plan.result_out}) {
    arguments.add(word);
  }
  arguments.add(plan.result_split);
  const auto add = [&](const Dims& dims, int padded, auto member, int64_t none) {
    for (int d = 0; d < padded; ++d) {
      arguments.add(static_cast<size_t>(d) < dims.size() ? dims[dims.size() - 1 - static_cast<size_t>(d)].*member : none);
    }
  };
  add(plan.kept, plan.kept_dims(), &Dim::size, 1);
  add(plan.kept, plan.kept_dims(), &Dim::in, 0);
  add(plan.kept, plan.kept_dims(), &Dim::out, 0);
  add(plan.outer, plan.outer_dims(), &Dim::size, 1);
  add(plan.outer, plan.outer_dims(), &Dim::in, 0);
  for (const uint64_t number : numbers) arguments.add(number);
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

bool fold(const Fold& what, const FoldCall& call, std::initializer_list<at::Tensor> outputs, KernelSlots& slots) {
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
  for (Dim& dim : reduced) dim.out = dim.in;  // so that collapsing asks for the elements alone
  if (self.numel() == 0) reduced = {{0, 1, 1}};
  collapse(kept, true);
  collapse(reduced, !what.is_ordered);

  Plan plan;
  choose_walk(plan, std::move(kept), std::move(reduced), target);
  if (plan.kept.size() > kMostDims || plan.outer.size() > kMostDims) return false;
  choose_parts(plan, target);
  plan.is_wide = has_wide_extent(target, extent);
  plan.is_wide_index = plan.count >= std::numeric_limits<int32_t>::max();

  Types types{self.scalar_type(),
              call.dtype,
              call.pair.defined() ? call.pair.scalar_type() : c10::ScalarType::Undefined,
              compute_type(call.dtype),
              {}};
  if (call.is_summed && c10::isIntegralType(call.dtype, /*includeBool=*/true)) types.compute = "i64";
  for (const at::Tensor& output : outputs) types.outputs.push_back(output.scalar_type());
  std::array<uint64_t, 2> numbers{};
  if (c10::isFloatingType(call.dtype)) numbers = {word_of(call.numbers[0], call.dtype), word_of(call.numbers[1], call.dtype)};

  const auto find = [&](const Plan& stage) {
    return slots.find(key_of(stage, types, device), device, [&] { return source_of(what, stage, types); });
  };
  const Function* second = nullptr;
  Plan last;
  if (plan.splits > 1) {
    plan.to_states = true;
    last.from_states = true;
    last.is_wide = plan.is_wide;
    last.is_wide_index = plan.is_wide_index;
    Dims parts{{plan.splits, plan.is_rows ? 1 : results, 0}};
    plan.result_out = plan.is_rows ? plan.splits : 1;
    plan.result_split = plan.is_rows ? 1 : results;
    choose_walk(last, {{results, plan.result_out, 1}}, std::move(parts), target);
    last.outer_part = 1;
    last.inner_part = last.inner.size;
    last.count = plan.count;
    second = find(last);
    if (second == nullptr) return false;
  }
  const Function* first = find(plan);
  if (first == nullptr) return false;

  c10::SmallVector<uint64_t, 3> states;
  at::Tensor memory;
  if (plan.to_states) {
    memory = empty({what.states, results * plan.splits}, c10::kLong, device);
    for (int k = 0; k < what.states; ++k) {
      states.push_back(writable_address_of(memory) + 8 * static_cast<uint64_t>(k * results * plan.splits));
    }
  }
  const auto launch = [&](const Function& function, const Plan& stage) {
    KernelArguments arguments;
    if (stage.to_states) {
      for (const uint64_t state : states) arguments.add(state);
    } else {
      for (const at::Tensor& output : outputs) arguments.add(writable_address_of(output));
    }
    if (stage.from_states) {
      for (const uint64_t state : states) arguments.add(state);
    } else {
      arguments.add(address_of(self));
      for (const at::Tensor* other : {&call.pair, &call.m, &call.q}) {
        if (call.pair.defined()) arguments.add(other->defined() ? address_of(*other) : 0);
      }
    }
    add_arguments(arguments, stage, numbers);
    launch_function(device, function, groups_of(stage, function), arguments);
  };
  launch(*first, plan);
  if (second != nullptr) launch(*second, last);
  return true;
}

}  // namespace backplane::portable
