// kernels/portable/pointwise/composed.cpp: operators that are compositions of others of the library, on the device.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <c10/core/WrapDimMinimal.h>

#include <limits>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace composed_impl {
namespace {

// --- elementwise ---

// self -> mantissa, exponent
bool frexp(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_float(self)) return false;
  at::Tensor results[2];
  for (size_t k = 0; k < 2; ++k) {
    const c10::ScalarType dtype = k == 0 ? self.scalar_type() : c10::kInt;
    if (const at::Tensor* given = call.given(k, 2)) {
      if (!can_become(*given, self.sizes(), dtype, {self, results[0]})) return false;
      if (given->sizes() != self.sizes()) given->resize_(self.sizes());
      results[k] = *given;
    } else {
      results[k] = at::empty_like(self, self.options().dtype(dtype));
    }
  }
  Walk walk("frexp", self.sizes(), self.device().index());
  walk.write(results[0]).write(results[1]).read(self).compute_in(self.scalar_type());
  if (!walk.run("const C x = LOAD2(i2); STORE0(i0, m_mantissa(x)); STORE1(i1, m_exponent(x));")) return false;
  for (const at::Tensor& result : results) call.give(result);
  return true;
}

// self times 2^other
bool ldexp(Call& call) {
  const at::Tensor &self = call.tensor(0), &other = call.tensor(1);
  if (!is_float(self) || !is_usable(other) || !c10::isIntegralType(other.scalar_type(), false) || other.device() != self.device())
    return false;
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), other.sizes());
  const at::Tensor result = self.sizes() == at::IntArrayRef(sizes) ? at::empty_like(self) : self.new_empty(sizes);
  Walk walk("ldexp", sizes, self.device().index());
  walk.write(result).read(self, broadcast_strides(self, sizes)).read(other, broadcast_strides(other, sizes)).compute_in(self.scalar_type());
  return walk.run("STORE0(i0, m_ldexp(LOAD1(i1), (i64)LOAD2(i2)));") && give(call, result, {self, other});
}

// The largest finite number.
double most_of(c10::ScalarType dtype) {
  return dtype == c10::kHalf       ? 65504.0
         : dtype == c10::kBFloat16 ? 3.38953138925153547590470800371487866880e+38
         : dtype == c10::kFloat    ? std::numeric_limits<float>::max()
                                   : std::numeric_limits<double>::max();
}

// self, nan, posinf, neginf; the last three may be None
bool nan_to_num(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_usable(self)) return false;
  const c10::ScalarType dtype = self.scalar_type();
  const at::Tensor* const given = call.given();
  const bool is_self = given != nullptr && given->is_same(self);
  if (given != nullptr && !is_self && !can_become(*given, self.sizes(), dtype, {self})) return false;
  const double most = most_of(dtype);
  const double numbers[] = {call.has(1) ? call[1].toDouble() : 0, call.has(2) ? call[2].toDouble() : most,
                            call.has(3) ? call[3].toDouble() : -most};
  const bool is_whole = !c10::isFloatingType(dtype);
  const Literal text = is_whole ? Literal("x") : Literal("x != x ? s0 : x == m_infinity ? s1 : x == -m_infinity ? s2 : x");
  const auto compute = [&](const auto&... out) {
    return is_whole ? apply("nan_to_num", out..., {self}, text, {}, dtype)
                    : apply("nan_to_num", out..., {self}, text, {numbers[0], numbers[1], numbers[2]}, dtype);
  };
  if (given == nullptr) {
    const at::Tensor result = compute(dtype);
    if (!result.defined()) return false;
    call.give(result);
    return true;
  }
  if (!(is_self && is_whole)) {
    if (given->sizes() != self.sizes()) given->resize_(self.sizes());
    if (!compute(*given)) return false;
  }
  call.give(*given);
  return true;
}

// --- comparisons of whole tensors ---

bool equal(Call& call) {
  const at::Tensor &self = call.tensor(0), &other = call.tensor(1);
  const auto is_taken = [](const at::Tensor& tensor) { return is_usable(tensor) || has_parts(tensor); };
  if (!is_taken(self) || !is_taken(other) || self.device() != other.device() || self.scalar_type() != other.scalar_type()) return false;
  call.give(self.sizes() == other.sizes() && (self.numel() == 0 || self.eq(other).all().item<bool>()));
  return true;
}

// --- sums and parts ---

bool trace(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if ((!is_usable(self) && !has_parts(self)) || self.dim() != 2 || self.scalar_type() == c10::kBool) return false;
  call.give(self.diagonal().sum());
  return true;
}

// self, p, dim, maxnorm
bool renorm(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_float(self) || self.dim() < 2 || call[1].isComplexDouble() || call[3].isComplexDouble()) return false;
  const double p = call[1].toScalar().toDouble(), most = call[3].toScalar().toDouble();
  int64_t dim = call[2].toInt();
  if (!(p > 0) || !(most >= 0) || dim < -self.dim() || dim >= self.dim()) return false;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  c10::SmallVector<int64_t, 6> others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) others.push_back(d);
  }
  const c10::ScalarType common = accumulated(self.scalar_type());
  const at::Tensor norm = at::linalg_vector_norm(self, p, others, true, common);
  const at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device().index());
  return apply("renorm", result, {self, norm}, "y > s0 ? x * (s0 / (y + LIT(1e-7))) : x", {most}, common) && give(call, result, {self});
}

