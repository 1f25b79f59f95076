// kernels/portable/image/convolution.cpp: convolution_overrideable and its gradients, as products of tiles.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <backplane/convolution.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "dispatch/defaults.h"
#include "kernels/portable/matrix/product.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/tiles.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace convolution_impl {
namespace {

constexpr size_t kDims = 3;
using Triple = std::array<int64_t, kDims>;  // z, y, x

constexpr int64_t kEnoughGroups = 128;
constexpr int64_t kSplitDepth = 1024;  // the least points per group, where groups share a gradient of the weight
constexpr int64_t kMostPhases = 64;
constexpr int64_t kFirstCacheBytes = 32768, kSecondCacheBytes = 131072;  // as much of them as a block takes
constexpr int64_t kEnoughProducts = int64_t{1} << 22;  // from here on, a launch per phase costs less than the products with zeros

// The call's arguments about the windows.
struct Windows {
  Triple taps{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1}, output_padding{0, 0, 0};
  bool transposed;
  int64_t groups;
};

// How the source of a product is walked (convolution.bpc).
struct Walk {
  Triple grid, size, strides, taps, mul, base, step, div;
};

Triple sizes_of(const at::Tensor& tensor) {
  Triple triple{1, 1, 1};
  for (int64_t d = 2; d < tensor.dim(); ++d) triple[static_cast<size_t>(d) + kDims - static_cast<size_t>(tensor.dim())] = tensor.size(d);
  return triple;
}

Triple strides_of(const at::Tensor& tensor) {
  Triple triple{0, 0, 0};
  for (int64_t d = 2; d < tensor.dim(); ++d) triple[static_cast<size_t>(d) + kDims - static_cast<size_t>(tensor.dim())] = tensor.stride(d);
  return triple;
}

// Reads a list of the call. False: it has another length.
bool read_list(const c10::IValue& value, int64_t dims, Triple& triple) {
  const auto list = value.toDimVector();
  if (static_cast<int64_t>(list.size()) != dims) return false;
  std::copy(list.begin(), list.end(), triple.end() - dims);
  return true;
}

// The walk over a source from the points of a grid: windows slide over the source, or (`spread`) over the grid.
Walk walk(const Windows& windows, const at::Tensor& source, const Triple& grid, bool spread) {
  Walk result{grid, sizes_of(source), strides_of(source), windows.taps, {}, {}, {}, {}};
  for (size_t d = 0; d < kDims; ++d) {
    result.mul[d] = spread ? 1 : windows.stride[d];
    result.base[d] = spread ? windows.padding[d] : -windows.padding[d];
    result.step[d] = spread ? -windows.dilation[d] : windows.dilation[d];
    result.div[d] = spread ? windows.stride[d] : 1;
  }
  // For windows of one point, contiguous dimensions are merged.
  const auto is_plain = [&](size_t d) {
    return result.taps[d] == 1 && result.mul[d] == 1 && result.base[d] == 0 && result.div[d] == 1 && result.grid[d] == result.size[d];
  };
  for (size_t d = kDims - 1; d-- > 0;) {
    if (!is_plain(d) || !is_plain(kDims - 1)) break;
    if (result.size[d] > 1 && result.strides[d] != result.strides[kDims - 1] * result.size[kDims - 1]) break;
    result.grid[kDims - 1] *= result.grid[d];
    result.size[kDims - 1] *= result.size[d];
    result.grid[d] = result.size[d] = 1;
  }
  return result;
}

int64_t volume(const Triple& triple) { return triple[0] * triple[1] * triple[2]; }

bool fits_numbers(const Walk& walk) {
  constexpr int64_t kMost = int64_t{1} << 28;
  int64_t most = 0;
  for (size_t d = 0; d < kDims; ++d) {
    most = std::max({most, walk.size[d], walk.grid[d] * walk.mul[d], std::abs(walk.base[d]), walk.taps[d] * std::abs(walk.step[d])});
  }
  return most < kMost;
}

// The product of convolution.bpc: A's rows against the source's points.
struct Task {
  bool weight, taps_first;     // the order of a weight's columns
  int64_t batch, m, channels;  // per group
  const at::Tensor& out;       // dense
  const at::Tensor& a;         // dense
  int64_t a_group, a_m, a_c, a_batch, a_p;
  const at::Tensor& source;
  const at::Tensor& bias;  // may be undefined
};

uint64_t address(const at::Tensor& tensor) { return tensor.defined() ? address_of(tensor) : 0; }

// Whether windows have one point, and the channels of a point are contiguous on both sides: a product of the matrices as they are.
bool is_product(const Task& task, const Windows& windows, const Walk& walk) {
  constexpr Triple kOnes = {1, 1, 1}, kZeros = {0, 0, 0};
  const int64_t points = volume(walk.grid), channels = task.channels;
  const bool is_plain = windows.groups == 1 && walk.taps == kOnes && walk.mul == kOnes && walk.base == kZeros && walk.div == kOnes;
  const bool is_row = walk.grid == walk.size && walk.grid[kDims - 1] == points;
  const at::Tensor& s = task.source;
  if (!is_plain || !is_row || s.stride(1) != 1 || walk.strides[kDims - 1] != channels || s.stride(0) != points * channels) return false;
  if (task.weight) return task.a_m == 1 && task.a_p == task.m && task.a_batch == points * task.m;
  return task.out.stride(1) == 1 && task.out.is_non_overlapping_and_dense();
}

bool run_product(const Task& task, int64_t points) {
  Product product{};
  product.device = task.out.device().index();
  product.dtype = task.out.scalar_type();
  product.batches = 1;
  product.n = task.weight ? task.channels : task.m;
  product.alpha = product.beta = one_of(product.dtype);
  product.out = {address(task.out), 0, product.n, 1};
  const Matrices points_of_source = {address(task.source), 0, task.channels, 1};
  if (task.weight) {
    product.m = task.m;
    product.k = task.batch * points;
    product.a = {address(task.a), 0, 1, task.m};
    product.b = points_of_source;
  } else {
    product.m = task.batch * points;
    product.k = task.channels;
    product.a = points_of_source;
    product.b = {address(task.a), 0, task.a_c, task.a_m};
    product.self = {address(task.bias), 0, 0, 1};
  }
  return multiply(product);
}

// A part of the grid with its part of the source, for a host's item (depthwise.bpc).
struct Block {
  bool by_channel, planes;
  int64_t elements, most_taps;
  int64_t rows, step;  // kept in registers
  int64_t y, x;
};

// Of at most so many bytes of local memory. No block: there are no taps, or the points that they read are too many.
std::optional<Block> block_of(const Walk& walk, const bp_target_properties& target, int64_t bytes, bool by_channel, bool planes,
                              int64_t most) {
  const auto reach = [&](size_t d) { return (walk.taps[d] - 1) * std::abs(walk.step[d]); };
  const auto rounded_up = [](int64_t size, int64_t step) { return (size + step - 1) / step * step; };
  const int64_t lanes = std::max<int64_t>(target.vector_bytes / bytes, 1);
  Block block{};
  block.by_channel = by_channel;
  block.planes = planes;
  block.elements = std::min<int64_t>(target.local_bytes, most) * 2 / 3 / bytes;
  const bool is_line = !by_channel && walk.grid[1] == 1;
  block.rows = is_line ? 1 : 4;
  block.step = lanes * (is_line ? 4 : by_channel || walk.grid[2] > lanes ? 2 : 1);
  const int64_t factors = by_channel ? block.step : 1;
  block.most_taps = block.elements / 8 / factors;
  if (volume(walk.taps) == 0 || volume(walk.taps) > block.most_taps) return std::nullopt;

  const int64_t step_y = by_channel ? 1 : block.rows, step_x = by_channel ? block.rows : block.step;
  block.y = rounded_up(walk.grid[1], step_y);
  block.x = rounded_up(walk.grid[2], step_x);
  for (;;) {
    const int64_t lines = (block.y - 1) * walk.mul[1] + reach(1) + 1;
    const int64_t line = (block.x * walk.mul[2] + reach(2)) * factors;
    if (walk.taps[0] * lines * line + block.y * block.x * factors <= block.elements) return block;
    if (block.y > step_y && (block.y >= block.x || !by_channel || planes || block.x == step_x)) {
      block.y = rounded_up(block.y / 2, step_y);
    } else if (block.x > step_x && !planes) {
      block.x = rounded_up(block.x / 2, step_x);
    } else {
      return std::nullopt;
    }
  }
}

// Whether a block's rows are whole rows of planes, which depthwise.bpc transposes. For small images: they fill few vectors along x.
bool is_of_planes(const Task& task, const Walk& walk, const Block& block) {
  const int64_t reach = (walk.taps[2] - 1) * walk.step[2];
  const int64_t left = -(walk.base[2] + std::min<int64_t>(reach, 0));  // of a row of the source
  const bool is_flat = walk.size[0] == 1 && walk.grid[0] == 1 && walk.taps[0] == 1;
  const bool is_contiguous = walk.strides[2] == 1 && walk.strides[1] == walk.size[2];
  const bool has_whole_rows =
      block.x >= walk.grid[2] && left >= 0 && left + walk.size[2] <= (block.x - 1) * walk.mul[2] + std::abs(reach) + 1;
  const bool has_zeros_between = walk.div != Triple{1, 1, 1};
  return is_flat && is_contiguous && has_whole_rows && !has_zeros_between && (!task.weight || task.a_p == 1) && walk.grid[2] < block.step;
}

std::optional<Block> block_of(const Task& task, const Walk& walk, const bp_target_properties& target, int64_t bytes, int64_t groups) {
  const bool is_last = task.weight ? task.a_m == 1 && task.a_p != 1 : !task.out.is_contiguous();
  const auto part = [&](bool by_channel, bool planes, int64_t most) { return block_of(walk, target, bytes, by_channel, planes, most); };
  std::optional<Block> block;
  if (task.m == 1 && is_last && task.source.stride(1) == 1) block = part(true, false, kSecondCacheBytes);
  if (task.m == 1 && !is_last) {
    block = part(true, true, kSecondCacheBytes);
    if (block && (2 * groups < block->step || !is_of_planes(task, walk, *block))) block.reset();
  }
  if (!block) block = part(false, false, kFirstCacheBytes);
  return block ? block : part(false, false, kSecondCacheBytes);
}

// Whether neighbouring taps along x read neighbouring points, and a compiler unrolls the loop over them (BP_UNROLL of the preludes in C).
bool are_neighbours(const Walk& walk) { return walk.mul[2] == 1 && std::abs(walk.step[2]) == 1 && walk.taps[2] <= 8; }

bool run(const Task& task, const Windows& windows, const Walk& walk) {
  if (task.out.numel() == 0) return true;
  if (is_product(task, windows, walk)) return run_product(task, volume(walk.grid));
  const c10::DeviceIndex device = task.out.device().index();
  const c10::ScalarType dtype = task.out.scalar_type();
  const Target& target = target_of(device);
  const int64_t points = volume(walk.grid), taps = volume(walk.taps), groups = windows.groups;
  const int64_t n = task.weight ? task.channels * taps : task.batch * points;
  const int64_t k = task.weight ? task.batch * points : task.channels * taps;
  if (task.weight && k == 0) {
    task.out.zero_();
    return true;
  }

  const auto bytes = static_cast<int64_t>(c10::elementSize(sum_dtype(dtype)));
  Tiles tiles = tiles_of(target, bytes, false);
  const auto count = [&] { return groups * ((task.m + tiles.m - 1) / tiles.m) * ((n + tiles.n - 1) / tiles.n); };
  const bool small = !target.is_host() && count() < kEnoughGroups;
  if (small) tiles = tiles_of(target, bytes, true);
  // One channel on this side and few on the other are too little for a product of matrices.
  const bool is_few = task.channels == 1 && task.m <= 4;
  const std::optional<Block> block = is_few && target.is_host() ? block_of(task, walk, target.properties, bytes, groups) : std::nullopt;
  const bool direct = is_few && (block || !target.is_host());
  int64_t splits = 1;
  if (!direct && task.weight && !target.is_host() && count() < kEnoughGroups) {
    splits = std::clamp<int64_t>(kEnoughGroups / count(), 1, std::max<int64_t>(k / kSplitDepth, 1));
  }
  const auto extent = [](const at::Tensor& tensor) {
    int64_t furthest = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) furthest += tensor.size(d) * tensor.stride(d);
    return furthest;
  };
  const int64_t furthest = std::max({extent(task.out) * splits, extent(task.a), extent(task.source), (n + tiles.n) * 2, k * 2});
  const bool wide = target.is_host() || furthest >= (int64_t{1} << 30);
  const c10::ScalarType out_dtype = splits > 1 ? sum_dtype(dtype) : dtype;

