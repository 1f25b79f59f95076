// kernels/portable/image/unpool.cpp: max unpooling, and fractional max pooling, whose windows begin at random places (Graham, 2014).
#include <ATen/ops/zeros.h>

#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace unpool_impl {
namespace {

// One dimension of channels, followed by one for the last `dims`.
at::Tensor as_planes(const at::Tensor& tensor, int64_t dims) { return tensor.flatten(tensor.dim() - dims, -1); }

// self, indices, output_size. scatter determines the result for repeated places.
bool max_unpool(Call& call, int64_t dims) {
  const at::Tensor &self = call.tensor(0), &indices = call.tensor(1);
  const auto size = call[2].toDimVector();
  if (!is_usable(self) || !is_usable(indices) || indices.scalar_type() != c10::kLong || indices.device() != self.device() ||
      indices.sizes() != self.sizes() || static_cast<int64_t>(size.size()) != dims || (self.dim() != dims + 1 && self.dim() != dims + 2) ||
      self.numel() == 0) {
    return false;
  }
  c10::SmallVector<int64_t, 5> sizes(self.sizes().begin(), self.sizes().end() - dims);
  sizes.append(size.begin(), size.end());
  const at::Tensor result = at::zeros(sizes, self.options());
  as_planes(result, dims).scatter_(-1, as_planes(indices, dims), as_planes(self, dims));
  return give(call, dims == 2 ? result.contiguous(self.suggest_memory_format()) : result, {self, indices});
}

bool max_unpool2d(Call& call) { return max_unpool(call, 2); }

// self, indices, output_size, stride, padding: the last two are only checked.
bool max_unpool3d(Call& call) {
  const auto stride = call[3].toDimVector(), padding = call[4].toDimVector();
  if (stride.size() != 3 || padding.size() != 3 || stride[0] <= 0 || stride[1] <= 0 || stride[2] <= 0) return false;
  return max_unpool(call, 3);
}

// The begin of window i of `count`: a step of (size - window) / (count - 1) elements, after a random offset. Samples above 1 may give a
// place where no window fits.
constexpr const char* kBegin =
    "const C step{k} = {count} > 1 ? (C)({size} - {window}) / (C)({count} - 1) : 0; "
    "i64 begin{k} = {i} == {count} - 1 ? {size} - {window} "
    ": (i64)(((C){i} + r{k}) * step{k}) - (i64)(r{k} * step{k}); "
    "if (begin{k} < 0 || begin{k} > {size} - {window}) { REPORT(begin{k}, {size} - {window} + 1); begin{k} = 0; } ";

// For dimension k with coordinate i<i> and size s<s>, which is followed by the window and the count.
std::string begin_text(int64_t k, int64_t i, int64_t s) {
  std::string text = replaced(replaced(kBegin, "{k}", k), "{i}", join("i", i));
  text = replaced(std::move(text), "{size}", join("s", s));
  text = replaced(std::move(text), "{window}", join("s", s + 1));
  return replaced(std::move(text), "{count}", join("s", s + 2));
}

// self, kernel_size, output_size, random_samples -> output, indices
bool fractional_max_pool(Call& call, int64_t dims) {
  const at::Tensor &self = call.tensor(0), &samples = call.tensor(3);
  const auto window = call[1].toDimVector(), count = call[2].toDimVector();
  const bool is_batch = self.dim() == dims + 2;
  if (!is_usable(self) || !is_like(samples, self) || (self.scalar_type() != c10::kFloat && self.scalar_type() != c10::kDouble) ||
      (!is_batch && self.dim() != dims + 1) || static_cast<int64_t>(window.size()) != dims || static_cast<int64_t>(count.size()) != dims ||
      samples.dim() != 3 || samples.size(2) != dims || samples.size(1) != self.size(-dims - 1) ||
      samples.size(0) != (is_batch ? self.size(0) : 1)) {
    return false;
  }
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t most = self.size(d - dims) - (dims == 3 ? 1 : 0);  // torch requires one element more in three dimensions
    if (window[d] <= 0 || count[d] <= 0 || count[d] + window[d] - 1 > most) return false;
  }
  if (self.size(-dims - 1) == 0) return false;
  c10::SmallVector<int64_t, 5> sizes(self.sizes().begin(), self.sizes().end() - dims);
  sizes.append(count.begin(), count.end());
  const c10::DeviceIndex device = self.device().index();
  const at::Tensor values = empty(sizes, self.scalar_type(), device), places = empty(sizes, c10::kLong, device);
  Walk walk("fractional_max_pool", sizes, device);
  walk.reports();
  // Strides for the operand's batch and channel, and 0 for the other dimensions.
  const auto planes = [&](const at::Tensor& tensor, int64_t channel) {
    c10::SmallVector<int64_t, 6> strides(sizes.size(), 0);
    if (is_batch) strides[0] = tensor.stride(0);
    strides[is_batch ? 1 : 0] = tensor.stride(channel);
    return strides;
  };
  walk.write(values).write(places).read(self, planes(self, is_batch ? 1 : 0)).read(samples, planes(samples, 1));
  for (int64_t d = 0; d < dims; ++d) {
    c10::SmallVector<int64_t, 6> strides(sizes.size(), 0);
    strides[sizes.size() - static_cast<size_t>(dims - d)] = 1;
    walk.count(strides);
  }
  // s<4 d>: size, window, count and stride of dimension d.
  for (int64_t d = 0; d < dims; ++d) walk.integer(self.size(d - dims)).integer(window[d]).integer(count[d]).integer(self.stride(d - dims));
  walk.integer(samples.stride(2)).compute_in(self.scalar_type());
  std::string body;
  for (int64_t d = 0; d < dims; ++d) {
    // torch's samples are ordered x, y in two dimensions, and z, y, x in three.
    const int64_t sample = dims == 2 ? 1 - d : d;
    append(body, "const C r", d, " = LOAD3(i3 + ", sample, " * s", 4 * dims, "); ", begin_text(d, 4 + d, 4 * d));
  }
  body += "C most = -m_infinity; i64 place = -1; ";
  std::string at = "i2", flat;
  for (int64_t d = 0; d < dims; ++d) {
    append(body, "for (i64 k", d, " = begin", d, "; k", d, " < begin", d, " + s", 4 * d + 1, "; ++k", d, ") ");
    append(at, " + k", d, " * s", 4 * d + 3);
    flat = d == 0 ? "k0" : join("(", flat, ") * s", 4 * d, " + k", d);
  }
  append(body, "{ const C x = LOAD2(", at, "); if (place < 0 || x > most || x != x) { most = x; place = ", flat, "; } } ",
         "STORE0(i0, most); p1[i1] = place;");
  if (!walk.run(body)) return false;
  for (size_t k = 0; k < 2; ++k) {
    const at::Tensor& result = k == 0 ? values : places;
    const at::Tensor* const given = call.given(k, 2);
    if (given != nullptr && !can_become(*given, result.sizes(), result.scalar_type(), {self, samples})) return false;
  }
  return give(call, values, {self, samples}, 0, 2) && give(call, places, {self, samples}, 1, 2);
}

