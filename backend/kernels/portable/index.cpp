// kernels/portable/index.cpp: reading and writing at places that a tensor tells: gather and scatter, advanced indexing, masks, embeddings,
// searches in sorted rows.
//
// A place that is out of range is reported (runtime/reports.h), read as 0 and not written; the debug build of a kernel stops there
// (BP_ASSERT). Errors of shapes and dtypes are the CPU's, to which such calls are left.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/unit_text.h"
#include "kernels/portable/walk.h"

namespace backplane::portable {
namespace index_impl {
namespace {

using Strides = c10::SmallVector<int64_t, 6>;

// A statement that runs where a place is within `size`: `at`, which is the index, or, WRAPPED, counts from the end below 0.
#define IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index, index, size)
#define WRAPPED_IN_RANGE(index, size) IF_IN_RANGE("const i64 at = " index " < 0 ? " index " + " size " : " index, index, size)
#define IF_IN_RANGE(at, index, size) \
  at "; BP_ASSERT(at >= 0 && at < " size "); if (at < 0 || at >= " size ") REPORT(" index ", " size "); else "

bool is_index(const at::Tensor& index, const at::Tensor& self) {
  return is_usable(index) && (index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt) && index.device() == self.device();
}

at::Tensor at_least_1d(const at::Tensor& tensor) { return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor; }

// The dimension as a number from 0 on; nothing if there is none such.
std::optional<int64_t> dimension(const c10::IValue& value, const at::Tensor& self) {
  const int64_t dims = std::max<int64_t>(self.dim(), 1);
  const int64_t dim = value.toInt();
  if (dim < -dims || dim >= dims) return std::nullopt;
  return dim < 0 ? dim + dims : dim;
}

bool repeats_places(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) return true;
  }
  return false;
}

// What an operator that changes a part of self writes to: self, or a copy of it. Undefined: the call is not ours.
at::Tensor changed(const Call& call, std::initializer_list<const at::Tensor*> others) {
  const at::Tensor& self = call.tensor(0);
  if (call.is_functional()) return self.clone(at::MemoryFormat::Contiguous);
  const at::Tensor& given = *call.given();
  if (given.scalar_type() != self.scalar_type() || given.device() != self.device() || repeats_places(given)) return {};
  for (const at::Tensor* other : others) {
    if (given.is_alias_of(*other)) return {};
  }
  if (call.form() == Call::Form::inplace || given.is_same(self)) return given;
  if (given.is_alias_of(self)) return {};
  at::Tensor out = call.output(self.sizes(), self.scalar_type(), self.device());
  out.copy_(self);
  return out;
}

// Sums into places that repeat: in order, or with the target's atomics where they are faster and nobody asks for the same bits each time.
bool has_atomic(c10::DeviceIndex device, c10::ScalarType dtype) {
  const Target& target = target_of(device);
  const uint32_t flag = dtype == c10::kFloat  ? BP_ATOMIC_ADD_F32
                        : dtype == c10::kInt  ? BP_ATOMIC_ADD_I32
                        : dtype == c10::kLong ? BP_ATOMIC_ADD_I64
                                              : 0;
  return !target.is_host() && (target.properties.atomics & flag) != 0 && !at::globalContext().deterministicAlgorithms();
}

std::string atomic_add(c10::ScalarType dtype, const std::string& place, const std::string& value) {
  const char* word = dtype == c10::kFloat ? "F32" : dtype == c10::kInt ? "I32" : "I64";
  return c10::str("BP_ATOMIC_ADD_", word, "(p0 + (", place, "), ", value, ");");
}

// --- gather, scatter ---

// Whether an index of that shape goes into self, and source, if there is one.
bool fits(const at::Tensor& index, const at::Tensor& self, const at::Tensor* source, int64_t dim) {
  if (index.dim() != self.dim() || (source != nullptr && source->dim() != self.dim())) return false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && index.size(d) > self.size(d)) return false;
    if (source != nullptr && index.size(d) > source->size(d)) return false;
  }
  return true;
}

bool gather(Call& call) {
  const at::Tensor self = at_least_1d(call.tensor(0));
  const at::Tensor index = at_least_1d(call.tensor(2));
  const auto dim = dimension(call[1], call.tensor(0));
  if (!is_movable(self) || !is_index(index, self) || !dim) return false;
  if (!call.is_functional() && (call.given()->is_alias_of(self) || call.given()->is_alias_of(index) || repeats_places(*call.given()))) {
    return false;
  }
  if (index.numel() != 0 && !fits(index, self, nullptr, *dim)) return false;
  at::Tensor out = call.output(call.tensor(2).sizes(), self.scalar_type(), self.device());
  if (!out.defined()) return false;
  if (index.numel() != 0) {
    static auto& slots = *new KernelSlots;
    const c10::ScalarType bits = bits_of(self.scalar_type());
    Walk walk("gather", index.sizes(), self.device().index());
    walk.reports();
    walk.write(out, bits, at_least_1d(out).strides()).read(index).read(self, bits, strides_with(self, *dim, 0));
    walk.integer(self.size(*dim)).integer(self.stride(*dim));
    if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[i2 + at * s1]; if (at < 0 || at >= s0) p0[i0] = 0;", slots)) {
      return false;
    }
  }
  call.give(std::move(out));
  return true;
}

enum class Reduce : uint8_t { assign, sum, product, largest, smallest };

