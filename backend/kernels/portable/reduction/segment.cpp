// kernels/portable/reduction/segment.cpp: segment_reduce over a dimension, with segments given by lengths or offsets, and its gradient.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <limits>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace segment_impl {
namespace {

enum Reduce : int { kSum, kMean, kProd, kMax, kMin, kUnknown };

Reduce reduce_of(std::string_view word) {
  return word == "sum" ? kSum : word == "mean" ? kMean : word == "prod" ? kProd : word == "max" ? kMax : word == "min" ? kMin : kUnknown;
}

double first_of(Reduce reduce, const c10::IValue& initial) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!initial.isNone()) return initial.toScalar().toDouble();
  return reduce == kProd ? 1 : reduce == kMax ? -kInfinity : reduce == kMin ? kInfinity : 0;
}

// data as outer x size x inner, and the begins and ends of its segments: outer x (segments + 1)
struct Segments {
  at::Tensor data, ends;
  std::vector<int64_t> sizes;  // of the result
  int64_t count = 0;
};

// False: the call is invalid or unsupported. is_checked: the host reads the lengths or offsets back to check them.
bool read(const at::Tensor& data, const at::Tensor& lengths, const at::Tensor& offsets, int64_t axis, bool is_checked, Segments& segments) {
  const at::Tensor& given = offsets.defined() ? offsets : lengths;
  if (!is_usable(data) || !c10::isFloatingType(data.scalar_type()) || data.numel() == 0 || !given.defined() || !is_usable(given) ||
      (given.scalar_type() != c10::kLong && given.scalar_type() != c10::kInt) || given.device() != data.device() || axis < 0 ||
      axis >= data.dim() || given.dim() != axis + 1 || given.sizes().slice(0, axis) != data.sizes().slice(0, axis)) {
    return false;
  }
  if (offsets.defined() && offsets.size(-1) == 0) return false;
  segments.count = given.size(-1) - (offsets.defined() ? 1 : 0);
  segments.sizes.assign(data.sizes().begin(), data.sizes().end());
  segments.sizes[axis] = segments.count;
  const int64_t outer = c10::multiply_integers(data.sizes().slice(0, axis)), size = data.size(axis);
  segments.data = data.reshape({outer, size, data.numel() / (outer * size)});
  const at::Tensor rows = given.reshape({outer, -1}).to(c10::kLong);
  segments.ends = offsets.defined() ? rows.contiguous() : at::cat({at::zeros({outer, 1}, rows.options()), rows.cumsum(1)}, 1);
  if (!is_checked) return true;
  const at::Tensor ends = segments.ends.cpu();
  const int64_t* const end = ends.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < outer; ++row) {
    const int64_t* const at = end + row * (segments.count + 1);
    if (at[0] != 0 || at[segments.count] != size) return false;
    for (int64_t k = 0; k < segments.count; ++k) {
      if (at[k + 1] < at[k]) return false;
    }
  }
  return true;
}

// The elements of a segment, from `begin` to `end`, limited to the data. Operand k: the begins of segments.
constexpr const char* kSegment =
    "i64 begin = p{k}[i{k}]; i64 end = p{k}[i{k} + 1]; if (begin < 0) begin = 0; if (end > s0) end = s0; "
    "const i64 length = end > begin ? end - begin : 0; ";

std::string segment_text(int operand) { return replaced(kSegment, "{k}", operand); }