// self, dim, start, length
bool narrow_copy(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_movable(self) || self.dim() == 0) return false;
  const int64_t dim = call[1].toInt(), length = call[3].toInt();
  int64_t start = call[2].toInt();
  if (dim < -self.dim() || dim >= self.dim()) return false;
  const int64_t size = self.size(dim);
  if (start < 0) start += size;
  if (start < 0 || length < 0 || start > size - length) return false;
  const at::Tensor part = self.narrow(dim, start, length);
  if (const at::Tensor* given = call.given()) {
    if (given->scalar_type() != self.scalar_type() || given->device() != self.device() || given->is_alias_of(self)) return false;
    if (given->sizes() != part.sizes()) return false;
    given->copy_(part);
    call.give(*given);
  } else {
    call.give(part.clone(at::MemoryFormat::Contiguous));
  }
  return true;
}

// --- sizes that depend on the elements: the host waits for them ---

// self, size, fill_value: nonzero() with that many rows
bool nonzero_static(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t size = call[1].toInt(), filler = call[2].toInt();
  if ((!is_usable(self) && !has_parts(self)) || size < 0) return false;
  // The strides are those that torch's fake kernel has for all devices but CPU, MPS and XPU; torch.compile asserts them.
  at::Tensor result = empty({self.dim(), size}, c10::kLong, self.device().index()).t();
  if (result.numel() != 0) {
    const at::Tensor places = at::nonzero(self);
    const int64_t rows = std::min(size, places.size(0));
    result.narrow(0, 0, rows).copy_(places.narrow(0, 0, rows));
    result.narrow(0, rows, size - rows).fill_(filler);
  }
  return give(call, result, {self});
}

// repeats, output_size: the number k, repeats[k] times
bool repeat_interleave(Call& call) {
  const at::Tensor& repeats = call.tensor(0);
  if (!is_usable(repeats) || repeats.dim() != 1 || (repeats.scalar_type() != c10::kLong && repeats.scalar_type() != c10::kInt))
    return false;
  if (repeats.numel() == 0) {
    call.give(at::empty_like(repeats));
    return true;
  }
  const at::Tensor ends = repeats.cumsum(0);
  const at::Tensor numbers = at::stack({repeats.min().to(c10::kLong), ends.select(0, -1)}).cpu();
  const int64_t least = numbers.const_data_ptr<int64_t>()[0], count = numbers.const_data_ptr<int64_t>()[1];
  if (least < 0 || (call.has(1) && call[1].toInt() != count)) return false;
  const at::Tensor places = at::arange(count, ends.options());
  call.give(at::searchsorted(ends, places, repeats.scalar_type() == c10::kInt, /*right=*/true));
  return true;
}

// --- normal_ with tensors as mean or standard deviation ---

// mean, std, generator; mean or std may be a number
bool normal(Call& call) {
  const bool has_mean = call[0].isTensor(), has_deviation = call[1].isTensor();
  const at::Tensor like = has_mean ? call.tensor(0) : call.tensor(1);
  if (!is_float(like)) return false;
  std::vector<int64_t> sizes(like.sizes().begin(), like.sizes().end());
  if (has_mean && has_deviation) {
    const at::Tensor& deviation = call.tensor(1);
    if (!is_float(deviation) || deviation.device() != like.device() || deviation.scalar_type() != like.scalar_type() ||
        !at::are_expandable(like.sizes(), deviation.sizes())) {
      return false;
    }
    sizes = at::infer_size(like.sizes(), deviation.sizes());
  }
  // For a negative standard deviation the CPU raises the error.
  if (has_deviation ? call.tensor(1).numel() != 0 && !call.tensor(1).min().ge(0).item<bool>() : !(call[1].toDouble() >= 0)) return false;
  const at::Tensor* const given = call.given();
  if (given != nullptr && (given->sizes() != at::IntArrayRef(sizes) || !can_become(*given, sizes, like.scalar_type(), {like})))
    return false;
  const auto generator = call[2].isNone() ? std::nullopt : std::optional<at::Generator>(call[2].toGenerator());
  at::Tensor out = call.output(sizes, like.scalar_type(), like.device());
  out.normal_(0, has_deviation ? 1 : call[1].toDouble(), generator);
  if (has_deviation) out.mul_(call.tensor(1));
  if (has_mean) {
    out.add_(call.tensor(0));
  } else {
    out.add_(call[0].toDouble());
  }
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"frexp.Tensor", "frexp.Tensor_out"}, &frexp);
  add_operator(kernels, {"ldexp.Tensor", "ldexp.out", "ldexp_"}, &ldexp);
  add_operator(kernels, {"nan_to_num", "nan_to_num.out", "nan_to_num_"}, &nan_to_num);
  add_operator(kernels, {"equal"}, &equal);
  add_operator(kernels, {"trace"}, &trace);
  add_operator(kernels, {"renorm", "renorm.out", "renorm_"}, &renorm);
  add_operator(kernels, {"narrow_copy", "narrow_copy.out"}, &narrow_copy);
  add_operator(kernels, {"nonzero_static", "nonzero_static.out"}, &nonzero_static);
  add_operator(kernels, {"repeat_interleave.Tensor"}, &repeat_interleave);
  add_operator(kernels, {"normal.Tensor_float", "normal.Tensor_float_out"}, &normal);
  add_operator(kernels, {"normal.float_Tensor", "normal.float_Tensor_out"}, &normal);
  add_operator(kernels, {"normal.Tensor_Tensor", "normal.Tensor_Tensor_out"}, &normal);
});

}  // namespace
}  // namespace composed_impl
}  // namespace backplane::portable