// out[.., index, ..] = or += and so on source, which is a tensor, or `number` if it is undefined.
bool scatter_into(const at::Tensor& target, int64_t dim, const at::Tensor& index, const at::Tensor& source, const c10::Scalar& number,
                  Reduce reduce) {
  const at::Tensor out = at_least_1d(target);
  const c10::ScalarType dtype = out.scalar_type();
  static auto& slots = *new KernelSlots;
  const c10::DeviceIndex device = out.device().index();
  const bool moves = reduce == Reduce::assign && source.defined();
  const c10::ScalarType type = moves ? bits_of(dtype) : dtype;
  Walk walk("scatter", index.sizes(), device);
  walk.reports();
  walk.write(out, type, strides_with(out, dim, 0)).read(index);
  if (source.defined()) walk.read(source, type, source.strides());
  walk.integer(out.size(dim)).integer(out.stride(dim));
  if (!source.defined()) {
    if (number.isComplex() || (!c10::isFloatingType(dtype) && !number.isIntegral(true))) return false;
    walk.number(c10::isFloatingType(dtype) ? rounded(number.to<double>(), dtype) : number.to<double>(), dtype);
  } else if (!moves) {
    walk.compute_in(dtype);
  }
  const std::string place = "i0 + at * s1";
  const std::string value = moves ? "p2[i2]" : source.defined() ? "LOAD2(i2)" : "s2";
  if (reduce == Reduce::sum && has_atomic(device, dtype)) {
    const std::string body = IN_RANGE("p1[i1]", "s0") + atomic_add(dtype, place, value);
    return walk.run(body.c_str(), slots, source.defined() ? 10 : 11);
  }
  std::string body = IN_RANGE("p1[i1]", "s0") "{ ";
  const std::string old = "LOAD0(" + place + ")";
  switch (reduce) {
    case Reduce::assign:
      body += moves ? "p0[" + place + "] = " + value + ";" : "STORE0(" + place + ", " + value + ");";
      break;
    case Reduce::sum:
      body += "STORE0(" + place + ", " + old + " + " + value + ");";
      break;
    case Reduce::product:
      body += "STORE0(" + place + ", " + old + " * " + value + ");";
      break;
    case Reduce::largest:
      body += "const C a = " + old + "; const C b = " + value + "; STORE0(" + place + ", m_max(a, b));";
      break;
    case Reduce::smallest:
      body += "const C a = " + old + "; const C b = " + value + "; STORE0(" + place + ", m_min(a, b));";
      break;
  }
  body += " }";
  if (reduce != Reduce::assign || at::globalContext().deterministicAlgorithms()) walk.in_order(dim);
  return walk.run(body.c_str(), slots, static_cast<int>(reduce) * 2 + (source.defined() ? 0 : 1));
}

std::optional<Reduce> reduce_of(std::string_view word) {
  if (word == "add" || word == "sum") return Reduce::sum;
  if (word == "multiply" || word == "prod") return Reduce::product;
  if (word == "amax") return Reduce::largest;
  if (word == "amin") return Reduce::smallest;
  return std::nullopt;
}

// What floats begin with.
double neutral(Reduce reduce) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return reduce == Reduce::product ? 1 : reduce == Reduce::largest ? -kInfinity : reduce == Reduce::smallest ? kInfinity : 0;
}

// self, dim, index, then a tensor or a number.
bool scatter_with(Call& call, Reduce reduce) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor index = at_least_1d(call.tensor(2));
  const auto dim = dimension(call[1], self);
  if (!is_index(index, self) || !dim) return false;
  at::Tensor source;
  c10::Scalar number;
  if (call[3].isTensor()) {
    source = at_least_1d(call.tensor(3));
    if (source.scalar_type() != self.scalar_type() || source.device() != self.device()) return false;
  } else {
    number = call[3].toScalar();
  }
  const bool moves = reduce == Reduce::assign && source.defined();
  if (moves ? !is_movable(self) || !is_movable(source) : !is_usable(self) || (source.defined() && !is_usable(source))) return false;
  if (reduce != Reduce::assign && self.scalar_type() == c10::kBool) return false;
  if (index.numel() != 0 && !fits(index, at_least_1d(self), source.defined() ? &source : nullptr, *dim)) return false;
  at::Tensor out = changed(call, {&call.tensor(2), source.defined() ? &call.tensor(3) : &call.tensor(2)});
  if (!out.defined()) return false;
  if (index.numel() != 0 && !scatter_into(out, *dim, index, source, number, reduce)) return false;
  call.give(std::move(out));
  return true;
}

bool scatter(Call& call) { return scatter_with(call, Reduce::assign); }
bool scatter_add(Call& call) { return scatter_with(call, Reduce::sum); }
bool scatter_by_word(Call& call) {
  const auto reduce = reduce_of(call[4].toStringView());
  return reduce && scatter_with(call, *reduce);
}

// As torch: without self, places that are written begin with the neutral element; a mean divides by how many there are.
bool scatter_reduce(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const std::string_view word = call[4].toStringView();
  const bool has_self = call[5].toBool();
  const c10::ScalarType dtype = self.scalar_type();
  const bool is_mean = word == "mean";
  const auto reduce = is_mean ? std::optional(Reduce::sum) : reduce_of(word);
  if (!reduce || word == "add" || word == "multiply" || (is_mean && !c10::isFloatingType(dtype))) return false;
  if (has_self && !is_mean) return scatter_with(call, *reduce);
  if (!call.is_functional() || !is_usable(self) || !c10::isFloatingType(dtype) || call.tensor(3).scalar_type() != dtype) return false;
  const at::Tensor index = at_least_1d(call.tensor(2)), source = at_least_1d(call.tensor(3));
  const auto dim = dimension(call[1], self);
  if (!dim || !is_index(index, self) || !is_usable(source)) return false;
  if (index.numel() != 0 && !fits(index, at_least_1d(self), &source, *dim)) return false;
  at::Tensor out = self.clone(at::MemoryFormat::Contiguous);
  if (index.numel() != 0) {
    if (!has_self && !scatter_into(out, *dim, index, {}, neutral(*reduce), Reduce::assign)) return false;
    if (!scatter_into(out, *dim, index, source, 0, *reduce)) return false;
    if (is_mean) {
      const at::Tensor count = empty(self.sizes(), dtype, self.device().index()).fill_(has_self ? 1 : 0);
      if (!scatter_into(count, *dim, index, {}, 1, Reduce::sum)) return false;
      out.div_(count.clamp_min_(1));
    }
  }
  call.give(std::move(out));
  return true;
}

