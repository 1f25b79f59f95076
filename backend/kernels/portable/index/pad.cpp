// kernels/portable/index/pad.cpp: operators whose result is made of runs of the input: padding, its gradient (pad_backward.bpc), and roll
// (pieces.bpc).
#include <ATen/core/Tensor.h>

#include <array>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/unit.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace pad_impl {
namespace {

// A dimension of the result in up to three runs. Run r begins at coordinate cut r - 1. Its place in the input is `start` plus `step`
// elements for each coordinate, counted from coordinate 0.
struct Runs {
  std::array<int64_t, 2> cuts;
  std::array<int64_t, 3> starts;
  std::array<int64_t, 3> steps;
};

struct Dimension {
  int64_t size, stride;  // of the result
  Runs runs;
};

constexpr uint32_t kLanes = 4;          // elements of an item
constexpr uint32_t kPiecesTile = 1024;  // on a host, where an item walks whole rows

Runs whole(const at::Tensor& in, int64_t d) { return {{in.size(d), in.size(d)}, {0, 0, 0}, {in.stride(d), 0, 0}}; }

// Makes one dimension of two where the inner one is the input's, whole, and each run of the outer one goes forward. False: it is not so.
bool merge(Dimension& inner, const Dimension& outer) {
  const Runs& runs = inner.runs;
  if (runs.cuts[0] != inner.size || runs.starts[0] != 0 || outer.stride != inner.size * inner.stride) return false;
  const std::array<int64_t, 4> ends{0, outer.runs.cuts[0], outer.runs.cuts[1], outer.size};
  Runs merged = outer.runs;
  for (size_t r = 0; r < 3; ++r) {
    if (ends[r] < ends[r + 1] && outer.runs.steps[r] != inner.size * runs.steps[0]) return false;
    merged.steps[r] = runs.steps[0];
  }
  for (int64_t& cut : merged.cuts) cut *= inner.size;
  inner = {inner.size * outer.size, inner.stride, merged};
  return true;
}

// The dimensions, innermost in the result's memory first, merged where they can be.
c10::SmallVector<Dimension, 6> dimensions_of(const at::Tensor& out, const c10::SmallVector<Runs, 6>& runs) {
  c10::SmallVector<size_t, 6> order;
  for (size_t d = runs.size(); d-- > 0;) order.push_back(d);
  sort_few(order, [&](size_t a, size_t b) { return out.strides()[a] < out.strides()[b]; });
  c10::SmallVector<Dimension, 6> dimensions;
  for (const size_t d : order) {
    const Dimension next{out.sizes()[d], out.strides()[d], runs[d]};
    if (dimensions.empty() || !merge(dimensions.back(), next)) dimensions.push_back(next);
  }
  return dimensions;
}

bool launch_pieces(const at::Tensor& out, const at::Tensor& in, const c10::SmallVector<Runs, 6>& runs) {
  if (runs.empty() || runs.size() > 6) return false;
  if (out.numel() == 0) return true;
  const auto dimensions = dimensions_of(out, runs);
  const size_t dims = dimensions.size();
  const c10::DeviceIndex device = out.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType bits = bits_of(out.scalar_type());
  const size_t outer = dims <= 2 ? 1 : dims <= 4 ? 3 : 5;
  const uint32_t per_item = target.is_host() ? kPiecesTile : kLanes;
  const auto words = static_cast<uint32_t>(2 + outer + 9 * (outer + 1));
  Unit unit(device, "pieces.bpc", "pieces", "pieces");
  const Function* function = unit.define("T", memory_type(bits)).define("DIMS", outer).find(per_item, 2, words, 1);
  if (function == nullptr) return false;
  const int64_t columns = dimensions[0].size, rows = out.numel() / columns;
  Arguments arguments;
  arguments.write(out).read(in).words(rows, columns);
  const Dimension none{1, 0, {}};
  const auto at = [&](size_t k) { return k < dims ? dimensions[k] : none; };
  for (size_t k = 1; k <= outer; ++k) arguments.words(at(k).size);
  for (size_t k = 0; k <= outer; ++k) arguments.words(at(k).stride);
  for (size_t k = 0; k <= outer; ++k) arguments.all(at(k).runs.cuts);
  for (size_t k = 0; k <= outer; ++k) arguments.all(at(k).runs.starts);
  for (size_t k = 0; k <= outer; ++k) arguments.all(at(k).runs.steps);
  const int64_t several = columns < kPiecesTile ? kPiecesTile / columns : 1;
  const int64_t groups =
      target.is_host() ? (rows + several - 1) / several : out.numel() / (static_cast<int64_t>(function->group) * kLanes) + 1;
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

bool roll(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto shifts = call[1].toDimVector();
  const auto dims = call[2].toDimVector();
  if (!is_movable(self) || shifts.empty() || self.dim() > 6 || (dims.empty() ? shifts.size() != 1 : dims.size() != shifts.size())) {
    return false;
  }
  if (dims.empty() && (!self.is_contiguous() || self.dim() != 1)) {
    // Without dims, the flattened tensor is rolled.
    at::Tensor flat = self.contiguous().view({-1});
    c10::IValue values[] = {flat, call[1], c10::List<int64_t>({int64_t{0}})};
    Call again(values, 3, Call::Form::functional);
    if (!roll(again)) return false;
    call.give(again.results[0].toTensor().view(self.sizes()));
    return true;
  }
  c10::SmallVector<Runs, 6> runs;
  for (int64_t d = 0; d < self.dim(); ++d) runs.push_back(whole(self, d));
  for (size_t k = 0; k < shifts.size(); ++k) {
    int64_t d = dims.empty() ? 0 : dims[k];
    if (d < -self.dim() || d >= self.dim()) return false;
    if (d < 0) d += self.dim();
    const int64_t size = self.size(d), stride = self.stride(d);
    if (size <= 1) continue;
    // A repeated dimension adds to its shift, which is the first cut.
    const int64_t before = runs[d].cuts[0] == size ? 0 : runs[d].cuts[0];
    const int64_t shift = ((before + shifts[k]) % size + size) % size;
    runs[d] = {{shift, size}, {(size - shift) * stride, -shift * stride, 0}, {stride, stride, 0}};
  }
  at::Tensor out = empty(self.sizes(), self.scalar_type(), self.device().index());
  if (!launch_pieces(out, self, runs)) return false;
  call.give(std::move(out));
  return true;
}

// Whether the kernels support the padding: `padded` of the last dimensions, no negative margins, and torch's rules.
bool is_padding(at::IntArrayRef sizes, int64_t padded, at::IntArrayRef padding, bool reflects) {
  const auto dims = static_cast<int64_t>(sizes.size());
  if ((dims != padded + 1 && dims != padded + 2) || static_cast<int64_t>(padding.size()) != 2 * padded) return false;
  for (int64_t d = dims == padded + 2 ? 1 : 0; d < dims; ++d) {
    if (sizes[d] == 0) return false;
  }
  for (int64_t k = 0; k < padded; ++k) {
    const int64_t size = sizes[dims - 1 - k];
    for (const int64_t margin : {padding[2 * k], padding[2 * k + 1]}) {
      if (margin < 0 || (reflects && margin >= size)) return false;
    }
  }
  return true;
}

// The out= tensor, or a new tensor in self's format. Undefined: the kernels cannot write it.
at::Tensor output_like(const Call& call, const at::Tensor& self, at::IntArrayRef sizes) {
  if (call.is_functional()) {
    const at::MemoryFormat format = self.dim() == 4 || self.dim() == 5 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
    return empty_tensor(sizes, self.scalar_type(), self.device().index(), format);
  }
  const at::Tensor out = call.output(sizes, self.scalar_type(), self.device());
  return out.defined() && !repeats_places(out) ? out : at::Tensor();
}

bool pad(Call& call, int64_t padded, bool reflects) {
  const at::Tensor& self = call.tensor(0);
  const auto padding = call[1].toDimVector();
  if (!is_movable(self) || !is_padding(self.sizes(), padded, padding, reflects)) return false;
  if (!call.is_functional() && call.given()->is_alias_of(self)) return false;
  const int64_t dims = self.dim();
  Strides sizes(self.sizes().begin(), self.sizes().end());
  c10::SmallVector<Runs, 6> runs;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t k = dims - 1 - d;
    if (k >= padded) {
      runs.push_back(whole(self, d));
      continue;
    }
    const int64_t left = padding[2 * k], right = padding[2 * k + 1], n = self.size(d), stride = self.stride(d);
    sizes[d] += left + right;
    Runs run{{left, left + n}, {0, -left * stride, (n - 1) * stride}, {0, stride, 0}};
    if (reflects) run = {{left, left + n}, {left * stride, -left * stride, (left + 2 * (n - 1)) * stride}, {-stride, stride, -stride}};
    runs.push_back(run);
  }
  const at::Tensor out = output_like(call, self, sizes);
  if (!out.defined() || !launch_pieces(out, self, runs)) return false;
  call.give(out);
  return true;
}

constexpr uint32_t kPadTile = 256;

bool pad_backward(Call& call, int64_t padded, bool reflects) {
  const at::Tensor& grad = call.tensor(0);
  const at::Tensor& self = call.tensor(1);
  const auto padding = call[2].toDimVector();
  const c10::ScalarType dtype = grad.scalar_type();
  if (!is_usable(grad) || !is_usable(self) || self.scalar_type() != dtype || !c10::isFloatingType(dtype) ||
      grad.device() != self.device() || grad.dim() != self.dim() || !is_padding(self.sizes(), padded, padding, reflects)) {
    return false;
  }
  const int64_t dims = self.dim();
  Strides sizes(self.sizes().begin(), self.sizes().end());
  for (int64_t k = 0; k < padded; ++k) sizes[dims - 1 - k] += padding[2 * k] + padding[2 * k + 1];
  if (grad.sizes() != at::IntArrayRef(sizes)) return false;
  const c10::DeviceIndex device = self.device().index();
  const Target& target = target_of(device);
  const uint32_t per_item = target.is_host() ? kPadTile : kLanes;
  Unit unit(device, "pad_backward.bpc", "pad_backward",
            reflects ? Literal("reflection_pad_backward") : Literal("replication_pad_backward"));
  unit.define_if(reflects, "REFLECT").element("", dtype).define("C", compute_type(dtype));
  const Function* function = unit.find(per_item, 2, 10, 1);
  if (function == nullptr) return false;
  const at::Tensor in = grad.contiguous();
  const at::Tensor out = output_like(call, self, self.sizes());
  if (!out.defined() || (!call.is_functional() && out.is_alias_of(grad))) return false;
  const at::Tensor dense = out.is_contiguous() ? out : empty(self.sizes(), dtype, device);
  if (dense.numel() != 0) {
    const int64_t columns = self.size(dims - 1);
    Arguments arguments;
    arguments.write(dense).read(in).words(self.numel() / columns);
    constexpr std::array<int64_t, 3> kOrder{1, 2, 0};  // height, depth, width
    for (const int64_t k : kOrder) arguments.words(k < padded ? self.size(dims - 1 - k) : 1);
    for (const int64_t k : kOrder) arguments.words(k < padded ? padding[2 * k] : 0);
    for (const int64_t k : kOrder) arguments.words(k < padded ? padding[2 * k + 1] : 0);
    const int64_t tile = static_cast<int64_t>(function->group) * per_item;
    launch_function(device, *function, static_cast<uint64_t>(self.numel() / columns * ((columns + tile - 1) / tile)), arguments);
  }
  if (!dense.is_same(out)) out.copy_(dense);
  call.give(out);
  return true;
}

template <int kPadded, bool kReflects>
bool pad(Call& call) {
  return pad(call, kPadded, kReflects);
}
template <int kPadded, bool kReflects>
bool pad_backward(Call& call) {
  if (is_complex(call.tensor(0).scalar_type())) return compute_each_part(call, &pad_backward<kPadded, kReflects>);
  return pad_backward(call, kPadded, kReflects);
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"roll"}, &roll);
  add_operator(kernels, {"reflection_pad1d", "reflection_pad1d.out"}, &pad<1, true>);
  add_operator(kernels, {"reflection_pad2d", "reflection_pad2d.out"}, &pad<2, true>);
  add_operator(kernels, {"reflection_pad3d", "reflection_pad3d.out"}, &pad<3, true>);
  add_operator(kernels, {"replication_pad1d", "replication_pad1d.out"}, &pad<1, false>);
  add_operator(kernels, {"replication_pad2d", "replication_pad2d.out"}, &pad<2, false>);
  add_operator(kernels, {"replication_pad3d", "replication_pad3d.out"}, &pad<3, false>);
  add_operator(kernels, {"reflection_pad1d_backward", "reflection_pad1d_backward.grad_input"}, &pad_backward<1, true>);
  add_operator(kernels, {"reflection_pad2d_backward", "reflection_pad2d_backward.grad_input"}, &pad_backward<2, true>);
  add_operator(kernels, {"reflection_pad3d_backward", "reflection_pad3d_backward.grad_input"}, &pad_backward<3, true>);
  add_operator(kernels, {"replication_pad1d_backward", "replication_pad1d_backward.grad_input"}, &pad_backward<1, false>);
  add_operator(kernels, {"replication_pad2d_backward", "replication_pad2d_backward.grad_input"}, &pad_backward<2, false>);
  add_operator(kernels, {"replication_pad3d_backward", "replication_pad3d_backward.grad_input"}, &pad_backward<3, false>);
});

}  // namespace
}  // namespace pad_impl
}  // namespace backplane::portable