  Unit unit(device, direct ? Literal("depthwise.bpc") : Literal("convolution.bpc"), direct ? Literal("depthwise") : Literal("convolution"),
            task.weight ? Literal("convolution weight") : Literal("convolution"));
  define_elements(unit, dtype, out_dtype, wide);
  unit.define("WEIGHT", task.weight).define("TAPS_FIRST", task.taps_first);
  if (block) {
    unit.define("BY_CHANNEL", block->by_channel)
        .define("PLANES", block->planes)
        .define("TAPS_X", block->by_channel && are_neighbours(walk) ? walk.taps[2] : 0)
        .define("TAP_STEP", walk.step[2] < 0 ? -1 : 1)
        .define("ROWS", block->rows)
        .define("STEP", block->step)
        .define("BLOCK", block->elements)
        .define("MOST_TAPS", block->most_taps);
  } else if (!direct) {
    define_tiles(unit, tiles);
  }
  const Function* function = unit.file("window.bpc").find(1, 4, 46, 1);
  if (function == nullptr) return false;

  at::Tensor parts;
  const int64_t per_group = task.m * n;  // per weight
  if (splits > 1) parts = empty_tensor({splits * groups * per_group}, out_dtype, device);
  const int64_t tile_m = block ? block->y : even_tile(target, task.m, tiles.m, tiles.micro_m);
  const int64_t tile_n = block ? block->x : even_tile(target, n, tiles.n, tiles.micro_n);
  Arguments arguments;
  arguments.write(splits > 1 ? parts : task.out).read(task.a).read(task.source).read(task.bias);
  const at::Tensor& s = task.source;
  arguments.words(groups, task.m, n, k, splits, (k + splits - 1) / splits, tile_m, tile_n, task.a_group, task.a_m, task.a_c, task.a_batch,
                  task.a_p, task.channels * s.stride(1), s.stride(0), s.stride(1));
  arguments.all(walk.strides);
  if (task.weight) {
    arguments.words(per_group, n, 0, groups * per_group, 1);
  } else {
    const bool is_last = !task.out.is_contiguous();  // channels after points
    const int64_t channel = is_last ? 1 : points;
    arguments.words(task.m * channel, channel, groups * task.m * points, 0, is_last ? groups * task.m : 1);
  }
  for (const Triple* triple : {&walk.taps, &walk.grid, &walk.size, &walk.mul, &walk.base, &walk.step, &walk.div}) arguments.all(*triple);
  arguments.words(task.bias.defined());
  const auto tiles_in = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  const int64_t blocks = walk.grid[0] * tiles_in(walk.grid[1], tile_m) * tiles_in(walk.grid[2], tile_n);
  const int64_t chunks = block && block->by_channel ? tiles_in(groups, block->step) : groups * task.m;
  const int64_t launched = !direct       ? groups * splits * tiles_in(task.m, tile_m) * tiles_in(n, tile_n)
                           : task.weight ? block ? chunks : groups * task.m * taps
                           : block       ? task.batch * chunks * blocks
                                         : task.out.numel() / function->group + 1;
  launch_function(device, *function, static_cast<uint64_t>(launched), arguments);
  if (splits == 1) return true;