// Whether source has self's sizes but in dim, where it has the index's.
bool is_part(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source, int64_t dim) {
  if (source.dim() != self.dim() || source.size(dim) != index.numel()) return false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && source.size(d) != self.size(d)) return false;
  }
  return true;
}

// self, dim, index, source, reduce, include_self: the index once for each row of source.
bool index_reduce(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& index = call.tensor(2);
  const at::Tensor source = at_least_1d(call.tensor(3));
  const std::string_view word = call[4].toStringView();
  const bool has_self = call[5].toBool(), is_mean = word == "mean";
  const c10::ScalarType dtype = self.scalar_type();
  const auto reduce = is_mean ? std::optional(Reduce::sum) : reduce_of(word);
  const auto dim = dimension(call[1], self);
  if (!reduce || !dim || word == "add" || word == "sum" || word == "multiply" || !is_usable(self) || !c10::isFloatingType(dtype) ||
      !is_index(index, self) || index.dim() > 1 || !is_usable(source) || source.scalar_type() != dtype ||
      source.device() != self.device() || !is_part(at_least_1d(self), index, source, *dim)) {
    return false;
  }
  at::Tensor out = changed(call, {&index, &call.tensor(3)});
  if (!out.defined()) return false;
  if (source.numel() != 0) {
    Strides shape(static_cast<size_t>(source.dim()), 1);
    shape[*dim] = index.numel();
    const at::Tensor places = index.reshape(shape).expand(source.sizes());
    if (!has_self && !scatter_into(out, *dim, places, {}, neutral(*reduce), Reduce::assign)) return false;
    if (!scatter_into(out, *dim, places, source, 0, *reduce)) return false;
    if (is_mean) {
      shape.assign(static_cast<size_t>(source.dim()), 1);
      shape[*dim] = at_least_1d(out).size(*dim);
      const at::Tensor counts = empty(shape, c10::kFloat, self.device().index()).fill_(has_self ? 1 : 0);
      const at::Tensor one = empty(index.sizes(), c10::kFloat, self.device().index()).fill_(1);
      counts.view(-1).index_add_(0, at_least_1d(index), at_least_1d(one));
      out.div_(counts.clamp_min_(1).view(out.dim() == 0 ? at::IntArrayRef() : at::IntArrayRef(shape)));
    }
  }
  call.give(std::move(out));
  return true;
}

// --- along one dimension ---

// Strides of a vector of indices over the other tensor's dimensions.
Strides along(const at::Tensor& index, int64_t dim, int64_t dims) {
  Strides strides(static_cast<size_t>(dims), 0);
  strides[dim] = index.dim() == 0 ? 0 : index.stride(0);
  return strides;
}

bool index_select(Call& call) {
  const at::Tensor self = at_least_1d(call.tensor(0));
  const at::Tensor& index = call.tensor(2);
  const auto dim = dimension(call[1], call.tensor(0));
  if (!is_movable(self) || !is_index(index, self) || index.dim() > 1 || !dim) return false;
  if (call.tensor(0).dim() == 0 && index.numel() != 1) return false;
  if (self.size(*dim) == 0 && index.numel() != 0) return false;
  if (!call.is_functional() && (call.given()->is_alias_of(self) || call.given()->is_alias_of(index) || repeats_places(*call.given()))) {
    return false;
  }
  Strides sizes(self.sizes().begin(), self.sizes().end());
  sizes[*dim] = index.numel();
  at::Tensor out = call.output(call.tensor(0).dim() == 0 ? at::IntArrayRef() : at::IntArrayRef(sizes), self.scalar_type(), self.device());
  if (!out.defined()) return false;
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index_select", sizes, self.device().index());
  walk.reports();
  walk.write(out, bits, at_least_1d(out).strides())
      .read(index, index.scalar_type(), along(index, *dim, self.dim()))
      .read(self, bits, strides_with(self, *dim, 0))
      .integer(self.size(*dim))
      .integer(self.stride(*dim));
  if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[i2 + at * s1]; if (at < 0 || at >= s0) p0[i0] = 0;", slots)) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

bool add_along(const at::Tensor& out, int64_t dim, const at::Tensor& index, const at::Tensor& source, double alpha) {
  static auto& slots = *new KernelSlots;
  const c10::DeviceIndex device = out.device().index();
  const c10::ScalarType dtype = out.scalar_type();
  Walk walk("index_add", source.sizes(), device);
  walk.reports();
  walk.write(out, dtype, strides_with(out, dim, 0)).read(index, index.scalar_type(), along(index, dim, out.dim())).read(source);
  walk.integer(out.size(dim)).integer(out.stride(dim)).number(alpha, dtype);
  if (has_atomic(device, dtype)) {
    return walk.run((IN_RANGE("p1[i1]", "s0") + atomic_add(dtype, "i0 + at * s1", "LOAD2(i2) * s2")).c_str(), slots, 1);
  }
  return walk.in_order(dim).run(IN_RANGE("p1[i1]", "s0") "STORE0(i0 + at * s1, LOAD0(i0 + at * s1) + LOAD2(i2) * s2);", slots);
}

bool index_add(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& index = call.tensor(2);
  const at::Tensor source = at_least_1d(call.tensor(3));
  const c10::Scalar alpha = call[4].toScalar();
  const auto dim = dimension(call[1], self);
  if (!is_usable(self) || !is_index(index, self) || index.dim() > 1 || !is_usable(source) || source.scalar_type() != self.scalar_type() ||
      source.device() != self.device() || !dim || self.scalar_type() == c10::kBool || alpha.isComplex() ||
      (!c10::isFloatingType(self.scalar_type()) && !alpha.isIntegral(false)) || !is_part(at_least_1d(self), index, source, *dim)) {
    return false;
  }
  at::Tensor out = changed(call, {&index, &source});
  if (!out.defined()) return false;
  const bool is_taken = self.numel() == 0 && self.dim() > 1;  // by the CPU, whatever the indices are
  if (!is_taken && !add_along(at_least_1d(out), *dim, index, source, rounded(alpha.to<double>(), self.scalar_type()))) return false;
  call.give(std::move(out));
  return true;
}

bool index_copy(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& index = call.tensor(2);
  const at::Tensor source = at_least_1d(call.tensor(3));
  const auto dim = dimension(call[1], self);
  if (!is_movable(self) || !is_index(index, self) || index.dim() > 1 || !is_movable(source) || source.scalar_type() != self.scalar_type() ||
      source.device() != self.device() || !dim || !is_part(at_least_1d(self), index, source, *dim)) {
    return false;
  }
  at::Tensor result = changed(call, {&index, &source});
  if (!result.defined()) return false;
  const at::Tensor out = at_least_1d(result);
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index_copy", source.sizes(), self.device().index());
  walk.reports();
  walk.write(out, bits, strides_with(out, *dim, 0)).read(index, index.scalar_type(), along(index, *dim, out.dim()));
  walk.read(source, bits, source.strides()).integer(out.size(*dim)).integer(out.stride(*dim));
  if (at::globalContext().deterministicAlgorithms()) walk.in_order(*dim);
  if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0 + at * s1] = p2[i2];", slots)) return false;
  call.give(std::move(result));
  return true;
}

