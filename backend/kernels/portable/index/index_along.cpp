// kernels/portable/index/index_along.cpp: a vector of indices along one dimension, or into the flattened tensor.
#include <ATen/Context.h>

#include <optional>
#include <string>

#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"

namespace backplane::portable {
namespace index_along_impl {
namespace {

bool index_select(Call& call) {
  const at::Tensor self = at_least_1d(call.tensor(0));
  const at::Tensor& index = call.tensor(2);
  const auto dim = dimension(call[1], call.tensor(0));
  if (!is_movable(self) || !is_index(index, self) || index.dim() > 1 || !dim) return false;
  if (call.tensor(0).dim() == 0 && index.numel() != 1) return false;
  if (self.numel() == 0 && index.numel() != 0) return false;  // the CPU also checks indices into empty tensors
  if (!call.is_functional() && (call.given()->is_alias_of(self) || call.given()->is_alias_of(index) || repeats_places(*call.given()))) {
    return false;
  }
  Strides sizes(self.sizes().begin(), self.sizes().end());
  sizes[*dim] = index.numel();
  at::Tensor out = call.output(call.tensor(0).dim() == 0 ? at::IntArrayRef() : at::IntArrayRef(sizes), self.scalar_type(), self.device());
  if (!out.defined()) return false;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index_select", sizes, self.device().index());
  walk.reports();
  walk.write(out, bits, at_least_1d(out).strides())
      .read(index, index.scalar_type(), along(index, *dim, self.dim()))
      .read(self, bits, strides_with(self, *dim, 0))
      .integer(self.size(*dim))
      .integer(self.stride(*dim));
  if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[i2 + at * s1]; if (at < 0 || at >= s0) p0[i0] = 0;")) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

bool add_along(const at::Tensor& out, int64_t dim, const at::Tensor& index, const at::Tensor& source, double alpha) {
  const c10::DeviceIndex device = out.device().index();
  const c10::ScalarType dtype = out.scalar_type();
  Walk walk("index_add", source.sizes(), device);
  walk.reports();
  walk.write(out, dtype, strides_with(out, dim, 0)).read(index, index.scalar_type(), along(index, dim, out.dim())).read(source);
  walk.integer(out.size(dim)).integer(out.stride(dim)).number(alpha, dtype);
  if (has_atomic(device, dtype)) {
    return walk.run(IN_RANGE("p1[i1]", "s0") + atomic_add(dtype, "i0 + at * s1", "LOAD2(i2) * s2"));
  }
  return walk.in_order(dim).run(IN_RANGE("p1[i1]", "s0") "STORE0(i0 + at * s1, LOAD0(i0 + at * s1) + LOAD2(i2) * s2);");
}

bool index_add(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (is_complex(self.scalar_type())) return self.dim() != 0 && compute_parts(call, &index_add, 1);
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
  const bool is_taken = self.numel() == 0 && self.dim() > 1;  // the CPU accepts any indices
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
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index_copy", source.sizes(), self.device().index());
  walk.reports();
  walk.write(out, bits, strides_with(out, *dim, 0)).read(index, index.scalar_type(), along(index, *dim, out.dim()));
  walk.read(source, bits, source.strides()).integer(out.size(*dim)).integer(out.stride(*dim));
  if (at::globalContext().deterministicAlgorithms()) walk.in_order(*dim);
  if (!walk.run(IN_RANGE("p1[i1]", "s0") "p0[i0 + at * s1] = p2[i2];")) return false;
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
  Walk walk("index_fill_", sizes, self.device().index());
  walk.reports();
  walk.write(out, strides_with(out, *dim, 0)).read(index, index.scalar_type(), along(index, *dim, out.dim()));
  walk.integer(out.size(*dim)).integer(out.stride(*dim));
  walk.number(c10::isFloatingType(dtype) ? rounded(value.to<double>(), dtype) : value.to<double>(), dtype);
  if (!walk.run(WRAPPED_IN_RANGE("p1[i1]", "s0") "STORE0(i0 + at * s1, s2);")) return false;
  call.give(self);
  return true;
}
bool index_fill(Call& call) {
  if (is_complex(call.tensor(0).scalar_type())) return write_parts(call, &index_fill, 3);
  return fill_along(call, call[3].toScalar());
}
bool index_fill_tensor(Call& call) {
  if (call.tensor(3).dim() != 0) return false;
  const c10::IValue values[] = {call[0], call[1], call[2], call.tensor(3).item()};
  Call number(values, 4, call.form());
  if (!index_fill(number)) return false;
  call.give(call.tensor(0));
  return true;
}

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
  const c10::ScalarType bits = bits_of(self.scalar_type());
  const Strides none(static_cast<size_t>(index.dim()), 0);
  Walk walk("take", index.sizes(), self.device().index());
  walk.reports();
  walk.write(out, bits, out.strides()).read(index).read(self, bits, none).integer(self.numel());
  if (!walk.run(WRAPPED_IN_RANGE("p1[i1]", "s0") "p0[i0] = p2[at]; if (at < 0 || at >= s0) p0[i0] = 0;")) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

bool put(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const bool sums = call[3].toBool();
  if (!is_index(call.tensor(1), self) || call.tensor(1).scalar_type() != c10::kLong || !(sums ? is_usable(self) : is_movable(self)) ||
      call.tensor(2).scalar_type() != self.scalar_type() || call.tensor(2).device() != self.device() ||
      call.tensor(1).numel() != call.tensor(2).numel() || self.is_alias_of(call.tensor(1)) || self.is_alias_of(call.tensor(2)) ||
      repeats_places(self) || (self.numel() == 0 && call.tensor(1).numel() != 0) || (sums && self.scalar_type() == c10::kBool)) {
    return false;
  }
  const at::Tensor index = call.tensor(1).reshape(-1), source = call.tensor(2).reshape(-1);
  const at::Tensor out = self.contiguous();
  const c10::ScalarType dtype = self.scalar_type();
  const c10::DeviceIndex device = self.device().index();
  Walk walk("put_", index.sizes(), device);
  walk.reports();
  const c10::ScalarType type = sums ? dtype : bits_of(dtype);
  walk.write(out, type, Strides{0}).read(index).read(source, type, source.strides()).integer(self.numel());
  const char* const begin = WRAPPED_IN_RANGE("p1[i1]", "s0");
  bool is_done = false;
  if (sums && has_atomic(device, dtype)) {
    is_done = walk.run(join(begin, atomic_add(dtype, "at", "LOAD2(i2)")));
  } else if (sums) {
    is_done = walk.in_order(0).run(join(begin, "STORE0(at, LOAD0(at) + LOAD2(i2));"));
  } else {
    is_done = walk.run(join(begin, "p0[at] = p2[i2];"));
  }
  if (!is_done) return false;
  if (!out.is_same(self)) self.copy_(out);
  call.give(self);
  return true;
}

// --- embeddings ---

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
    const c10::DeviceIndex device = grad.device().index();
    const c10::ScalarType dtype = grad.scalar_type();
    Walk walk("embedding_dense_backward", source.sizes(), device);
    walk.reports();
    walk.write(out, strides_with(out, 0, 0)).read(index, index.scalar_type(), along(index, 0, 2)).read(source);
    walk.integer(rows).integer(columns).integer(padding).compute_in(dtype);
    const char* const begin = IN_RANGE("p1[i1]", "s0") "if (at != s2) ";
    const bool is_done = has_atomic(device, dtype)
                             ? walk.run(join(begin, atomic_add(dtype, "i0 + at * s1", "LOAD2(i2)")))
                             : walk.in_order(0).run(join(begin, "STORE0(i0 + at * s1, LOAD0(i0 + at * s1) + LOAD2(i2));"));
    if (!is_done) return false;
  }
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"index_select", "index_select.out"}, &index_select);
  add_operator(kernels, {"index_add", "index_add.out", "index_add_"}, &index_add);
  add_operator(kernels, {"index_copy", "index_copy.out", "index_copy_"}, &index_copy);
  add_operator(kernels, {"index_fill_.int_Scalar"}, &index_fill);
  add_operator(kernels, {"index_fill_.int_Tensor"}, &index_fill_tensor);
  add_operator(kernels, {"take", "take.out"}, &take);
  add_operator(kernels, {"put_"}, &put);
  add_operator(kernels, {"embedding_dense_backward"}, &embedding_backward);
});

}  // namespace
}  // namespace index_along_impl
}  // namespace backplane::portable