  Product sum{};
  sum.device = device;
  sum.dtype = dtype;
  sum.batches = groups;
  sum.m = task.m;
  sum.n = n;
  sum.out = {address(task.out), per_group, n, 1};
  sum.alpha = one_of(dtype);
  return add_parts(sum, splits, address(parts));
}

// Computes `out` from the channels of `source`. The weight's first dimension is the source's (`spread`) or out's.
bool run_walk(const at::Tensor& out, const at::Tensor& source, const at::Tensor& weight, const at::Tensor& bias, const Windows& windows,
              bool spread, const Walk& way) {
  const int64_t taps = volume(way.taps);
  const int64_t first = weight.size(0) / windows.groups, second = weight.size(1);
  const int64_t m = spread ? second : first, channels = spread ? first : second;
  const bool is_last = channels > 1 && weight.dim() > 3 && weight.is_contiguous(convolution_format(weight, weight));
  const at::Tensor a = is_last ? weight : weight.contiguous();
  const bool points_first = a.is_contiguous();
  const int64_t of_second = points_first ? taps : 1, of_tap = points_first ? 1 : second;
  return run({false, !points_first, out.size(0), m, channels, out, a, first * second * taps, spread ? of_second : second * taps,
              spread ? second * taps : of_second, 0, of_tap, source, bias},
             windows, way);
}

