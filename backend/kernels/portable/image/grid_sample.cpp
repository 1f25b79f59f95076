// kernels/portable/image/grid_sample.cpp: images and volumes sampled at the points of a grid, and the gradients.
//
// The image's gradient is a sum over all outputs at places given by the grid. A device of many items uses atomic additions, if they are
// fast and deterministic algorithms are not requested; otherwise each item adds up its own channels, in order.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"

namespace backplane::portable {
namespace grid_sample_impl {
namespace {

constexpr uint32_t kHostTile = 128;          // lanes of a group, if an item is a core
constexpr int64_t kBlock = 8;                // channels that share the points' places
constexpr int64_t kMost = int64_t{1} << 31;  // places in an image are i32

enum class Stage : uint8_t { sample, grid, image, scatter };

struct Sampling {
  int64_t dims, mode, padding;
  bool is_aligned;
};

// Reads the arguments from the interpolation on. False: the CPU raises the error.
bool read_sampling(const Call& call, size_t first, int64_t dims, Sampling& sampling) {
  sampling = {dims, call[first].toInt(), call[first + 1].toInt(), call[first + 2].toBool()};
  const int64_t modes = dims == 2 ? 3 : 2;  // linear, nearest, cubic
  return sampling.mode >= 0 && sampling.mode < modes && sampling.padding >= 0 && sampling.padding < 3;
}

bool takes(const at::Tensor& image, const at::Tensor& grid, int64_t dims) {
  if (!is_usable(image) || !is_usable(grid) || image.device() != grid.device() || image.scalar_type() != grid.scalar_type()) return false;
  if (!c10::isFloatingType(image.scalar_type()) || image.dim() != dims + 2 || grid.dim() != dims + 2) return false;
  if (image.size(0) != grid.size(0) || grid.size(dims + 1) != dims) return false;
  int64_t volume = 1;
  for (int64_t d = 2; d < dims + 2; ++d) {
    if (image.size(d) < 1 || image.size(d) >= kMost / volume) return false;
    volume *= image.size(d);
  }
  return true;
}

// Operands are dense. image and grad are undefined where the stage does not use them.
bool run(Stage stage, const Sampling& sampling, const at::Tensor& to, const at::Tensor& image, const at::Tensor& grid,
         const at::Tensor& grad, at::IntArrayRef sizes) {
  const c10::DeviceIndex device = to.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType dtype = grid.scalar_type();
  const int64_t dims = sampling.dims, points = grid.numel() / dims / sizes[0], channels = sizes[1];
  int64_t volume = 1;
  for (int64_t d = 2; d < dims + 2; ++d) volume *= sizes[d];
  const bool is_wide = has_wide_extent(target, std::max({sizes[0] * channels * points, sizes[0] * channels * volume, grid.numel()}));
  const bool is_host = target.is_host();
  const uint32_t per_item = is_host ? kHostTile : 1;
  constexpr std::array<int, 3> kTaps{2, 1, 4};
  constexpr std::array<Literal, 4> kStages{"SAMPLE", "GRID", "IMAGE", "SCATTER"};
  Unit unit(device, "grid_sample.bpc", "grid_sample", dims == 2 ? Literal("grid_sample_2d") : Literal("grid_sample_3d"));
  unit.element("0", to.scalar_type()).element("1", dtype).compute_in(dtype).index(is_wide);
  unit.define("DIMS", dims).define("TAPS", kTaps[static_cast<size_t>(sampling.mode)]).define("PADDING", sampling.padding);
  unit.define("ALIGN", sampling.is_aligned).define("STAGE", kStages[static_cast<size_t>(stage)]);
  const Function* function = unit.find(per_item, 4, 7, 1);
  if (function == nullptr) return false;
  const int64_t block = stage == Stage::grid ? channels : stage == Stage::image && !is_host ? 1 : kBlock;
  Arguments arguments;
  arguments.write(to).read(image).read(grid).read(grad).words(sizes[0], channels, points);
  for (int64_t d = dims + 1; d >= 2; --d) arguments.words(sizes[d]);
  if (dims == 2) arguments.words(1);
  arguments.words(block);
  const int64_t jobs = sizes[0] * ((channels + block - 1) / block);
  const int64_t tile = int64_t{function->group} * per_item;
  const int64_t groups = stage == Stage::image ? jobs / function->group + 1 : jobs * ((points + tile - 1) / tile);
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

template <int64_t kDims>
bool forward(Call& call) {
  const at::Tensor& image = call.tensor(0);
  const at::Tensor& grid = call.tensor(1);
  Sampling sampling{};
  if (!takes(image, grid, kDims) || !read_sampling(call, 2, kDims, sampling)) return false;
  c10::SmallVector<int64_t, 5> sizes(image.sizes().begin(), image.sizes().begin() + 2);
  sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  const at::Tensor out = empty(sizes, image.scalar_type(), image.device().index());
  if (out.numel() != 0 && !run(Stage::sample, sampling, out, image.contiguous(), grid.contiguous(), {}, image.sizes())) return false;
  call.give(out);
  return true;
}

bool has_atomic(const Target& target, c10::ScalarType dtype) {
  return !target.is_host() && dtype != c10::kDouble && (target.properties.atomics & BP_ATOMIC_ADD_F32) != 0 &&
         !at::globalContext().deterministicAlgorithms();
}

template <int64_t kDims>
bool backward(Call& call) {
  const at::Tensor& grad = call.tensor(0);
  const at::Tensor& image = call.tensor(1);
  const at::Tensor& grid = call.tensor(2);
  Sampling sampling{};
  if (!takes(image, grid, kDims) || !read_sampling(call, 3, kDims, sampling) || !is_usable(grad)) return false;
  const c10::ScalarType dtype = image.scalar_type();
  c10::SmallVector<int64_t, 5> sizes(image.sizes().begin(), image.sizes().begin() + 2);
  sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  if (grad.sizes() != at::IntArrayRef(sizes) || grad.scalar_type() != dtype || grad.device() != image.device()) return false;
  const auto mask = call[6].toBoolList();
  const c10::DeviceIndex device = image.device().index();
  const at::Tensor dense_grid = grid.contiguous(), dense_grad = grad.contiguous();

  at::Tensor of_image;
  if (mask.get(0)) {
    const at::Tensor sums = empty(image.sizes(), accumulated(dtype), device).zero_();
    const Stage stage = has_atomic(target_of(device), dtype) ? Stage::scatter : Stage::image;
    if (grad.numel() != 0 && !run(stage, sampling, sums, {}, dense_grid, dense_grad, image.sizes())) return false;
    of_image = sums.to(dtype);
  }
  const at::Tensor of_grid = empty(grid.sizes(), dtype, device);
  if (sampling.mode == 1 || grad.numel() == 0) {
    of_grid.zero_();
  } else if (!run(Stage::grid, sampling, of_grid, image.contiguous(), dense_grid, dense_grad, image.sizes())) {
    return false;
  }
  call.give(of_image);
  call.give(of_grid);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"grid_sampler_2d"}, &forward<2>);
  add_operator(kernels, {"grid_sampler_3d"}, &forward<3>);
  add_operator(kernels, {"grid_sampler_2d_backward"}, &backward<2>);
  add_operator(kernels, {"grid_sampler_3d_backward"}, &backward<3>);
});

}  // namespace
}  // namespace grid_sample_impl
}  // namespace backplane::portable
