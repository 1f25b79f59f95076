// kernels/portable/pointwise/factories.cpp: sequences and unit matrices: arange, linspace, logspace, eye.
#include <ATen/core/Tensor.h>

#include <cmath>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace factories_impl {
namespace {

// The out= tensor of a sequence, resized, if the kernels can write it.
at::Tensor sequence(const Call& call, int64_t count) {
  const at::Tensor& out = *call.given();
  if (!is_usable(out) || out.scalar_type() == c10::kBool) return {};
  return out.numel() == count ? out : out.resize_({count});
}

c10::SmallVector<int64_t, 6> numbers_of(const at::Tensor& out) { return dense_strides(out.sizes()); }

bool is_real(const c10::Scalar& value) { return !value.isComplex() && std::isfinite(value.to<double>()); }

// For arange. An out= tensor with another number of elements indicates that a sum of steps was rounded.
at::Tensor range(const Call& call, int64_t count) {
  const at::Tensor& given = *call.given();
  if (given.numel() != 0 && given.numel() != count) {
    TORCH_WARN("The number of elements in the out tensor of shape ", given.sizes(), " is ", given.numel(),
               " which does not match the computed number of elements ", count,
               ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor of shape (", count,
               ",).");
  }
  return sequence(call, count);
}

// start + i * step; for floats in float64 if the target has it, as in torch.
bool arange(Call& call) {
  const c10::Scalar start = call[0].toScalar(), end = call[1].toScalar(), step = call[2].toScalar();
  const at::Tensor& given = *call.given();
  if (!is_usable(given) || given.scalar_type() == c10::kBool || !is_real(start) || !is_real(end) || !is_real(step)) return false;
  const c10::ScalarType dtype = given.scalar_type();
  if (!c10::isFloatingType(dtype)) {
    if (!start.isIntegral(false) || !end.isIntegral(false) || !step.isIntegral(false)) return false;
    const int64_t first = start.toLong(), last = end.toLong(), by = step.toLong();
    // Differences out of the range of int64 are left to the CPU.
    constexpr int64_t kMost = int64_t{1} << 60;
    if (by == 0 || (by > 0 ? last < first : last > first) || std::abs(first) > kMost || std::abs(last) > kMost) return false;
    const int64_t count = (last - first + by - (by > 0 ? 1 : -1)) / by;
    at::Tensor out = range(call, count);
    if (!out.defined()) return false;
    Walk walk("arange", out.sizes(), out.device().index());
    walk.write(out).count(numbers_of(out)).integer(first).integer(by);
    if (!walk.run("STORE0(i0, (i64)s0 + (i64)i1 * s1);")) return false;
    call.give(std::move(out));
    return true;
  }
  const double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  if (by == 0 || (by > 0 ? last < first : last > first)) return false;
  const double size = std::ceil((last - first) / by);
  if (size > 9e15) return false;
  at::Tensor out = range(call, static_cast<int64_t>(size));
  if (!out.defined()) return false;
  const c10::ScalarType compute = has_dtype(target_of(out.device().index()), c10::kDouble) ? c10::kDouble : dtype;
  Walk walk("arange", out.sizes(), out.device().index());
  walk.write(out).count(numbers_of(out)).number(first, compute).number(by, compute);
  if (!walk.run("STORE0(i0, s0 + (C)i1 * s1);")) return false;
  call.give(std::move(out));
  return true;
}

// From both ends to the middle, so that the last number is exact.
template <bool kPowers>
bool spaced(Call& call) {
  const c10::Scalar start = call[0].toScalar(), end = call[1].toScalar();
  const int64_t count = call[2].toInt();
  const at::Tensor& given = *call.given();
  if (count < 0 || !is_usable(given) || !c10::isFloatingType(given.scalar_type()) || !is_real(start) || !is_real(end)) return false;
  const c10::ScalarType dtype = given.scalar_type();
  at::Tensor out = sequence(call, count);
  if (!out.defined()) return false;
  const double first = rounded(start.toDouble(), dtype), last = rounded(end.toDouble(), dtype);
  const double step = count < 2               ? 0
                      : dtype == c10::kDouble ? (last - first) / static_cast<double>(count - 1)
                                              : (static_cast<float>(last) - static_cast<float>(first)) / static_cast<float>(count - 1);
  Walk walk(kPowers ? Literal("logspace") : Literal("linspace"), out.sizes(), out.device().index());
  walk.write(out).count(numbers_of(out)).integer(count);
  walk.number(first, dtype).number(count == 1 ? first : last, dtype).number(step, dtype);
  Part body = "STORE0(i0, i1 < s0 / 2 || s0 == 1 ? s1 + s3 * (C)i1 : s2 - s3 * (C)(s0 - 1 - i1));";
  if (kPowers) {
    const double base = call[3].toDouble();
    if (!(base > 0)) return false;
    walk.number(base, dtype);
    body = "const C power = i1 < s0 / 2 || s0 == 1 ? s1 + s3 * (C)i1 : s2 - s3 * (C)(s0 - 1 - i1); STORE0(i0, m_pow(s4, power));";
  }
  if (!walk.run(body)) return false;
  call.give(std::move(out));
  return true;
}

bool write_eye(Call& call, int64_t rows, int64_t columns) {
  const at::Tensor& given = *call.given();
  if (rows < 0 || columns < 0 || (!is_usable(given) && !has_parts(given))) return false;
  at::Tensor out = given.resize_({rows, columns});
  if (has_parts(out)) {
    out.zero_().diagonal().fill_(1);
    call.give(std::move(out));
    return true;
  }
  Walk walk("eye", out.sizes(), out.device().index());
  walk.write(out).count(at::IntArrayRef({1, -1}));
  if (!walk.run("STORE0(i0, i1 == 0 ? 1 : 0);")) return false;
  call.give(std::move(out));
  return true;
}
bool eye(Call& call) { return write_eye(call, call[0].toInt(), call[0].toInt()); }
bool eye_of_two(Call& call) { return write_eye(call, call[0].toInt(), call[1].toInt()); }

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"arange.start_out"}, &arange);
  add_operator(kernels, {"linspace.out"}, &spaced<false>);
  add_operator(kernels, {"logspace.out"}, &spaced<true>);
  add_operator(kernels, {"eye.out"}, &eye);
  add_operator(kernels, {"eye.m_out"}, &eye_of_two);
});

}  // namespace
}  // namespace factories_impl
}  // namespace backplane::portable
