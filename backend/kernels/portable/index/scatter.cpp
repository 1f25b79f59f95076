// kernels/portable/index/scatter.cpp: gather, scatter with and without a reduction, and index_reduce.
#include <ATen/Context.h>

#include <optional>
#include <string>

#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"

namespace backplane::portable {
namespace scatter_impl {
namespace {

// Whether the index's shape is valid for self, and for source, if there is one.
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
    const c10::ScalarType bits = bits_of(self.scalar_type());
    Walk walk("gather", index.sizes(), self.device().index());
    walk.reports(*dim);
    walk.write(out, bits, at_least_1d(out).strides()).read(index).read(self, bits, strides_with(self, *dim, 0));
    walk.integer(self.size(*dim)).integer(self.stride(*dim));
    if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[i2 + at * s1]; if (at < 0 || at >= s0) p0[i0] = 0;")) {
      return false;
    }
  }
  call.give(std::move(out));
  return true;
}

enum class Reduce : uint8_t { assign, sum, product, largest, smallest };

// out[.., index, ..] = or += etc. source, which is a tensor, or `number` if it is undefined.
bool scatter_into(const at::Tensor& target, int64_t dim, const at::Tensor& index, const at::Tensor& source, const c10::Scalar& number,
                  Reduce reduce) {
  const at::Tensor out = at_least_1d(target);
  const c10::ScalarType dtype = out.scalar_type();
  const c10::DeviceIndex device = out.device().index();
  const bool moves = reduce == Reduce::assign && source.defined();
  const c10::ScalarType type = moves ? bits_of(dtype) : dtype;
  Walk walk("scatter", index.sizes(), device);
  walk.reports(dim);
  walk.write(out, type, strides_with(out, dim, 0)).read(index);
  if (source.defined()) walk.read(source, type, source.strides());
  walk.integer(out.size(dim)).integer(out.stride(dim));
  if (!source.defined()) {
    if (number.isComplex() || (!c10::isFloatingType(dtype) && !number.isIntegral(true))) return false;
    walk.number(c10::isFloatingType(dtype) ? rounded(number.to<double>(), dtype) : number.to<double>(), dtype);
  } else if (!moves) {
    walk.compute_in(dtype);
  }
  const char* const place = "i0 + at * s1";
  const char* const value = moves ? "p2[i2]" : source.defined() ? "LOAD2(i2)" : "s2";
  if (reduce == Reduce::sum && has_atomic(device, dtype)) {
    const std::string body = join(IN_RANGE("p1[i1]", "s0"), atomic_add(dtype, place, value));
    return walk.run(body);
  }
  std::string stored = join("STORE0(", place, ", ", value, ");");
  if (moves) {
    stored = join("p0[", place, "] = ", value, ";");
  } else if (reduce != Reduce::assign) {
    constexpr const char* kReduced[] = {"", "a + b", "a * b", "m_max(a, b)", "m_min(a, b)"};  // in the order of Reduce
    stored = join("{ const C a = LOAD0(", place, "); const C b = ", value, "; STORE0(", place, ", ", kReduced[static_cast<size_t>(reduce)],
                  "); }");
  }
  if (reduce != Reduce::assign || at::globalContext().deterministicAlgorithms()) walk.in_order(dim);
  return walk.run(join(IN_RANGE("p1[i1]", "s0"), stored));
}

std::optional<Reduce> reduce_of(std::string_view word) {
  if (word == "add" || word == "sum") return Reduce::sum;
  if (word == "multiply" || word == "prod") return Reduce::product;
  if (word == "amax") return Reduce::largest;
  if (word == "amin") return Reduce::smallest;
  return std::nullopt;
}

// The neutral element for floats.
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
bool scatter_add(Call& call) {
  if (is_complex(call.tensor(0).scalar_type())) return compute_parts(call, &scatter_add, 1, 2);
  return scatter_with(call, Reduce::sum);
}
bool scatter_by_word(Call& call) {
  const auto reduce = reduce_of(call[4].toStringView());
  return reduce && scatter_with(call, *reduce);
}

// As in torch: without self, places that are written begin with the neutral element; a mean divides by their number.
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

// self, dim, index, source, reduce, include_self: the index is repeated for each row of source.
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

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"gather", "gather.out"}, &gather);
  add_operator(kernels, {"scatter.src", "scatter.src_out", "scatter_.src"}, &scatter);
  add_operator(kernels, {"scatter.value", "scatter.value_out", "scatter_.value"}, &scatter);
  add_operator(kernels, {"scatter.reduce", "scatter.reduce_out", "scatter_.reduce"}, &scatter_by_word);
  add_operator(kernels, {"scatter.value_reduce", "scatter.value_reduce_out", "scatter_.value_reduce"}, &scatter_by_word);
  add_operator(kernels, {"scatter_add", "scatter_add.out", "scatter_add_"}, &scatter_add);
  add_operator(kernels, {"scatter_reduce.two", "scatter_reduce.two_out", "scatter_reduce_.two"}, &scatter_reduce);
  add_operator(kernels, {"index_reduce", "index_reduce.out", "index_reduce_"}, &index_reduce);
});

}  // namespace
}  // namespace scatter_impl
}  // namespace backplane::portable