bool fill_along(Call& call, const c10::Scalar& value) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& index = call.tensor(2);
  const auto dim = dimension(call[1], self);
  const c10::ScalarType dtype = self.scalar_type();
  if (!is_usable(self) || !is_index(index, self) || index.dim() > 1 || !dim || value.isComplex() ||
      (!c10::isFloatingType(dtype) && !value.isIntegral(true)) || self.is_alias_of(index) || repeats_places(self)) {
    return false;
  }
  const at::Tensor out = at_least_1d(self);
  Strides sizes(out.sizes().begin(), out.sizes().end());
  sizes[*dim] = index.numel();
  static auto& slots = *new KernelSlots;
  Walk walk("index_fill_", sizes, self.device().index());
  walk.reports();
  walk.write(out, strides_with(out, *dim, 0)).read(index, index.scalar_type(), along(index, *dim, out.dim()));
  walk.integer(out.size(*dim)).integer(out.stride(*dim));
  walk.number(c10::isFloatingType(dtype) ? rounded(value.to<double>(), dtype) : value.to<double>(), dtype);
  if (!walk.run(WRAPPED_IN_RANGE("p1[i1]", "s0") "STORE0(i0 + at * s1, s2);", slots)) return false;
  call.give(self);
  return true;
}
bool index_fill(Call& call) { return fill_along(call, call[3].toScalar()); }
bool index_fill_tensor(Call& call) { return call.tensor(3).dim() == 0 && fill_along(call, call.tensor(3).item()); }

// --- in the flattened tensor ---