// grad_output, self, kernel_size, output_size, indices
bool fractional_backward(Call& call, int64_t dims) {
  const at::Tensor &grad = call.tensor(0), &self = call.tensor(1), &indices = call.tensor(4);
  if (!is_usable(self) || !is_like(grad, self) || !is_usable(indices) || indices.scalar_type() != c10::kLong ||
      indices.sizes() != grad.sizes() || grad.dim() != self.dim() || self.dim() < dims + 1 || indices.device() != self.device()) {
    return false;
  }
  const at::Tensor result = at::zeros(self.sizes(), self.options());
  as_planes(result, dims).scatter_add_(-1, as_planes(indices, dims), as_planes(grad, dims));
  return give(call, result, {grad, self, indices});
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"max_unpool2d", "max_unpool2d.out"}, &max_unpool2d);
  add_operator(kernels, {"max_unpool3d", "max_unpool3d.out"}, &max_unpool3d);
  const auto forward = [](int64_t dims) { return [dims](Call& call) { return fractional_max_pool(call, dims); }; };
  const auto backward = [](int64_t dims) { return [dims](Call& call) { return fractional_backward(call, dims); }; };
  add_operator(kernels, {"fractional_max_pool2d", "fractional_max_pool2d.output"}, forward(2));
  add_operator(kernels, {"fractional_max_pool3d", "fractional_max_pool3d.output"}, forward(3));
  add_operator(kernels, {"fractional_max_pool2d_backward", "fractional_max_pool2d_backward.grad_input"}, backward(2));
  add_operator(kernels, {"fractional_max_pool3d_backward", "fractional_max_pool3d_backward.grad_input"}, backward(3));
});

}  // namespace
}  // namespace unpool_impl
}  // namespace backplane::portable