// The windows of one phase, where they are spread by a stride: every `step`-th tap from `first` on.
struct Phase {
  int64_t points, first, step, taps, base;
};

// For the points phase, phase + stride, ... of one dimension.
Phase phase_of(const Windows& windows, size_t d, int64_t phase, int64_t size) {
  const int64_t stride = windows.stride[d], dilation = windows.dilation[d];
  Phase result{(size - phase + stride - 1) / stride, 0, stride / std::gcd(stride, dilation), 0, 0};
  const auto number = [&](int64_t tap) { return phase + windows.padding[d] - tap * dilation; };
  while (result.first < result.step && number(result.first) % stride != 0) ++result.first;
  if (result.first == result.step || result.first >= windows.taps[d]) return {result.points, 0, 1, 0, 0};
  result.taps = (windows.taps[d] - result.first + result.step - 1) / result.step;
  result.base = number(result.first) / stride;
  return result;
}

// run_data for windows that are spread by strides: a convolution for each phase, without the zeros between the source's points.
bool run_phases(const at::Tensor& out, const at::Tensor& source, const at::Tensor& weight, const at::Tensor& bias, const Windows& windows) {
  const Triple size = sizes_of(out);
  for (int64_t number = 0; number < volume(windows.stride); ++number) {
    Walk way{{}, sizes_of(source), strides_of(source), {}, {1, 1, 1}, {}, {}, {1, 1, 1}};
    at::Tensor taps = weight, to = out;
    int64_t rest = number;
    for (size_t d = 0; d < kDims; ++d) {
      const int64_t at = rest % windows.stride[d];
      rest /= windows.stride[d];
      const Phase phase = phase_of(windows, d, at, size[d]);
      way.grid[d] = phase.points;
      way.taps[d] = phase.taps;
      way.base[d] = phase.base;
      way.step[d] = -windows.dilation[d] * phase.step / windows.stride[d];
      const int64_t dim = static_cast<int64_t>(d) + out.dim() - static_cast<int64_t>(kDims);
      if (dim < 2) continue;
      taps = taps.slice(dim, phase.first, phase.taps == 0 ? phase.first : windows.taps[d], phase.step);
      to = to.slice(dim, at, size[d], windows.stride[d]);
    }
    if (to.numel() == 0) continue;
    const at::Tensor part = empty_tensor(to.sizes(), out.scalar_type(), out.device().index(), out.suggest_memory_format());
    if (!run_walk(part, source, taps, bias, windows, /*spread=*/true, way)) return false;
    to.copy_(part);
  }
  return true;
}