bool take(Call& call) {
  const at::Tensor& index = call.tensor(1);
  if (!is_movable(call.tensor(0)) || !is_index(index, call.tensor(0)) || index.scalar_type() != c10::kLong) return false;
  const at::Tensor self = call.tensor(0).contiguous();
  if ((self.numel() == 0 && index.numel() != 0) ||
      (!call.is_functional() && (call.given()->is_alias_of(call.tensor(0)) || call.given()->is_alias_of(index)))) {
    return false;
  }
  at::Tensor out = call.output(index.sizes(), self.scalar_type(), self.device());
  if (!out.defined() || repeats_places(out)) return false;
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  const Strides none(static_cast<size_t>(index.dim()), 0);
  Walk walk("take", index.sizes(), self.device().index());
  walk.reports();
  walk.write(out, bits, out.strides()).read(index).read(self, bits, none).integer(self.numel());
  if (!walk.run(WRAPPED_IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[at]; if (at < 0 || at >= s0) p0[i0] = 0;", slots)) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

bool put(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const bool sums = call[3].toBool();
  if (!is_index(call.tensor(1), self) || call.tensor(1).scalar_type() != c10::kLong || !is_usable(self) ||
      call.tensor(2).scalar_type() != self.scalar_type() || call.tensor(2).device() != self.device() ||
      call.tensor(1).numel() != call.tensor(2).numel() || self.is_alias_of(call.tensor(1)) || self.is_alias_of(call.tensor(2)) ||
      repeats_places(self) || (self.numel() == 0 && call.tensor(1).numel() != 0) || (sums && self.scalar_type() == c10::kBool)) {
    return false;
  }
  const at::Tensor index = call.tensor(1).reshape(-1), source = call.tensor(2).reshape(-1);
  const at::Tensor out = self.contiguous();
  static auto& slots = *new KernelSlots;
  const c10::ScalarType dtype = self.scalar_type();
  const c10::DeviceIndex device = self.device().index();
  Walk walk("put_", index.sizes(), device);
  walk.reports();
  walk.write(out, Strides{0}).read(index).read(source).integer(self.numel());
  const std::string begin = WRAPPED_IN_RANGE("p1[i1]", "s0");
  bool is_done = false;
  if (sums && has_atomic(device, dtype)) {
    is_done = walk.run((begin + atomic_add(dtype, "at", "LOAD2(i2)")).c_str(), slots, 2);
  } else if (sums) {
    is_done = walk.in_order(0).run((begin + "STORE0(at, LOAD0(at) + LOAD2(i2));").c_str(), slots, 1);
  } else {
    is_done = walk.run((begin + "p0[at] = p2[i2];").c_str(), slots);
  }
  if (!is_done) return false;
  if (!out.is_same(self)) self.copy_(out);
  call.give(self);
  return true;
}

// --- nonzero ---

// The places of what is not zero, a row each, and strides as torch's; undefined if there is no kernel.
at::Tensor places_of(const at::Tensor& given) {
  const at::Tensor self = given.contiguous();
  const c10::DeviceIndex device = self.device().index();
  const auto dims = static_cast<size_t>(std::max<int64_t>(self.dim(), 1));
  if (dims > 16) return {};
  const Target& target = target_of(device);
  static auto& slots = *new KernelSlots;
  const auto find = [&](uint64_t which, const char* word, const char* kernel, uint32_t pointers) {
    const uint64_t key = (static_cast<uint64_t>(device) << 16) | dims << 8 | dtype_bits(self.scalar_type()) << 2 | which;
    return slots.find(key, device, [&] {
      return UnitText("nonzero", "nonzero.bpc", kernel)
          .element("0", self.scalar_type())
          .define(word, "1")
          .define("DIMS", std::to_string(dims))
          .source(1, pointers, static_cast<uint32_t>(3 + dims), 1);
    });
  };
  const Function* const count = find(0, "COUNT_CHUNKS", "count_chunks", 2);
  const Function* const sum = find(1, "SUM_CHUNKS", "sum_chunks", 1);
  const Function* const write = find(2, "WRITE_PLACES", "write_places", 3);
  if (count == nullptr || sum == nullptr || write == nullptr) return {};
  const int64_t elements = self.numel();
  if (elements == 0) return empty({0, self.dim()}, c10::kLong, device).as_strided({0, self.dim()}, {1, 0});
  // About a thousand chunks at the most, each a multiple of the group.
  const int64_t group = target.is_host() ? 1 : count->group;
  const int64_t least = std::max<int64_t>(4096, (elements + 1023) / 1024);
  const int64_t chunk = (least + group - 1) / group * group;
  const int64_t chunks = (elements + chunk - 1) / chunk;
  const at::Tensor counts = empty({chunks + 1}, c10::kLong, device);
  const auto arguments = [&](std::initializer_list<const at::Tensor*> tensors) {
    KernelArguments block;
    for (const at::Tensor* tensor : tensors) {
      check_allocated(*tensor);
      block.add(reinterpret_cast<uint64_t>(tensor->const_data_ptr()));
    }
    block.add(elements);
    block.add(chunk);
    block.add(chunks);
    for (size_t d = 0; d < dims; ++d) block.add(self.dim() == 0 ? int64_t{1} : self.size(self.dim() - 1 - static_cast<int64_t>(d)));
    return block;
  };
  launch_function(device, *count, static_cast<uint64_t>(chunks), arguments({&counts, &self}));
  launch_function(device, *sum, 1, arguments({&counts}));
  const int64_t found = counts.select(0, chunks).item().toLong();
  const at::Tensor places = empty({static_cast<int64_t>(dims), found}, c10::kLong, device);
  if (found != 0) launch_function(device, *write, static_cast<uint64_t>(chunks), arguments({&places, &self, &counts}));
  return places.as_strided({found, self.dim()}, {1, found});  // as the CPU's
}

bool nonzero(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_usable(self)) return false;
  if (!call.is_functional() && (call.given()->scalar_type() != c10::kLong || call.given()->device() != self.device())) return false;
  at::Tensor places = places_of(self);
  if (!places.defined()) return false;
  if (!call.is_functional()) {
    const at::Tensor out = call.output(places.sizes(), c10::kLong, self.device());
    out.copy_(places);
    places = out;
  }
  call.give(std::move(places));
  return true;
}

// --- advanced indexing ---

constexpr size_t kMostIndices = 5;

// Indices in the order of the result's dimensions: `before` dimensions of self, those of the indices, and the rest.
struct Indexing {
  at::Tensor self;                                     // permuted if the indices do not stand side by side
  c10::SmallVector<at::Tensor, kMostIndices> indices;  // of the same sizes
  int64_t before = 0;
  Strides sizes;         // of the result
  Strides self_strides;  // over it: 0 in the indices' dimensions
  int64_t index_dims = 0;

  Strides index_strides(const at::Tensor& index) const {
    Strides strides(sizes.size(), 0);
    for (int64_t d = 0; d < index_dims; ++d) strides[before + d] = index.stride(d);
    return strides;
  }
};

std::optional<Indexing> read_indices(const at::Tensor& self, const c10::IValue& value) {
  if (self.dim() == 0) return std::nullopt;
  // A mask is the places where it is true: an index for each of its dimensions.
  std::vector<at::Tensor> indices;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isNone() || !element.toTensor().defined()) {
      indices.emplace_back();
      continue;
    }
    at::Tensor index = element.toTensor();
    if (index.device() != self.device()) {
      if (index.dim() != 0 && index.device().type() != c10::kCPU) return std::nullopt;
      index = index.to(self.device());
    }
    if (!is_usable(index)) return std::nullopt;
    if (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte) {
      const auto place = static_cast<int64_t>(indices.size());
      if (index.dim() == 0) return std::nullopt;
      for (int64_t d = 0; d < index.dim(); ++d) {
        if (place + d >= self.dim() || index.size(d) != self.size(place + d)) return std::nullopt;
      }
      const at::Tensor places = places_of(index);
      if (!places.defined()) return std::nullopt;
      for (int64_t d = 0; d < index.dim(); ++d) indices.push_back(places.select(1, d));
    } else if (index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt) {
      indices.push_back(index.scalar_type() == c10::kInt ? index.to(c10::kLong) : index);
    } else {
      return std::nullopt;
    }
  }
  const int64_t dims = self.dim();
  if (static_cast<int64_t>(indices.size()) > dims) return std::nullopt;
  indices.resize(static_cast<size_t>(dims));

  Indexing result;
  c10::SmallVector<int64_t, 6> indexed, others;
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < dims; ++d) {
    if (!indices[d].defined()) {
      others.push_back(d);
      continue;
    }
    indexed.push_back(d);
    for (int64_t k = 0; k < std::min<int64_t>(indices[d].dim(), static_cast<int64_t>(shape.size())); ++k) {
      const int64_t a = indices[d].size(indices[d].dim() - 1 - k), b = shape[shape.size() - 1 - k];
      if (a != b && a != 1 && b != 1) return std::nullopt;
    }
    shape = at::infer_size(shape, indices[d].sizes());
  }
  if (indexed.empty() || indexed.size() > kMostIndices) return std::nullopt;
  const bool is_together = indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  result.before = is_together ? indexed.front() : 0;
  result.index_dims = static_cast<int64_t>(shape.size());
  int64_t many = 1;
  for (const int64_t size : shape) many *= size;
  c10::SmallVector<int64_t, 6> order;
  for (int64_t k = 0; k < result.before; ++k) order.push_back(others[k]);
  order.append(indexed.begin(), indexed.end());
  for (size_t k = static_cast<size_t>(result.before); k < others.size(); ++k) order.push_back(others[k]);
  result.self = self.permute(order);
  for (const int64_t d : indexed) {
    if (self.size(d) == 0 && many != 0) return std::nullopt;
    result.indices.push_back(indices[d].expand(shape));
  }
  const auto add = [&](int64_t size, int64_t stride) {
    result.sizes.push_back(size);
    result.self_strides.push_back(stride);
  };
  for (int64_t k = 0; k < result.before; ++k) add(result.self.size(k), result.self.stride(k));
  for (const int64_t size : shape) add(size, 0);
  for (int64_t k = result.before + static_cast<int64_t>(indexed.size()); k < dims; ++k) add(result.self.size(k), result.self.stride(k));
  return result;
}

