// kernels/portable/nn/distances.cpp: p-norm distances between the rows of two sets (cdist) or of one (pdist), and the gradients.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_euclidean_dist.h>

#include <cmath>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace distances_impl {
namespace {

// A distance is `last` of the sum of `term` over the differences d. `gradient` is that of d, from the gradient g and the distance y.
struct Norm {
  const char* term;
  const char* last;
  const char* gradient;
};
enum Kind : int { kCount, kOne, kTwo, kLargest, kBelowTwo, kOther };
const Norm kNorms[] = {
    {"sum + (d != 0 ? (C)1 : (C)0)", "sum", "(C)0"},
    {"sum + m_fabs(d)", "sum", "g * SIGN(d)"},
    {"sum + d * d", "m_sqrt(sum)", "y == 0 ? (C)0 : g * d / y"},
    {"m_max(sum, m_fabs(d))", "sum", "m_fabs(d) == y ? g * SIGN(d) : (C)0"},
    {"sum + m_pow(m_fabs(d), p)", "m_pow(sum, 1 / p)",
     "y == 0 || (d == 0 && p < 1) ? (C)0 : SIGN(d) * m_pow(m_fabs(d), p - 1) * g / m_pow(y, p - 1)"},
    {"sum + m_pow(m_fabs(d), p)", "m_pow(sum, 1 / p)", "y == 0 ? (C)0 : d * m_pow(m_fabs(d), p - 2) * g / m_pow(y, p - 1)"},
};

Kind kind_of(double p) { return p == 0 ? kCount : p == 1 ? kOne : p == 2 ? kTwo : std::isinf(p) ? kLargest : p < 2 ? kBelowTwo : kOther; }

std::string gradient_of(Kind kind) { return replaced(kNorms[kind].gradient, "SIGN(d)", "(d > 0 ? (C)1 : d < 0 ? (C)-1 : (C)0)"); }

bool is_taken(const at::Tensor& tensor, double p) {
  return is_usable(tensor) && (tensor.scalar_type() == c10::kFloat || tensor.scalar_type() == c10::kDouble) && p >= 0;
}

// x1, x2: batch.., rows, columns -> sizes of the common batch; empty if they do not match.
bool batch_of(const at::Tensor& x1, const at::Tensor& x2, std::vector<int64_t>& batch) {
  if (x1.dim() < 2 || x2.dim() < 2 || x1.size(-1) != x2.size(-1)) return false;
  const at::IntArrayRef first = x1.sizes().slice(0, x1.dim() - 2), second = x2.sizes().slice(0, x2.dim() - 2);
  if (!at::are_expandable(first, second)) return false;
  batch = at::infer_size(first, second);
  return true;
}

// As batch, rows, columns.
at::Tensor in_three(const at::Tensor& x, const std::vector<int64_t>& batch) {
  std::vector<int64_t> sizes = batch;
  sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
  const at::Tensor expanded = x.expand(sizes);
  return expanded.reshape({c10::multiply_integers(batch), x.size(-2), x.size(-1)});
}

// x1, x2, p, compute_mode
bool cdist(Call& call) {
  const at::Tensor &x1 = call.tensor(0), &x2 = call.tensor(1);
  const double p = call[2].toDouble();
  const int64_t mode = call.has(3) ? call[3].toInt() : 0;
  std::vector<int64_t> batch;
  if (!is_taken(x1, p) || !is_like(x2, x1) || mode < 0 || mode > 2 || !batch_of(x1, x2, batch)) return false;
  const at::Tensor a = in_three(x1, batch), b = in_three(x2, batch);
  const int64_t rows = a.size(1), others = b.size(1);
  std::vector<int64_t> sizes = batch;
  sizes.insert(sizes.end(), {rows, others});
  // By a product of matrices under torch's conditions.
  if (p == 2 && a.size(2) != 0 && a.numel() != 0 && b.numel() != 0 && (mode == 1 || (mode == 0 && (rows > 25 || others > 25)))) {
    return give(call, at::_euclidean_dist(a, b).view(sizes), {x1, x2});
  }
  const at::Tensor result = empty({a.size(0), rows, others}, x1.scalar_type(), x1.device().index());
  const Kind kind = kind_of(p);
  Walk walk("cdist", result.sizes(), x1.device().index());
  walk.write(result).read(a, {a.stride(0), a.stride(1), 0}).read(b, {b.stride(0), 0, b.stride(1)});
  walk.integer(a.size(2)).integer(a.stride(2)).integer(b.stride(2)).number(p, x1.scalar_type());
  const std::string body = join(
      "const C p = s3; (void)p; C sum = 0; for (i64 m = 0; m < s0; ++m) { "
      "const C d = LOAD1(i1 + m * s1) - LOAD2(i2 + m * s2); sum = ",
      kNorms[kind].term, "; } STORE0(i0, ", kNorms[kind].last, ");");
  return walk.run(body) && give(call, result.view(sizes), {x1, x2});
}

// grad, x1, x2, p, cdist: the gradient of x1
bool cdist_backward(Call& call) {
  const at::Tensor &x1 = call.tensor(1), &x2 = call.tensor(2);
  const double p = call[3].toDouble();
  std::vector<int64_t> batch;
  if (!is_taken(x1, p) || !is_like(x2, x1) || !is_like(call.tensor(0), x1) || !is_like(call.tensor(4), x1) || !batch_of(x1, x2, batch)) {
    return false;
  }
  const at::Tensor a = in_three(x1, batch), b = in_three(x2, batch);
  std::vector<int64_t> sizes = batch;
  sizes.insert(sizes.end(), {a.size(1), b.size(1)});
  if (call.tensor(0).sizes() != at::IntArrayRef(sizes) || call.tensor(4).sizes() != at::IntArrayRef(sizes)) return false;
  const at::Tensor grad = in_three(call.tensor(0), batch), distance = in_three(call.tensor(4), batch);
  const at::Tensor result = empty(a.sizes(), x1.scalar_type(), x1.device().index());
  const Kind kind = kind_of(p);
  Walk walk("cdist_backward", a.sizes(), x1.device().index());
  walk.write(result).read(a).read(b, {b.stride(0), 0, b.stride(2)});
  walk.read(grad, {grad.stride(0), grad.stride(1), 0}).read(distance, {distance.stride(0), distance.stride(1), 0});
  walk.integer(b.size(1)).integer(b.stride(1)).integer(grad.stride(2)).integer(distance.stride(2)).number(p, x1.scalar_type());
  const std::string body = join(
      "const C p = s4; (void)p; const C x = LOAD1(i1); C sum = 0; for (i64 r = 0; r < s0; ++r) { const C d = x - LOAD2(i2 + r * s1); "
      "const C g = LOAD3(i3 + r * s2); const C y = LOAD4(i4 + r * s3); (void)d; (void)g; (void)y; sum += ",
      gradient_of(kind), "; } STORE0(i0, sum);");
  if (!walk.run(body)) return false;
  std::vector<int64_t> shape = batch;
  shape.insert(shape.end(), {a.size(1), a.size(2)});
  return give(call, result.view(shape), {x1, x2, grad, distance});
}

// self, p: for the pairs (i, j), i < j, in order
bool pdist(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const double p = call[1].toDouble();
  if (!is_taken(self, p) || self.dim() != 2) return false;
  const int64_t rows = self.size(0);
  const at::Tensor result = empty({rows < 2 ? 0 : rows * (rows - 1) / 2}, self.scalar_type(), self.device().index());
  const Kind kind = kind_of(p);
  Walk walk("pdist", {rows, rows}, self.device().index());
  walk.write(result, {0, 0}).read(self, {self.stride(0), 0}).read(self, {0, self.stride(0)}).count({1, 0}).count({0, 1});
  walk.integer(self.size(1)).integer(self.stride(1)).integer(rows).number(p, self.scalar_type());
  const std::string body = join(
      "if (i3 < i4) { const C p = s3; (void)p; C sum = 0; for (i64 m = 0; m < s0; ++m) { "
      "const C d = LOAD1(i1 + m * s1) - LOAD2(i2 + m * s1); sum = ",
      kNorms[kind].term, "; } STORE0(i0 + i3 * s2 - i3 * (i3 + 1) / 2 + i4 - i3 - 1, ", kNorms[kind].last, "); }");
  if (result.numel() != 0 && !walk.run(body)) return false;
  return give(call, result, {self});
}

// grad, self, p, pdist
bool pdist_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1), &distance = call.tensor(3);
  const double p = call[2].toDouble();
  if (!is_taken(self, p) || self.dim() != 2 || !is_like(grad, self) || !is_like(distance, self)) return false;
  const int64_t rows = self.size(0), pairs = rows < 2 ? 0 : rows * (rows - 1) / 2;
  if (grad.dim() != 1 || grad.numel() != pairs || distance.dim() != 1 || distance.numel() != pairs) return false;
  const at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device().index());
  const Kind kind = kind_of(p);
  Walk walk("pdist_backward", self.sizes(), self.device().index());
  walk.write(result).read(self, {0, self.stride(1)}).read(grad, {0, 0}).read(distance, {0, 0}).count({1, 0});
  walk.integer(rows).integer(self.stride(0)).integer(grad.stride(0)).integer(distance.stride(0)).number(p, self.scalar_type());
  const std::string body = join(
      "const C p = s4; (void)p; const C x = LOAD1(i1 + i4 * s1); C sum = 0; for (i64 r = 0; r < s0; ++r) { if (r == i4) continue; "
      "const i64 low = r < i4 ? r : i4; const i64 high = r < i4 ? i4 : r; const i64 pair = low * s0 - low * (low + 1) / 2 + high - low - "
      "1; "
      "const C d = x - LOAD1(i1 + r * s1); const C g = LOAD2(i2 + pair * s2); const C y = LOAD3(i3 + pair * s3); "
      "(void)d; (void)g; (void)y; sum += ",
      gradient_of(kind), "; } STORE0(i0, sum);");
  return walk.run(body) && give(call, result, {self, grad, distance});
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"_cdist_forward"}, &cdist);
  add_operator(kernels, {"_cdist_backward"}, &cdist_backward);
  add_operator(kernels, {"_pdist_forward"}, &pdist);
  add_operator(kernels, {"_pdist_backward"}, &pdist_backward);
});

}  // namespace
}  // namespace distances_impl
}  // namespace backplane::portable