bool run_data(const at::Tensor& out, const at::Tensor& source, const at::Tensor& weight, const at::Tensor& bias, const Windows& windows,
              bool spread) {
  const Walk way = walk(windows, source, sizes_of(out), spread);
  if (!fits_numbers(way)) return false;
  const int64_t phases = volume(windows.stride);
  const bool is_large = out.numel() * weight.size(0) / windows.groups * volume(windows.taps) >= kEnoughProducts;
  const bool in_phases = spread && phases > 1 && phases <= kMostPhases && is_large;
  if (in_phases) return run_phases(out, source, weight, bias, windows);
  return run_walk(out, source, weight, bias, windows, spread, way);
}

// The gradient of a weight: its first dimension has the channels of `a`; the windows slide over `source`.
bool run_weight(const at::Tensor& out, const at::Tensor& a_any, const at::Tensor& source, const Windows& windows) {
  const bool is_last = a_any.dim() > 3 && a_any.is_contiguous(convolution_format(a_any, a_any));
  const at::Tensor a = is_last ? a_any : a_any.contiguous();
  const Walk way = walk(windows, source, sizes_of(a), false);
  if (!fits_numbers(way)) return false;
  const int64_t m = out.size(0) / windows.groups, points = volume(way.grid), channels = a.size(1);
  const bool points_first = a.is_contiguous();
  const int64_t of_channel = points_first ? points : 1, of_point = points_first ? 1 : channels;
  return run({true, !out.is_contiguous(), a.size(0), m, out.size(1), out, a, m * of_channel, of_channel, 0, channels * points, of_point,
              source, at::Tensor()},
             windows, way);
}