// The statements that find the place in self: `at`, from i<first> on. Sizes and strides are s0, s1, ...
std::string find_place(size_t count, size_t first, const char* place) {
  std::string text = c10::str("i64 at = ", place, "; i32 is_in = 1; ");
  for (size_t k = 0; k < count; ++k) {
    const std::string size = "s" + std::to_string(2 * k), stride = "s" + std::to_string(2 * k + 1), n = std::to_string(first + k);
    text += c10::str("{ const i64 given = p", n, "[i", n, "]; const i64 a = given < 0 ? given + ", size,
                     " : given; if (a < 0 || a >= ", size, ") { REPORT(given, ", size, "); is_in = 0; } at += a * ", stride, "; } ");
  }
  return text + "BP_ASSERT(is_in); ";
}

void add_indices(Walk& walk, const Indexing& indexing) {
  for (const at::Tensor& index : indexing.indices) walk.read(index, c10::kLong, indexing.index_strides(index));
  for (size_t k = 0; k < indexing.indices.size(); ++k) {
    const int64_t d = indexing.before + static_cast<int64_t>(k);
    walk.integer(indexing.self.size(d)).integer(indexing.self.stride(d));
  }
}

// The strides of a result of torch's: its iterator follows those of self.
at::Tensor new_indexed(const Indexing& indexing, const at::Tensor& self) {
  if (self.is_contiguous()) return empty(indexing.sizes, self.scalar_type(), self.device().index());
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).add_owned_output(at::Tensor());
  config.add_owned_const_input(indexing.self.as_strided(indexing.sizes, indexing.self_strides));
  for (const at::Tensor& index : indexing.indices) {
    config.add_owned_const_input(index.as_strided(indexing.sizes, indexing.index_strides(index)));
  }
  config.declare_static_dtype_and_device(self.scalar_type(), self.device());
  return config.build().output();
}

bool index(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_movable(self)) return false;
  const auto indexing = read_indices(self, call[1]);
  if (!indexing) return false;
  at::Tensor out;
  if (call.is_functional()) {
    out = new_indexed(*indexing, self);
  } else {
    if (call.given()->is_alias_of(self) || repeats_places(*call.given())) return false;
    for (const at::Tensor& index : indexing->indices) {
      if (call.given()->is_alias_of(index)) return false;
    }
    out = call.output(indexing->sizes, self.scalar_type(), self.device());
    if (!out.defined()) return false;
  }
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index", indexing->sizes, self.device().index());
  walk.reports();
  walk.write(out, bits, out.strides()).read(indexing->self, bits, indexing->self_strides);
  add_indices(walk, *indexing);
  const size_t count = indexing->indices.size();
  const std::string body = find_place(count, 2, "i1") + "p0[i0] = is_in ? p1[at] : 0;";
  if (!walk.run(body.c_str(), slots, static_cast<int>(count))) return false;
  call.give(std::move(out));
  return true;
}

