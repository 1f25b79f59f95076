// kernels/portable/image/upsample.cpp: images resized by the nearest point, by weights, or by a filter, and the gradients.
//
// Interpolation is separable: a table for each dimension has the points that make up an output (upsample_table.bpc), then there is one pass
// along each dimension (upsample.bpc). A gradient takes the same passes backwards: each point reads the outputs that it is part of.
// Intermediate results have the compute type.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"
#include "kernels/portable/unit/walk.h"
#include "tensor/tensors.h"
#include "torch/compat.h"

namespace backplane::portable {
namespace upsample_impl {
namespace {

using Sizes = c10::SmallVector<int64_t, 6>;

constexpr uint32_t kHostTile = 256;    // lanes of a group, if an item is a core
constexpr int64_t kFewLanes = 8;       // on a host, shorter rows have their lanes along the dimension
constexpr int64_t kMost = 2147483392;  // points of a dimension
constexpr int64_t kShortOutput = 128;  // up to this size, torch's CPU finds the nearest points of a plane in float32
constexpr int64_t kManyChannels = 4;   // the same, for a channels_last image with at least as many channels

enum class Mode : uint8_t { nearest, nearest_exact, linear, cubic, hat, keys, lanczos };

struct Resampling {
  std::array<Literal, 4> names;  // forward, forward out=, backward, backward out=
  Mode mode;
  int64_t dims;
  bool keeps_format;  // the given gradient has the result's memory format, otherwise the other one
};

bool is_nearest(Mode mode) { return mode == Mode::nearest || mode == Mode::nearest_exact; }
bool is_window(Mode mode) { return mode >= Mode::hat; }
double reach_of(Mode mode) { return mode == Mode::hat ? 1 : mode == Mode::keys ? 2 : 3; }

// A dimension to interpolate along.
struct Axis {
  int64_t dim;  // of the image
  int64_t points, outputs, taps;
  uint64_t scale;      // a word of the table's type
  int64_t outputs_at;  // the first of its entries in the table's arrays
  int64_t points_at, weights_at;
};

struct Table {
  c10::SmallVector<Axis, 3> axes;
  at::Tensor places;   // i32: start and count of all outputs, low and high of all points
  at::Tensor weights;  // of the compute type
  int64_t outputs = 0, points = 0;
};

struct Image {
  bool is_backward, is_aligned;
  bool is_short;                       // SHORT in upsample_table.bpc
  Sizes sizes;                         // of the dimensions, without batch and channels: points, then outputs
  c10::SmallVector<double, 3> scales;  // outputs per point, as given; 0: from the sizes
};

// Points per output, as torch rounds it.
template <typename C>
C scale_of(int64_t points, int64_t outputs, double given, bool is_aligned) {
  if (is_aligned) return outputs > 1 ? static_cast<C>(points - 1) / static_cast<C>(outputs - 1) : C{0};
  return given > 0 ? static_cast<C>(1.0 / given) : static_cast<C>(points) / static_cast<C>(outputs);
}

// The maximum of points per output of a filter.
template <typename C>
int64_t taps_of(C scale, Mode mode) {
  const C reach = static_cast<C>(reach_of(mode));
  return static_cast<int64_t>(std::ceil(scale >= 1 ? reach * scale : reach)) * 2 + 1;
}

// Whether torch's CPU leaves a dimension unchanged: of the same size, for some modes whatever the scale.
bool is_kept(const Resampling& op, const Image& image, int64_t dim, double scale) {
  const auto is_same = [&](int64_t d) { return image.sizes[d] == image.sizes[op.dims + d]; };
  if (!is_same(dim)) return false;
  switch (op.mode) {
    case Mode::nearest:
      return image.is_short || scale == 1;
    case Mode::nearest_exact:
      return scale == 1;
    case Mode::linear:
      return true;
    case Mode::cubic:
      return image.is_backward && is_same(0) && is_same(1);
    default:
      return !image.is_backward;
  }
}

// The axes that change.
c10::SmallVector<Axis, 3> axes_of(const Resampling& op, const Image& image, c10::ScalarType computed) {
  c10::SmallVector<Axis, 3> axes;
  const bool is_nearest_mode = is_nearest(op.mode);
  for (int64_t d = 0; d < op.dims; ++d) {
    Axis axis{d, image.sizes[d], image.sizes[op.dims + d], 0, 0, 0, 0, 0};
    double scale = 0;
    const auto look = [&](auto type) {
      using C = decltype(type);
      const C exact = scale_of<C>(axis.points, axis.outputs, image.scales[d], image.is_aligned);
      scale = exact;
      axis.taps = is_nearest_mode           ? 1
                  : op.mode == Mode::linear ? 2
                  : op.mode == Mode::cubic  ? 4
                                            : std::min(taps_of(exact, op.mode), axis.points);
    };
    if (computed == c10::kDouble) {
      look(double{});
    } else {
      look(float{});
    }
    axis.scale = word_of(scale, computed);
    if (!is_kept(op, image, d, scale)) axes.push_back(axis);
  }
  return axes;
}

// Queues the kernel that computes the table.
bool fill_table(const Resampling& op, const Image& image, c10::ScalarType computed, c10::DeviceIndex device, Table& table) {
  const Target& target = target_of(device);
  if (!has_dtype(target, computed)) return false;
  table.axes = axes_of(op, image, computed);
  if (table.axes.empty()) return true;
  int64_t weights = 0, most = 0;
  for (Axis& axis : table.axes) {
    axis.outputs_at = table.outputs;
    axis.points_at = table.points;
    axis.weights_at = weights;
    table.outputs += axis.outputs;
    table.points += axis.points;
    weights += is_nearest(op.mode) ? 0 : axis.taps * axis.outputs;
    most = std::max({most, axis.points, axis.outputs});
  }
  const uint32_t per_item = target.is_host() ? kHostTile : 1;
  constexpr std::array<Literal, 7> kWords{"NEAREST", "NEAREST", "LINEAR", "CUBIC", "HAT", "KEYS", "LANCZOS"};
  Unit unit(device, "upsample_table.bpc", "upsample_table", "upsample_table");
  unit.compute_in(computed).define(kWords[static_cast<size_t>(op.mode)], 1).define("BACKWARD", image.is_backward);
  unit.define_if(is_window(op.mode), "WINDOW").define_if(op.mode == Mode::nearest_exact, "EXACT").define_if(image.is_short, "SHORT");
  const Function* function = unit.define_if(image.is_aligned && !is_window(op.mode), "ALIGN").find(per_item, 5, 12, 31);
  if (function == nullptr) return false;
  table.places = empty({2 * table.outputs + 2 * table.points}, c10::kInt, device);
  if (weights > 0) table.weights = empty({weights}, computed, device);
  Arguments arguments;
  const uint64_t places = writable_address_of(table.places);
  for (const int64_t at : {int64_t{0}, table.outputs, 2 * table.outputs, 2 * table.outputs + table.points}) {
    arguments.add(places + 4 * static_cast<uint64_t>(at));
  }
  arguments.add(weights > 0 ? writable_address_of(table.weights) : uint64_t{0});
  const auto add = [&](auto member) {
    for (size_t d = 0; d < 3; ++d) arguments.add(d < table.axes.size() ? static_cast<uint64_t>(table.axes[d].*member) : 0);
  };
  add(&Axis::points);
  add(&Axis::outputs);
  add(&Axis::taps);
  add(&Axis::scale);
  launch_function(device, *function, static_cast<uint64_t>(most / (int64_t{function->group} * per_item) + 1), arguments);
  return true;
}

struct Pass {
  c10::ScalarType to, from, computed;
  int64_t outer, inner;
};

bool run_pass(const Resampling& op, const Table& table, const Axis& axis, const Pass& pass, bool is_backward, const at::Tensor& to,
              const at::Tensor& from) {
  const c10::DeviceIndex device = to.device().index();
  const Target& target = target_of(device);
  const int64_t taps = is_window(op.mode) ? 0 : axis.taps;
  const bool is_wide = has_wide_extent(target, std::max(to.numel(), from.numel()));
  const bool is_along = target.is_host() && pass.inner < kFewLanes;
  const uint32_t per_item = target.is_host() ? kHostTile : 1;
  Unit unit(device, "upsample.bpc", "interpolate", "upsample");
  unit.element("0", pass.to).element("1", pass.from).compute_in(pass.computed).index(is_wide).define("TAPS", taps);
  unit.define("WEIGHTED", taps != 1).define("BACKWARD", is_backward).define("ALONG", is_along);
  const Function* function = unit.find(per_item, 7, 4, 1);
  if (function == nullptr) return false;
  Arguments arguments;
  arguments.write(to).read(from);
  const uint64_t places = address_of(table.places);
  for (const int64_t at : {axis.outputs_at, table.outputs + axis.outputs_at, 2 * table.outputs + axis.points_at,
                           2 * table.outputs + table.points + axis.points_at}) {
    arguments.add(places + 4 * static_cast<uint64_t>(at));
  }
  const uint64_t bytes = c10::elementSize(pass.computed);
  arguments.add(taps == 1 ? uint64_t{0} : address_of(table.weights) + bytes * static_cast<uint64_t>(axis.weights_at));
  arguments.words(pass.outer, pass.inner, axis.points, axis.outputs);
  const int64_t results = is_backward ? axis.points : axis.outputs;
  const int64_t length = is_along ? results : pass.inner;
  const int64_t groups = target.is_host() ? to.numel() / length * ((length + per_item - 1) / per_item) : to.numel() / function->group + 1;
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

// Both tensors are dense in the same order. `sizes` are those of the source in that order; entry first + d is dimension d of the image.
bool run_passes(const Resampling& op, Table& table, bool is_backward, const at::Tensor& to, const at::Tensor& from, Sizes sizes,
                int64_t first) {
  const c10::ScalarType dtype = to.scalar_type(), computed = accumulated(dtype);
  // The axis that shrinks most comes first. On a tie, the outer one, whose lanes are longer, is walked where the image is larger.
  const auto growth = [&](const Axis& axis) {
    const double ratio = static_cast<double>(axis.outputs) / static_cast<double>(axis.points);
    return is_backward ? 1 / ratio : ratio;
  };
  sort_few(table.axes, [&](const Axis& a, const Axis& b) {
    if (growth(a) != growth(b)) return growth(a) < growth(b);
    return growth(a) < 1 ? a.dim < b.dim : a.dim > b.dim;
  });
  at::Tensor source = from;
  for (size_t k = 0; k < table.axes.size(); ++k) {
    const Axis& axis = table.axes[k];
    const bool is_last = k + 1 == table.axes.size();
    Pass pass{is_last ? dtype : computed, source.scalar_type(), computed, 1, 1};
    const auto at = static_cast<size_t>(first + axis.dim);
    sizes[at] = is_backward ? axis.points : axis.outputs;
    int64_t elements = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d < at) pass.outer *= sizes[d];
      if (d > at) pass.inner *= sizes[d];
      elements *= sizes[d];
    }
    const at::Tensor result = is_last ? to : empty({elements}, computed, to.device().index());
    if (!run_pass(op, table, axis, pass, is_backward, result, source)) return false;
    source = result;
  }
  return true;
}

// Each output is a copy of the element at the table's place.
bool copy_nearest(const Resampling& op, const Table& table, const at::Tensor& to, const at::Tensor& from) {
  const c10::ScalarType bits = bits_of(to.scalar_type());
  Sizes strides(from.strides().begin(), from.strides().end());
  for (const Axis& axis : table.axes) strides[2 + axis.dim] = 0;
  Walk walk(op.names[0], to.sizes(), to.device().index());
  walk.write(to, bits, to.strides()).read(from, bits, strides);
  std::string body = "p0[i0] = p1[i1";
  for (size_t k = 0; k < table.axes.size(); ++k) {
    const Axis& axis = table.axes[k];
    Sizes along(to.sizes().size(), 0);
    along[2 + axis.dim] = 1;
    walk.read(table.places, c10::kInt, along, axis.outputs_at);
    const int64_t stride = from.stride(2 + axis.dim);
    if (k + 1 == table.axes.size() && stride == 1) {
      append(body, " + p", k + 2, "[i", k + 2, "]");
    } else {
      walk.integer(stride);
      append(body, " + p", k + 2, "[i", k + 2, "] * s", k);
    }
  }
  body += "];";
  return walk.run(body);
}

at::MemoryFormat dense_format(const at::Tensor& tensor, bool keeps) {
  return keeps && tensor.dim() > 3 ? tensor.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

// Computes the call. `sizes` are the result's.
bool compute(const Resampling& op, Call& call, const at::Tensor& given, at::IntArrayRef sizes, Image& image) {
  const c10::ScalarType dtype = given.scalar_type();
  const c10::DeviceIndex device = given.device().index();
  const bool copies = is_nearest(op.mode) && !image.is_backward;
  if (!c10::isFloatingType(dtype) && !(copies && dtype == c10::kByte)) return false;
  if (is_window(op.mode) && c10::isReducedFloatingType(dtype)) return false;  // torch's CPU has no such kernel
  for (const int64_t size : image.sizes) {
    if (size < 1 || size > kMost) return false;
  }
  const at::MemoryFormat format = dense_format(given, !image.is_backward || op.keeps_format);
  if (!call.is_functional() && call.given()->is_alias_of(given)) return false;
  at::Tensor out;
  if (call.is_functional()) {
    out = empty_tensor(sizes, dtype, device, format);
  } else {
    const bool is_resized = call.given()->sizes() != sizes;
    out = call.output(sizes, dtype, given.device());
    if (!out.defined()) return false;
    if (is_resized) out.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  const at::MemoryFormat order = dense_format(given, true);
  if (out.numel() != 0) {
    const auto last = op.dims == 2 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    const bool is_small = op.dims == 2 && sizes[2] + sizes[3] <= kShortOutput;
    const bool has_many = op.dims > 1 && sizes[1] >= kManyChannels && given.is_contiguous(last);
    image.is_short = is_nearest(op.mode) && (image.is_backward || is_small || has_many);
    const bool is_exact = dtype == c10::kDouble && !(is_nearest(op.mode) && image.is_short);
    Table table;
    if (!fill_table(op, image, is_exact ? c10::kDouble : c10::kFloat, device, table)) return false;
    if (copies) {
      if (!copy_nearest(op, table, out, given)) return false;
    } else if (table.axes.empty()) {
      out.copy_(given);
    } else {
      const at::Tensor from = given.contiguous(order);
      const at::Tensor to = out.is_contiguous(order) ? out : empty_tensor(sizes, dtype, device, order);
      Sizes in_order(from.sizes().begin(), from.sizes().end());
      const bool is_last = order != at::MemoryFormat::Contiguous;
      if (is_last) std::rotate(in_order.begin() + 1, in_order.begin() + 2, in_order.end());
      if (!run_passes(op, table, image.is_backward, to, from, in_order, is_last ? 1 : 2)) return false;
      if (!to.is_same(out)) out.copy_(to);
    }
  }
  call.give(std::move(out));
  return true;
}

// Reads the arguments after the sizes.
void read_rest(const Resampling& op, const Call& call, size_t at, Image& image) {
  image.is_aligned = !is_nearest(op.mode) && call[at++].toBool();
  for (int64_t d = 0; d < op.dims; ++d, ++at) image.scales.push_back(call.has(at) ? call[at].toDouble() : 0);
}

bool forward(const Resampling& op, Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto output = call[1].toDimVector();
  if (!is_usable(self) || self.dim() != op.dims + 2 || static_cast<int64_t>(output.size()) != op.dims || self.size(1) == 0) return false;
  Image image{};
  Sizes sizes(self.sizes().begin(), self.sizes().begin() + 2);
  image.sizes.append(self.sizes().begin() + 2, self.sizes().end());
  image.sizes.append(output.begin(), output.end());
  sizes.append(output.begin(), output.end());
  read_rest(op, call, 2, image);
  return compute(op, call, self, sizes, image);
}

bool backward(const Resampling& op, Call& call) {
  const at::Tensor& grad = call.tensor(0);
  const auto output = call[1].toDimVector(), input = call[2].toDimVector();
  if (!is_usable(grad) || grad.dim() != op.dims + 2 || static_cast<int64_t>(output.size()) != op.dims ||
      static_cast<int64_t>(input.size()) != op.dims + 2) {
    return false;
  }
  Sizes sizes(input.begin(), input.begin() + 2);
  sizes.append(output.begin(), output.end());
  if (grad.sizes() != at::IntArrayRef(sizes) || input[1] < 1) return false;
  Image image{};
  image.is_backward = true;
  image.sizes.append(input.begin() + 2, input.end());
  image.sizes.append(output.begin(), output.end());
  read_rest(op, call, 3, image);
  return compute(op, call, grad, input, image);
}

#define FORMS(name) {name, name ".out", name "_backward", name "_backward.grad_input"}

constexpr Resampling kOperators[] = {
    {FORMS("upsample_nearest1d"), Mode::nearest, 1, false},
    {FORMS("upsample_nearest2d"), Mode::nearest, 2, true},
    {FORMS("upsample_nearest3d"), Mode::nearest, 3, false},
    {FORMS("_upsample_nearest_exact1d"), Mode::nearest_exact, 1, false},
    {FORMS("_upsample_nearest_exact2d"), Mode::nearest_exact, 2, true},
    {FORMS("_upsample_nearest_exact3d"), Mode::nearest_exact, 3, false},
    {FORMS("upsample_linear1d"), Mode::linear, 1, false},
    {FORMS("upsample_bilinear2d"), Mode::linear, 2, true},
    {FORMS("upsample_trilinear3d"), Mode::linear, 3, true},
    {FORMS("upsample_bicubic2d"), Mode::cubic, 2, false},
    {FORMS("_upsample_bilinear2d_aa"), Mode::hat, 2, true},
    {FORMS("_upsample_bicubic2d_aa"), Mode::keys, 2, false},
    {FORMS("_upsample_lanczos2d_aa"), Mode::lanczos, 2, false},
};

const Defaults registered([](DefaultKernels& kernels) {
  for (const Resampling& op : kOperators) {
    if (op.mode == Mode::lanczos && !compat::kHasLanczos) continue;
    add_operator(kernels, {op.names[0], op.names[1]}, [&op](Call& call) { return forward(op, call); });
    add_operator(kernels, {op.names[2], op.names[3]}, [&op](Call& call) { return backward(op, call); });
  }
});

}  // namespace
}  // namespace upsample_impl
}  // namespace backplane::portable
