// kernels/portable/nn/margin_losses.cpp: hinge losses over the classes of a sample, with one target class or several.
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace margin_losses_impl {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// samples x classes; a single sample is one row.
at::Tensor rows_of(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor : tensor.reshape({1, -1}); }

bool is_taken(const at::Tensor& self) {
  return is_usable(self) && (self.scalar_type() == c10::kFloat || self.scalar_type() == c10::kDouble) && self.numel() != 0 &&
         self.dim() <= 2;
}

bool names_classes(const at::Tensor& target, const at::Tensor& self) {
  return is_usable(target) && target.scalar_type() == c10::kLong && target.device() == self.device();
}

at::Tensor reduced(const at::Tensor& values, int64_t reduction) {
  return reduction == kNone ? values : reduction == kMean ? values.mean() : values.sum();
}

// The common factor of a sample's gradient, per unit of the loss's gradient.
double scale_of(const at::Tensor& rows, int64_t reduction) {
  return 1.0 / static_cast<double>(rows.size(1) * (reduction == kMean ? rows.size(0) : 1));
}

// The strides of the loss's gradient over samples and classes.
bool spread(const at::Tensor& grad, const at::Tensor& rows, int64_t reduction, Strides& strides) {
  if (grad.dim() > 1 || (grad.numel() != 1 && (reduction != kNone || grad.numel() != rows.size(0)))) return false;
  strides = {grad.numel() == 1 ? 0 : grad.stride(0), 0};
  return true;
}

// --- one target class: other scores within the margin of its score ---

struct Margin {
  at::Tensor rows, target, weight;
  double margin = 1;
  bool is_square = false;
  int64_t reduction = kMean;
  int variant() const { return (is_square ? 1 : 0) + (weight.defined() ? 2 : 0); }
};

// Reads self, target, p, margin, weight, reduction from argument `first` on.
bool read(const Call& call, size_t first, Margin& margin) {
  const at::Tensor &self = call.tensor(first), &target = call.tensor(first + 1);
  if (!is_taken(self) || !names_classes(target, self) || call[first + 2].isComplexDouble() || call[first + 3].isComplexDouble())
    return false;
  const double p = call[first + 2].toScalar().toDouble();
  margin.rows = rows_of(self);
  if ((p != 1 && p != 2) || target.dim() > 1 || target.numel() != margin.rows.size(0)) return false;
  margin.target = target.reshape({-1});
  margin.margin = call[first + 3].toScalar().toDouble();
  margin.is_square = p == 2;
  margin.reduction = call[first + 5].toInt();
  margin.weight = call.tensor_or_none(first + 4);
  if (margin.weight.defined() &&
      (!is_like(margin.weight, self) || margin.weight.dim() != 1 || margin.weight.numel() != margin.rows.size(1))) {
    return false;
  }
  return margin.reduction >= kNone && margin.reduction <= kSum;
}

// s0: classes, s1: stride of the classes, s2: stride of the weights, s3: the margin.
void add_numbers(Walk& walk, const Margin& margin) {
  walk.integer(margin.rows.size(1)).integer(margin.rows.stride(1)).integer(margin.weight.defined() ? margin.weight.stride(0) : 0);
  walk.number(margin.margin, margin.rows.scalar_type());
}

bool multi_margin_loss(Call& call) {
  Margin margin;
  if (!read(call, 0, margin)) return false;
  const at::Tensor& rows = margin.rows;
  const at::Tensor values = empty({rows.size(0)}, rows.scalar_type(), rows.device().index());
  Walk walk("multi_margin_loss", values.sizes(), rows.device().index());
  walk.reports();
  walk.write(values).read(margin.target).read(rows, {rows.stride(0)});
  if (margin.weight.defined()) walk.read(margin.weight, {0});
  add_numbers(walk, margin);
  const std::string body = join(IN_RANGE(
                               "p1[i1]",
                               "s0") "{ const C own = LOAD2(i2 + at * s1); C sum = 0; for (i64 d = 0; d < s0; ++d) { "
                                     "const C z = s3 - own + LOAD2(i2 + d * s1); if (d != at && z > 0) sum += ",
                           margin.is_square ? "z * z" : "z", margin.weight.defined() ? " * LOAD3(i3 + at * s2)" : "",
                           "; } STORE0(i0, sum / (C)s0); } if (at < 0 || at >= s0) STORE0(i0, 0);");
  if (!walk.run(body)) return false;
  const bool is_single = margin.reduction == kNone && call.tensor(1).dim() == 0;
  return give(call, is_single ? values.squeeze(0) : reduced(values, margin.reduction), {call.tensor(0), call.tensor(1)});
}

// grad_output, then as above
bool multi_margin_loss_backward(Call& call) {
  Margin margin;
  Strides steps;
  const at::Tensor& grad = call.tensor(0);
  if (!read(call, 1, margin) || !is_like(grad, margin.rows) || !spread(grad, margin.rows, margin.reduction, steps)) return false;
  const at::Tensor& rows = margin.rows;
  const at::Tensor result = empty(rows.sizes(), rows.scalar_type(), rows.device().index());
  Walk walk("multi_margin_loss_backward", rows.sizes(), rows.device().index());
  walk.reports();
  walk.write(result).read(margin.target, {margin.target.stride(0), 0}).read(rows, {rows.stride(0), 0}).read(grad, steps);
  if (margin.weight.defined()) walk.read(margin.weight, {0, 0});
  walk.count({0, 1});
  add_numbers(walk, margin);
  walk.number(scale_of(rows, margin.reduction), rows.scalar_type());
  const char* const own = margin.weight.defined() ? "i5" : "i4";  // the class of the gradient's element
  const std::string body =
      join(IN_RANGE("p1[i1]", "s0") "{ const i64 c = ", own,
           "; const C own = LOAD2(i2 + at * s1); C sum = 0; const i64 first = c == at ? 0 : c; const i64 last = c == at ? s0 : c + 1; "
           "for (i64 d = first; d < last; ++d) { const C z = s3 - own + LOAD2(i2 + d * s1); if (d != at && z > 0) sum += ",
           margin.is_square ? "2 * z" : "(C)1", "; } STORE0(i0, (c == at ? -sum : sum) * LOAD3(i3) * s4",
           margin.weight.defined() ? " * LOAD4(i4 + at * s2)" : "", "); } if (at < 0 || at >= s0) STORE0(i0, 0);");
  if (!walk.run(body)) return false;
  return give(call, result.view(call.tensor(1).sizes()), {grad, call.tensor(1), call.tensor(2)});
}

// --- several target classes: a row of `target` lists them, up to the first -1 ---

bool read(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  return is_taken(self) && names_classes(target, self) && rows_of(target).sizes() == rows_of(self).sizes() && reduction >= kNone &&
         reduction <= kSum;
}

// Class `j` of the list of targets, in a loop over k; an invalid class ends the list.
#define EACH_TARGET(targets) \
  "for (i64 k = 0; k < s0; ++k) { const i64 j = " targets "; if (j < -1 || j >= s0) REPORT(j, s0); if (j < 0 || j >= s0) break; "

// self, target, reduction -> the loss, and 1 for each target class
bool multilabel_margin_loss(Call& call) {
  const at::Tensor &self = call.tensor(0), &target = call.tensor(1);
  const int64_t reduction = call[2].toInt();
  if (!read(self, target, reduction)) return false;
  const at::Tensor rows = rows_of(self), labels = rows_of(target);
  const c10::DeviceIndex device = self.device().index();
  const at::Tensor parts = empty(rows.sizes(), self.scalar_type(), device), is_target = empty(rows.sizes(), self.scalar_type(), device);
  Walk walk("multilabel_margin_loss", rows.sizes(), device);
  walk.reports();
  walk.write(parts).write(is_target).read(labels, {labels.stride(0), 0}).read(rows, {rows.stride(0), 0}).count({0, 1});
  walk.integer(rows.size(1)).integer(labels.stride(1)).integer(rows.stride(1)).compute_in(self.scalar_type());
  if (!walk.run("const C own = LOAD3(i3 + i4 * s2); C sum = 0; C is = 0; " EACH_TARGET(
          "p2[i2 + k * s1]") "if (j == i4) is = 1; const C z = 1 - LOAD3(i3 + j * s2) + own; if (z > 0) sum += z; } "
                             "STORE0(i0, is > 0 ? (C)0 : sum / (C)s0); STORE1(i1, is);")) {
    return false;
  }
  const at::Tensor values = parts.sum(1);
  const at::Tensor loss = reduction == kNone && self.dim() < 2 ? values.squeeze(0) : reduced(values, reduction);
  const at::Tensor marks = is_target.view(target.sizes());
  if (const at::Tensor* given = call.given(1, 2);
      given != nullptr && !can_become(*given, marks.sizes(), self.scalar_type(), {self, target})) {
    return false;
  }
  return give(call, loss, {self, target}, 0, 2) && give(call, marks, {self, target}, 1, 2);
}

// grad_output, self, target, reduction, is_target
bool multilabel_margin_loss_backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1), &target = call.tensor(2), &is_target = call.tensor(4);
  const int64_t reduction = call[3].toInt();
  if (!read(self, target, reduction) || !is_like(grad, self) || !is_like(is_target, self) || is_target.sizes() != target.sizes())
    return false;
  const at::Tensor rows = rows_of(self), labels = rows_of(target), marks = rows_of(is_target);
  Strides steps;
  if (!spread(grad, rows, reduction, steps)) return false;
  const at::Tensor result = empty(rows.sizes(), self.scalar_type(), self.device().index());
  Walk walk("multilabel_margin_loss_backward", rows.sizes(), self.device().index());
  walk.reports();
  walk.write(result).read(labels, {labels.stride(0), 0}).read(rows, {rows.stride(0), 0}).read(marks, {marks.stride(0), 0});
  walk.read(grad, steps).count({0, 1});
  walk.integer(rows.size(1)).integer(labels.stride(1)).integer(rows.stride(1)).integer(marks.stride(1));
  walk.number(scale_of(rows, reduction), self.scalar_type());
  if (!walk.run("const C own = LOAD2(i2 + i5 * s2); const i32 is = LOAD3(i3 + i5 * s3) > 0 ? 1 : 0; C sum = 0; " EACH_TARGET(
          "p1[i1 + k * s1]") "if (is == 0) { if (1 - LOAD2(i2 + j * s2) + own > 0) sum += 1; } "
                             "else if (j == i5) { for (i64 d = 0; d < s0; ++d) "
                             "if (LOAD3(i3 + d * s3) == 0 && 1 - own + LOAD2(i2 + d * s2) > 0) sum -= 1; } } "
                             "STORE0(i0, sum * LOAD4(i4) * s4);")) {
    return false;
  }
  return give(call, result.view(self.sizes()), {grad, self, target, is_target});
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"multi_margin_loss", "multi_margin_loss.out"}, &multi_margin_loss);
  add_operator(kernels, {"multi_margin_loss_backward", "multi_margin_loss_backward.grad_input"}, &multi_margin_loss_backward);
  add_operator(kernels, {"multilabel_margin_loss_forward", "multilabel_margin_loss_forward.output"}, &multilabel_margin_loss);
  add_operator(kernels, {"multilabel_margin_loss_backward", "multilabel_margin_loss_backward.grad_input"},
               &multilabel_margin_loss_backward);
});

}  // namespace
}  // namespace margin_losses_impl
}  // namespace backplane::portable