bool index_put(Call& call) {
  const at::Tensor& self = call.tensor(0);
  at::Tensor values = call.tensor(2);
  const bool sums = call[3].toBool();
  if (values.defined() && values.dim() == 0 && values.device().type() == c10::kCPU) values = values.to(self.device());
  if (!is_usable(self) || !is_usable(values) || values.scalar_type() != self.scalar_type() || values.device() != self.device() ||
      repeats_places(self) || self.is_alias_of(values) || (sums && self.scalar_type() == c10::kBool)) {
    return false;
  }
  const auto list = call[1].toListRef();
  if (!sums && values.numel() == 1 && list.size() == 1 && list[0].isTensor() && list[0].toTensor().scalar_type() == c10::kBool &&
      list[0].toTensor().device() == self.device()) {
    at::Tensor mask = list[0].toTensor();
    if (mask.dim() == 0 || mask.dim() > self.dim() || mask.sizes() != self.sizes().slice(0, static_cast<size_t>(mask.dim()))) return false;
    for (int64_t d = mask.dim(); d < self.dim(); ++d) mask = mask.unsqueeze(-1);
    self.masked_fill_(mask, values.reshape({}));
    call.give(self);
    return true;
  }
  auto indexing = read_indices(self, call[1]);
  if (!indexing || !at::is_expandable_to(values.sizes(), indexing->sizes)) return false;
  for (const at::Tensor& index : indexing->indices) {
    if (self.is_alias_of(index)) return false;
  }
  static auto& slots = *new KernelSlots;
  const c10::DeviceIndex device = self.device().index();
  const c10::ScalarType dtype = self.scalar_type();
  const size_t count = indexing->indices.size();
  const bool is_atomic = sums && has_atomic(device, dtype);
  const bool is_ordered = (sums && !is_atomic) || (!sums && at::globalContext().deterministicAlgorithms());
  at::Tensor source = values.expand(indexing->sizes);
  if (is_ordered && indexing->index_dims != 1) {  // the indices as one dimension, which is walked in order
    source = source.flatten(indexing->before, indexing->before + indexing->index_dims - 1);
    if (indexing->index_dims == 0) source = source.unsqueeze(indexing->before);
    for (at::Tensor& index : indexing->indices) index = index.reshape({-1});
    Strides sizes(source.sizes().begin(), source.sizes().end());
    Strides strides(indexing->self_strides.begin(), indexing->self_strides.begin() + indexing->before);
    strides.push_back(0);
    strides.append(indexing->self_strides.begin() + indexing->before + indexing->index_dims, indexing->self_strides.end());
    indexing->sizes = sizes;
    indexing->self_strides = strides;
    indexing->index_dims = 1;
  }
  Walk walk("index_put", indexing->sizes, device);
  walk.reports();
  walk.write(indexing->self, dtype, indexing->self_strides).read(source);
  add_indices(walk, *indexing);
  if (is_ordered) walk.in_order(indexing->before);
  const std::string find = find_place(count, 2, "i0");
  const std::string body = find + "if (is_in) { " +
                           (is_atomic ? atomic_add(dtype, "at", "LOAD1(i1)")
                            : sums    ? "STORE0(at, LOAD0(at) + LOAD1(i1));"
                                      : "p0[at] = p1[i1];") +
                           " }";
  if (!walk.run(body.c_str(), slots, static_cast<int>(count) * 2 + (sums ? 1 : 0))) return false;
  call.give(self);
  return true;
}

// --- masks ---

bool masked_select(Call& call) {
  const at::Tensor& given = call.tensor(0);
  const at::Tensor& given_mask = call.tensor(1);
  if (!is_movable(given) || !is_usable(given_mask) || given_mask.scalar_type() != c10::kBool || given.device() != given_mask.device() ||
      (!call.is_functional() && (call.given()->is_alias_of(given) || call.given()->is_alias_of(given_mask)))) {
    return false;
  }
  std::vector<int64_t> shape;
  if (!at::are_expandable(given.sizes(), given_mask.sizes())) return false;
  shape = at::infer_size(given.sizes(), given_mask.sizes());
  const at::Tensor self = given.expand(shape).reshape(-1);
  const at::Tensor places = places_of(given_mask.expand(shape).reshape(-1));
  if (!places.defined()) return false;
  at::Tensor out = call.output({places.size(0)}, given.scalar_type(), given.device());
  if (!out.defined()) return false;
  out.copy_(self.index_select(0, places.select(1, 0)));
  call.give(std::move(out));
  return true;
}

bool masked_scatter(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& given_mask = call.tensor(1);
  const at::Tensor& source = call.tensor(2);
  if (!is_usable(self) || !is_usable(given_mask) || !is_usable(source) || given_mask.scalar_type() != c10::kBool ||
      source.scalar_type() != self.scalar_type() || source.device() != self.device() || given_mask.device() != self.device() ||
      repeats_places(self) || self.is_alias_of(source) || self.is_alias_of(given_mask) ||
      !at::is_expandable_to(given_mask.sizes(), self.sizes())) {
    return false;
  }
  const at::Tensor places = places_of(given_mask.expand(self.sizes()).reshape(-1));
  if (!places.defined() || places.size(0) > source.numel()) return false;
  self.put_(places.select(1, 0), source.reshape(-1).narrow(0, 0, places.size(0)));
  call.give(self);
  return true;
}

// --- embeddings, counts ---

bool embedding_backward(Call& call) {
  const at::Tensor& grad = call.tensor(0);
  const at::Tensor& indices = call.tensor(1);
  const int64_t rows = call[2].toInt(), padding = call[3].toInt();
  if (!is_usable(grad) || !c10::isFloatingType(grad.scalar_type()) || !is_index(indices, grad) || grad.dim() != indices.dim() + 1 ||
      call[4].toBool() || grad.numel() != indices.numel() * grad.size(grad.dim() - 1)) {
    return false;
  }
  const int64_t columns = grad.size(grad.dim() - 1);
  const at::Tensor source = grad.reshape({-1, columns}), index = indices.reshape(-1);
  at::Tensor out = empty({rows, columns}, grad.scalar_type(), grad.device().index()).zero_();
  if (columns != 0 && index.numel() != 0) {
    static auto& slots = *new KernelSlots;
    const c10::DeviceIndex device = grad.device().index();
    const c10::ScalarType dtype = grad.scalar_type();
    Walk walk("embedding_dense_backward", source.sizes(), device);
    walk.reports();
    walk.write(out, strides_with(out, 0, 0)).read(index, index.scalar_type(), along(index, 0, 2)).read(source);
    walk.integer(rows).integer(columns).integer(padding).compute_in(dtype);
    const std::string begin = IN_RANGE("p1[i1]", "s0") "if (at != s2) ";
    const bool is_done = has_atomic(device, dtype)
                             ? walk.run((begin + atomic_add(dtype, "i0 + at * s1", "LOAD2(i2)")).c_str(), slots, 1)
                             : walk.in_order(0).run((begin + "STORE0(i0 + at * s1, LOAD0(i0 + at * s1) + LOAD2(i2));").c_str(), slots);
    if (!is_done) return false;
  }
  call.give(std::move(out));
  return true;
}