bool is_taken(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.defined() && is_on_device(tensor) && tensor.device() == like.device() && tensor.layout() == c10::kStrided &&
         tensor.scalar_type() == like.scalar_type() && tensor.dim() == like.dim();
}

// Reads the arguments after the tensors: stride, padding, dilation, transposed, output_padding, groups.
bool read_windows(const c10::IValue* values, const at::Tensor& weight, Windows& windows) {
  const int64_t dims = weight.dim() - 2;
  windows.taps = sizes_of(weight);
  windows.transposed = values[3].toBool();
  windows.groups = values[5].toInt();
  return windows.groups > 0 && read_list(values[0], dims, windows.stride) && read_list(values[1], dims, windows.padding) &&
         read_list(values[2], dims, windows.dilation) && read_list(values[4], dims, windows.output_padding);
}

bool are_taken(const at::Tensor& input, const at::Tensor& weight) {
  if (!input.defined() || input.dim() < 3 || input.dim() > 5 || !c10::isFloatingType(input.scalar_type())) return false;
  return is_taken(input, input) && is_taken(weight, input) && has_dtype(target_of(input.device().index()), input.scalar_type());
}

bool forward(Call& call) {
  const at::Tensor &input = call.tensor(0), &weight = call.tensor(1);
  if (!are_taken(input, weight)) return false;
  const at::Tensor bias = call.tensor_or_none(2);
  if (bias.defined() && (!is_on_device(bias) || bias.scalar_type() != input.scalar_type() || bias.dim() != 1)) return false;
  Windows windows{};
  if (!read_windows(&call[3], weight, windows)) return false;
  c10::SmallVector<int64_t, 5> size{input.size(0), windows.transposed ? weight.size(1) * windows.groups : weight.size(0)};
  const Triple in = sizes_of(input);
  for (size_t d = kDims - static_cast<size_t>(input.dim() - 2); d < kDims; ++d) {
    const int64_t reach = windows.dilation[d] * (windows.taps[d] - 1) + 1;
    size.push_back(windows.transposed ? (in[d] - 1) * windows.stride[d] - 2 * windows.padding[d] + reach + windows.output_padding[d]
                                      : (in[d] + 2 * windows.padding[d] - reach) / windows.stride[d] + 1);
    if (size.back() < 0) return false;
  }
  const at::Tensor result = empty_tensor(size, input.scalar_type(), input.device().index(), convolution_format(input, weight));
  if (!run_data(result, input, weight, bias.defined() ? bias.contiguous() : bias, windows, windows.transposed)) return false;
  call.give(result);
  return true;
}

bool backward(Call& call) {
  const at::Tensor &grad = call.tensor(0), &input = call.tensor(1), &weight = call.tensor(2);
  if (!are_taken(input, weight) || !is_taken(grad, input)) return false;
  Windows windows{};
  if (!read_windows(&call[3], weight, windows)) return false;
  const auto wanted = call[9].toBoolList();
  at::Tensor results[3];
  const c10::DeviceIndex device = input.device().index();
  const c10::MemoryFormat format = convolution_format(input, weight);
  if (wanted[0]) {
    results[0] = empty_tensor(input.sizes(), input.scalar_type(), device, format);
    if (!run_data(results[0], grad, weight, at::Tensor(), windows, !windows.transposed)) return false;
  }
  if (wanted[1]) {
    results[1] = empty_tensor(weight.sizes(), input.scalar_type(), device, format);
    const bool done = windows.transposed ? run_weight(results[1], input, grad, windows) : run_weight(results[1], grad, input, windows);
    if (!done) return false;
  }
  if (wanted[2]) {
    c10::SmallVector<int64_t, 4> dims{0};
    for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
    results[2] = grad.sum(dims);
  }
  for (const at::Tensor& result : results) call.give(result);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"convolution_overrideable"}, &forward);
  add_operator(kernels, {"convolution_backward_overrideable"}, &backward);
});

}  // namespace
}  // namespace convolution_impl
}  // namespace backplane::portable