// data, reduce, lengths, indices, offsets, axis, unsafe, initial
bool segment_reduce(Call& call) {
  const at::Tensor& data = call.tensor(0);
  const Reduce reduce = reduce_of(call[1].toStringView());
  Segments segments;
  if (reduce == kUnknown || call.has(3) || (!call[7].isNone() && call[7].isComplexDouble()) ||
      !read(data, call.tensor_or_none(2), call.tensor_or_none(4), call[5].toInt(), !call[6].toBool(), segments)) {
    return false;
  }
  const c10::ScalarType dtype = data.scalar_type();
  const at::Tensor &x = segments.data, &ends = segments.ends;
  const at::Tensor result = empty({x.size(0), segments.count, x.size(2)}, dtype, data.device().index());
  Walk walk("segment_reduce", result.sizes(), data.device().index());
  walk.write(result).read(ends, {ends.stride(0), 1, 0}).read(x, {x.stride(0), 0, x.stride(2)});
  walk.integer(x.size(1)).integer(x.stride(1)).number(first_of(reduce, call[7]), dtype);
  const bool has_first = !call[7].isNone();
  const char* const step = reduce == kProd ? "sum * y" : reduce == kMax ? "m_max(sum, y)" : reduce == kMin ? "m_min(sum, y)" : "sum + y";
  const char* const last = reduce != kMean ? "sum" : has_first ? "length > 0 ? sum / (C)length : sum" : "sum / (C)length";
  const std::string body =
      join(segment_text(1), "C sum = s2; for (i64 k = begin; k < end; ++k) { const C y = LOAD2(i2 + k * s1); sum = ", step,
           "; } STORE0(i0, ", last, ");");
  return walk.run(body) && give(call, result.view(segments.sizes), {data});
}

// grad, output, data, reduce, lengths, offsets, axis, initial
bool segment_reduce_backward(Call& call) {
  const at::Tensor &given = call.tensor(0), &output = call.tensor(1), &data = call.tensor(2);
  const Reduce reduce = reduce_of(call[3].toStringView());
  Segments segments;
  if (reduce == kUnknown || (!call[7].isNone() && call[7].isComplexDouble()) ||
      !read(data, call.tensor_or_none(4), call.tensor_or_none(5), call[6].toInt(), false, segments)) {
    return false;
  }
  for (const at::Tensor& tensor : {given, output}) {
    if (!is_like(tensor, data) || tensor.sizes() != at::IntArrayRef(segments.sizes)) return false;
  }
  const c10::ScalarType dtype = data.scalar_type();
  const at::Tensor &x = segments.data, &ends = segments.ends;
  const std::array<int64_t, 3> shape{x.size(0), segments.count, x.size(2)};
  const at::Tensor grad = given.reshape(shape), values = output.reshape(shape);
  const at::Tensor result = at::zeros(x.sizes(), data.options());  // also for elements outside all segments
  Walk walk("segment_reduce_backward", shape, data.device().index());
  walk.write(result, {result.stride(0), 0, result.stride(2)}).read(ends, {ends.stride(0), 1, 0});
  walk.read(grad).read(values).read(x, {x.stride(0), 0, x.stride(2)});
  walk.integer(x.size(1)).integer(x.stride(1)).integer(result.stride(1)).number(first_of(reduce, call[7]), dtype);
  std::string body = join(segment_text(1), "const C g = LOAD2(i2); const C y = LOAD3(i3); (void)y; ");
  const char* const each = "for (i64 k = begin; k < end; ++k) { const C x = LOAD4(i4 + k * s1); (void)x; ";
  if (reduce == kMax || reduce == kMin) {
    append(body, "i64 count = 0; ", each, "if (x != x || x == y) ++count; } ", each,
           "STORE0(i0 + k * s2, x != x || x == y ? (count > 1 ? g / (C)count : g) : (C)0); }");
  } else if (reduce == kProd) {
    const std::string product = join("bp_to_", dialect_name(dtype), "(g * y)");  // infinite where a half type's product is
    append(body, each,
           "C part; if (x != x || x == 0) { part = s3; for (i64 m = begin; m < end; ++m) if (m != k) part = part * LOAD4(i4 + m * s1); "
           "part = g * part; } else part = ",
           product, " / x; STORE0(i0 + k * s2, part); }");
  } else {
    append(body, each, reduce == kMean ? "STORE0(i0 + k * s2, g / (C)length); }" : "STORE0(i0 + k * s2, g); }");
  }
  return walk.run(body) && give(call, result.view(data.sizes()), {given, output, data});
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"segment_reduce"}, &segment_reduce);
  add_operator(kernels, {"_segment_reduce_backward"}, &segment_reduce_backward);
});

}  // namespace
}  // namespace segment_impl
}  // namespace backplane::portable