// --- searches ---

// Where a value goes into its sorted row: the number of elements below it, or not above it with `right`.
bool search(Call& call, const at::Tensor& sorted, const at::Tensor& self, bool is_narrow, bool is_right, const at::Tensor* sorter) {
  if (!is_usable(sorted) || !is_usable(self) || sorted.scalar_type() != self.scalar_type() || sorted.device() != self.device() ||
      sorted.scalar_type() == c10::kBool || sorted.dim() == 0 || (sorted.dim() > 1 && sorted.dim() != self.dim())) {
    return false;
  }
  const int64_t dims = self.dim(), last = sorted.dim() - 1, size = sorted.size(last);
  for (int64_t d = 0; d < last; ++d) {
    if (sorted.size(d) != self.size(d)) return false;
  }
  if (sorter != nullptr && (!is_usable(*sorter) || sorter->scalar_type() != c10::kLong || sorter->sizes() != sorted.sizes())) return false;
  if (!call.is_functional() && (call.given()->is_alias_of(self) || call.given()->is_alias_of(sorted))) return false;
  at::Tensor out = call.output(self.sizes(), is_narrow ? c10::kInt : c10::kLong, self.device());
  if (!out.defined() || repeats_places(out)) return false;
  const auto rows = [&](const at::Tensor& tensor) {
    Strides strides(static_cast<size_t>(dims), 0);
    for (int64_t d = 0; d < last; ++d) strides[d] = tensor.stride(d);
    return strides;
  };
  static auto& slots = *new KernelSlots;
  Walk walk("searchsorted", self.sizes(), self.device().index());
  walk.write(out).read(self).read(sorted, rows(sorted));
  if (sorter != nullptr) walk.read(*sorter, rows(*sorter));
  walk.integer(size).integer(sorted.stride(last)).integer(sorter == nullptr ? 0 : sorter->stride(last)).compute_in(self.scalar_type());
  const std::string place = sorter == nullptr ? "i2 + middle * s1" : "i2 + p3[i3 + middle * s2] * s1";
  const std::string test = is_right ? "!(y > x)" : "!(y >= x)";
  const std::string body =
      "const C x = LOAD1(i1); i64 low = 0; i64 high = s0; while (low < high) { const i64 middle = (low + high) / 2; "
      "const C y = LOAD2(" +
      place + "); if (" + test + ") low = middle + 1; else high = middle; } STORE0(i0, low);";
  if (!walk.run(body.c_str(), slots, (is_right ? 1 : 0) + (sorter == nullptr ? 0 : 2))) return false;
  call.give(std::move(out));
  return true;
}

bool bucketize(Call& call) {
  return call.tensor(1).dim() == 1 && search(call, call.tensor(1), call.tensor(0), call[2].toBool(), call[3].toBool(), nullptr);
}

bool searchsorted(Call& call) {
  const bool has_side = call.has(4);
  const bool is_right = has_side ? call[4].toStringView() == "right" : call[3].toBool();
  if (has_side && (call[4].toStringView() != "left") != is_right) return false;
  if (has_side && call[3].toBool() && !is_right) return false;
  return search(call, call.tensor(0), call.tensor(1), call[2].toBool(), is_right, call.has(5) ? &call.tensor(5) : nullptr);
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"gather", "gather.out"}, &gather);
  add_operator(kernels, {"scatter.src", "scatter.src_out", "scatter_.src"}, &scatter);
  add_operator(kernels, {"scatter.value", "scatter.value_out", "scatter_.value"}, &scatter);
  add_operator(kernels, {"scatter.reduce", "scatter.reduce_out", "scatter_.reduce"}, &scatter_by_word);
  add_operator(kernels, {"scatter.value_reduce", "scatter.value_reduce_out", "scatter_.value_reduce"}, &scatter_by_word);
  add_operator(kernels, {"scatter_add", "scatter_add.out", "scatter_add_"}, &scatter_add);
  add_operator(kernels, {"scatter_reduce.two", "scatter_reduce.two_out", "scatter_reduce_.two"}, &scatter_reduce);
  add_operator(kernels, {"index_select", "index_select.out"}, &index_select);
  add_operator(kernels, {"index_add", "index_add.out", "index_add_"}, &index_add);
  add_operator(kernels, {"index_reduce", "index_reduce.out", "index_reduce_"}, &index_reduce);
  add_operator(kernels, {"index_copy", "index_copy.out", "index_copy_"}, &index_copy);
  add_operator(kernels, {"index_fill_.int_Scalar"}, &index_fill);
  add_operator(kernels, {"index_fill_.int_Tensor"}, &index_fill_tensor);
  add_operator(kernels, {"take", "take.out"}, &take);
  add_operator(kernels, {"put_"}, &put);
  add_operator(kernels, {"nonzero", "nonzero.out"}, &nonzero);
  add_operator(kernels, {"index.Tensor", "index.Tensor_out"}, &index);
  add_operator(kernels, {"_index_put_impl_"}, &index_put);
  add_operator(kernels, {"masked_select", "masked_select.out"}, &masked_select);
  add_operator(kernels, {"masked_scatter_"}, &masked_scatter);
  add_operator(kernels, {"embedding_dense_backward"}, &embedding_backward);
  add_operator(kernels, {"bucketize.Tensor", "bucketize.Tensor_out"}, &bucketize);
  add_operator(kernels, {"searchsorted.Tensor", "searchsorted.Tensor_out"}, &searchsorted);
});

#undef IN_RANGE

}  // namespace
}  // namespace index_impl
}  // namespace backplane::portable
