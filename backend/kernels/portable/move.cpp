// kernels/portable/move.cpp: what copies elements to other places, or writes numbers: cat, flip, roll, triangles, padding, windows, fill_.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <string>

#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"
#include "kernels/portable/text.h"
#include "kernels/portable/unit_text.h"
#include "kernels/portable/walk.h"

namespace backplane::portable {
namespace move_impl {
namespace {

using Strides = c10::SmallVector<int64_t, 6>;

bool overlaps_itself(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) return true;
  }
  return false;
}

// --- fill_, zero_ ---

bool fill_number(Call& call, const c10::Scalar& value) {
  const at::Tensor& self = call.tensor(0);
  if (self.is_non_overlapping_and_dense() || !is_usable(self) || overlaps_itself(self) || value.isComplex()) return false;
  const c10::ScalarType dtype = self.scalar_type();
  const auto number = value.to<double>();
  if (c10::isFloatingType(dtype)) {
    if (dtype != c10::kDouble && std::isfinite(number) && std::abs(number) > (dtype == c10::kHalf ? 65504.0 : 3.3895e38)) return false;
  } else if (dtype != c10::kBool && (!value.isIntegral(true) || wrapped(value.to<int64_t>(), dtype) != value.to<int64_t>())) {
    return false;
  }
  static auto& slots = *new KernelSlots;
  Walk walk("fill_", self.sizes(), self.device().index());
  walk.write(self);
  if (c10::isFloatingType(dtype)) {
    walk.number(rounded(number, dtype), dtype);
  } else {
    walk.integer(dtype == c10::kBool ? int64_t{number != 0} : value.to<int64_t>());
  }
  if (!walk.run("STORE0(i0, s0);", slots)) return false;
  call.give(self);
  return true;
}

bool fill(Call& call) { return fill_number(call, call[1].toScalar()); }
bool zero(Call& call) { return fill_number(call, 0); }

// --- flip ---

bool flip(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_movable(self)) return false;
  Strides strides(self.strides().begin(), self.strides().end());
  int64_t offset = 0;
  c10::SmallVector<bool, 6> seen(static_cast<size_t>(self.dim()), false);
  for (int64_t d : call[1].toDimVector()) {
    if (d < -self.dim() || d >= self.dim()) return false;
    if (d < 0) d += self.dim();
    if (seen[d]) return false;
    seen[d] = true;
    if (self.size(d) == 0) continue;
    offset += (self.size(d) - 1) * self.stride(d);
    strides[d] = -strides[d];
  }
  at::Tensor out = at::empty_like(self);
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("flip", self.sizes(), self.device().index());
  walk.write(out, bits, out.strides()).read(self, bits, strides, offset);
  if (!walk.run("p0[i0] = p1[i1];", slots)) return false;
  call.give(std::move(out));
  return true;
}

// --- tril, triu ---

template <bool kUpper>
bool triangle(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t dims = self.dim();
  if (!is_movable(self) || dims < 2 || self.scalar_type() == c10::kComplexDouble) return false;
  if (!call.is_functional() && (overlaps_itself(*call.given()) || (call.form() == Call::Form::out && call.given()->is_alias_of(self)))) {
    return false;
  }
  at::Tensor out = call.output(self.sizes(), self.scalar_type(), self.device());
  if (!out.defined()) return false;
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Strides behind(static_cast<size_t>(dims), 0);  // the column minus the row
  behind[dims - 1] = 1;
  behind[dims - 2] = -1;
  Walk walk(kUpper ? "triu" : "tril", self.sizes(), self.device().index());
  walk.write(out, bits, out.strides()).read(self, bits, self.strides()).count(behind).integer(call[1].toInt());
  if (!walk.run(kUpper ? "p0[i0] = i2 >= s0 ? p1[i1] : 0;" : "p0[i0] = i2 <= s0 ? p1[i1] : 0;", slots)) return false;
  call.give(std::move(out));
  return true;
}

// --- cat ---

constexpr size_t kSources = 24;  // of a launch; their addresses and sizes fit into its arguments
constexpr uint32_t kHostTile = 4096;
constexpr uint32_t kLanes = 4;

struct Source {
  at::Tensor tensor;
  int64_t length;  // of a row
  int64_t offset;  // of a row in the result's
};

bool launch_cat(const at::Tensor& out, c10::ScalarType bits, int64_t width, const Source* sources, size_t count) {
  static auto& slots = *new KernelSlots;
  const c10::DeviceIndex device = out.device().index();
  const Target& target = target_of(device);
  const uint32_t per_item = target.is_host() ? kHostTile : kLanes;
  const Function* function = slots.find(static_cast<uint64_t>(device) << 8 | dtype_bits(bits), device, [&] {
    UnitText text("cat", "cat.bpc", "cat");
    const std::string type = memory_type(bits);
    text.define("T", type).define("SOURCES", kSources).define("POINTERS", kSources + 1);
    std::string parameters = "BP_GLOBAL T* BP_RESTRICT out", pick;
    for (size_t k = 0; k < kSources; ++k) {
      append(parameters, ", BP_GLOBAL const T* BP_RESTRICT p", k);
      pick += k + 1 < kSources ? join("(s) == ", k, " ? p", k, " : ") : join("p", k);
    }
    return text.define("PARAMETERS", parameters).define("PICK(s)", "(", pick, ")").source(per_item, kSources + 1, 1 + 4 * kSources, 1);
  });
  if (function == nullptr) return false;
  const int64_t tile = static_cast<int64_t>(function->group) * per_item;
  KernelArguments arguments;
  check_allocated(out);
  arguments.add(reinterpret_cast<uint64_t>(out.mutable_data_ptr()));
  for (size_t k = 0; k < kSources; ++k) {
    arguments.add(reinterpret_cast<uint64_t>(sources[k < count ? k : 0].tensor.const_data_ptr()));
  }
  arguments.add(width);
  int64_t tiles = 0;
  for (size_t k = 0; k < kSources; ++k) {
    if (k < count) tiles += (sources[k].tensor.numel() + tile - 1) / tile;
    arguments.add(tiles);
  }
  for (size_t k = 0; k < kSources; ++k) arguments.add(k < count ? sources[k].tensor.numel() : int64_t{0});
  for (size_t k = 0; k < kSources; ++k) arguments.add(k < count ? sources[k].length : int64_t{1});
  for (size_t k = 0; k < kSources; ++k) arguments.add(k < count ? sources[k].offset : int64_t{0});
  launch_function(device, *function, static_cast<uint64_t>(tiles), arguments);
  return true;
}

// The order of the dimensions in memory.
c10::SmallVector<int64_t, 5> order_of(at::MemoryFormat format, int64_t dims) {
  if (format == at::MemoryFormat::ChannelsLast) return {0, 2, 3, 1};
  if (format == at::MemoryFormat::ChannelsLast3d) return {0, 2, 3, 4, 1};
  c10::SmallVector<int64_t, 5> order;
  for (int64_t d = 0; d < dims; ++d) order.push_back(d);
  return order;
}

at::Tensor new_of_format(at::IntArrayRef sizes, c10::ScalarType dtype, at::MemoryFormat format, c10::Device device) {
  return at::empty(sizes, at::TensorOptions(device).dtype(dtype).memory_format(format));
}

bool cat(Call& call) {
  const std::vector<at::Tensor> tensors = call[0].toTensorVector();
  if (tensors.empty()) return false;
  const at::Tensor* first = nullptr;
  c10::ScalarType dtype = tensors[0].scalar_type();
  std::optional<at::MemoryFormat> format;
  const auto is_skipped = [](const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; };
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.layout() != c10::kStrided || tensor.device() != tensors[0].device()) return false;
    dtype = c10::promoteTypes(dtype, tensor.scalar_type());
    const at::MemoryFormat own = tensor.suggest_memory_format();
    format = !format || *format == own ? own : at::MemoryFormat::Contiguous;
    if (first == nullptr && !is_skipped(tensor)) first = &tensor;
  }
  const c10::Device device = tensors[0].device();
  if (device.type() != c10::kPrivateUse1 || first == nullptr) return false;
  const int64_t dims = first->dim();
  int64_t dim = call[1].toInt();
  if (dim < -dims || dim >= dims) return false;
  if (dim < 0) dim += dims;
  Strides sizes(first->sizes().begin(), first->sizes().end());
  sizes[dim] = 0;
  for (const at::Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.dim() != dims) return false;
    for (int64_t d = 0; d < dims; ++d) {
      if (d != dim && tensor.size(d) != sizes[d]) return false;
    }
    sizes[dim] += tensor.size(dim);
  }
  const c10::ScalarType bits = bits_of(dtype);
  if (bits == c10::ScalarType::Undefined) return false;

  at::Tensor out;
  if (call.is_functional()) {
    out = new_of_format(sizes, dtype, *format, device);
  } else {
    const at::Tensor& given = *call.given();
    if (given.device() != device || given.layout() != c10::kStrided || !c10::canCast(dtype, given.scalar_type())) return false;
    if (given.sizes() != at::IntArrayRef(sizes) && *format != at::MemoryFormat::Contiguous) return false;
    for (const at::Tensor& tensor : tensors) {
      if (given.is_alias_of(tensor)) return false;
    }
    out = call.output(sizes, given.scalar_type(), device);
    if (overlaps_itself(out)) return false;
  }

  const auto order = order_of(*format, dims);
  const bool is_dense = out.scalar_type() == dtype && out.permute(order).is_contiguous();
  const auto place = std::find(order.begin(), order.end(), dim) - order.begin();
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(place) + 1; d < order.size(); ++d) inner *= sizes[order[d]];
  c10::SmallVector<Source, kSources> batch;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const int64_t length = tensor.size(dim);
    if (tensor.numel() != 0) {
      if (is_dense && tensor.scalar_type() == dtype && tensor.permute(order).is_contiguous()) {
        check_allocated(tensor);
        batch.push_back({tensor, length * inner, begin * inner});
      } else {
        out.narrow(dim, begin, length).copy_(tensor);
      }
    }
    begin += length;
    if (batch.size() == kSources) {
      if (!launch_cat(out, bits, sizes[dim] * inner, batch.data(), batch.size())) return false;
      batch.clear();
    }
  }
  if (!batch.empty() && !launch_cat(out, bits, sizes[dim] * inner, batch.data(), batch.size())) return false;
  call.give(std::move(out));
  return true;
}

// --- roll, padding ---

// A dimension of the result in up to three runs: run r begins at coordinate cut r - 1 and goes through the input from `start` by `step`
// elements for each coordinate, counted from coordinate 0.
struct Runs {
  std::array<int64_t, 2> cuts;
  std::array<int64_t, 3> starts;
  std::array<int64_t, 3> steps;
};

constexpr uint32_t kPiecesTile = 1;  // of a host: an item walks whole rows

bool launch_pieces(const at::Tensor& out, const at::Tensor& in, const c10::SmallVector<Runs, 6>& runs) {
  const auto dims = static_cast<size_t>(out.dim());
  if (dims == 0 || dims > 6) return false;
  if (out.numel() == 0) return true;
  static auto& slots = *new KernelSlots;
  const c10::DeviceIndex device = out.device().index();
  const Target& target = target_of(device);
  const c10::ScalarType bits = bits_of(out.scalar_type());
  const size_t outer = dims <= 2 ? 1 : dims <= 4 ? 3 : 5;
  const uint32_t per_item = target.is_host() ? kPiecesTile : kLanes;
  const auto words = static_cast<uint32_t>(2 + outer + 9 * (outer + 1));
  const Function* function = slots.find(static_cast<uint64_t>(device) << 8 | outer << 4 | dtype_bits(bits), device, [&] {
    return UnitText("pieces", "pieces.bpc", "pieces").define("T", memory_type(bits)).define("DIMS", outer).source(per_item, 2, words, 1);
  });
  if (function == nullptr) return false;
  check_allocated(in);
  const auto last = dims - 1;
  const int64_t columns = out.sizes()[last];
  KernelArguments arguments;
  arguments.add(reinterpret_cast<uint64_t>(out.mutable_data_ptr()));
  arguments.add(reinterpret_cast<uint64_t>(in.const_data_ptr()));
  arguments.add(out.numel() / columns);
  arguments.add(columns);
  for (size_t k = 1; k <= outer; ++k) arguments.add(k < dims ? out.sizes()[last - k] : int64_t{1});
  for (size_t k = 0; k <= outer; ++k) arguments.add(k < dims ? out.strides()[last - k] : int64_t{0});
  const auto add = [&](auto member) {
    for (size_t k = 0; k <= outer; ++k) {
      const Runs none{};
      for (const int64_t value : (k < dims ? runs[last - k] : none).*member) arguments.add(value);
    }
  };
  add(&Runs::cuts);
  add(&Runs::starts);
  add(&Runs::steps);
  const int64_t groups = target.is_host() ? out.numel() / columns : out.numel() / (static_cast<int64_t>(function->group) * kLanes) + 1;
  launch_function(device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

Runs whole(const at::Tensor& in, int64_t d) { return {{in.size(d), in.size(d)}, {0, 0, 0}, {in.stride(d), 0, 0}}; }

bool roll(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto shifts = call[1].toDimVector();
  const auto dims = call[2].toDimVector();
  if (!is_movable(self) || shifts.empty() || self.dim() > 6 || (dims.empty() ? shifts.size() != 1 : dims.size() != shifts.size())) {
    return false;
  }
  if (dims.empty() && (!self.is_contiguous() || self.dim() != 1)) {
    // Without dims the flattened tensor is rolled.
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
    if (size == 0) continue;
    // The same dimension again adds to its shift, which the first cut is.
    const int64_t before = runs[d].cuts[0] == size ? 0 : runs[d].cuts[0];
    const int64_t shift = ((before + shifts[k]) % size + size) % size;
    runs[d] = {{shift, size}, {(size - shift) * stride, -shift * stride, 0}, {stride, stride, 0}};
  }
  at::Tensor out = empty(self.sizes(), self.scalar_type(), self.device().index());
  if (!launch_pieces(out, self, runs)) return false;
  call.give(std::move(out));
  return true;
}

// Whether a call of padding is one that the kernels serve: `padded` of the last dimensions, no negative margins, the rules of torch.
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

template <int kPadded, bool kReflects>
bool pad(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto padding = call[1].toDimVector();
  if (!is_movable(self) || !is_padding(self.sizes(), kPadded, padding, kReflects)) return false;
  if (!call.is_functional() && call.given()->is_alias_of(self)) return false;
  const int64_t dims = self.dim();
  Strides sizes(self.sizes().begin(), self.sizes().end());
  c10::SmallVector<Runs, 6> runs;
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t k = dims - 1 - d;
    if (k >= kPadded) {
      runs.push_back(whole(self, d));
      continue;
    }
    const int64_t left = padding[2 * k], right = padding[2 * k + 1], n = self.size(d), stride = self.stride(d);
    sizes[d] += left + right;
    Runs run{{left, left + n}, {0, -left * stride, (n - 1) * stride}, {0, stride, 0}};
    if (kReflects) run = {{left, left + n}, {left * stride, -left * stride, (left + 2 * (n - 1)) * stride}, {-stride, stride, -stride}};
    runs.push_back(run);
  }
  at::Tensor out;
  if (call.is_functional()) {
    const at::MemoryFormat format = dims == 4 || dims == 5 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
    out = new_of_format(sizes, self.scalar_type(), format, self.device());
  } else {
    out = call.output(sizes, self.scalar_type(), self.device());
    if (!out.defined() || overlaps_itself(out)) return false;
  }
  if (!launch_pieces(out, self, runs)) return false;
  call.give(std::move(out));
  return true;
}

constexpr uint32_t kPadTile = 256;

template <int kPadded, bool kReflects>
bool pad_backward(Call& call) {
  const at::Tensor& grad = call.tensor(0);
  const at::Tensor& self = call.tensor(1);
  const auto padding = call[2].toDimVector();
  const c10::ScalarType dtype = grad.scalar_type();
  if (!is_usable(grad) || !is_usable(self) || self.scalar_type() != dtype || !c10::isFloatingType(dtype) ||
      grad.device() != self.device() || grad.dim() != self.dim() || !is_padding(self.sizes(), kPadded, padding, kReflects)) {
    return false;
  }
  const int64_t dims = self.dim();
  Strides sizes(self.sizes().begin(), self.sizes().end());
  for (int64_t k = 0; k < kPadded; ++k) sizes[dims - 1 - k] += padding[2 * k] + padding[2 * k + 1];
  if (grad.sizes() != at::IntArrayRef(sizes)) return false;
  const c10::DeviceIndex device = self.device().index();
  const Target& target = target_of(device);
  static auto& slots = *new KernelSlots;
  const uint32_t per_item = target.is_host() ? kPadTile : kLanes;
  const Function* function = slots.find(static_cast<uint64_t>(device) << 8 | dtype_bits(dtype), device, [&] {
    UnitText text(kReflects ? "reflection_pad_backward" : "replication_pad_backward", "pad_backward.bpc", "pad_backward");
    if (kReflects) text.define("REFLECT", "1");
    return text.element("", dtype).define("C", compute_type(dtype)).source(per_item, 2, 10, 1);
  });
  if (function == nullptr) return false;
  const at::Tensor in = grad.contiguous();
  at::Tensor out;
  if (call.is_functional()) {
    const at::MemoryFormat format = dims == 4 || dims == 5 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
    out = new_of_format(self.sizes(), dtype, format, self.device());
  } else {
    out = call.output(self.sizes(), dtype, self.device());
    if (!out.defined() || overlaps_itself(out) || out.is_alias_of(grad)) return false;
  }
  const at::Tensor dense = out.is_contiguous() ? out : empty(self.sizes(), dtype, device);
  if (dense.numel() != 0) {
    check_allocated(in);
    KernelArguments arguments;
    arguments.add(reinterpret_cast<uint64_t>(dense.mutable_data_ptr()));
    arguments.add(reinterpret_cast<uint64_t>(in.const_data_ptr()));
    const int64_t columns = self.size(dims - 1);
    arguments.add(self.numel() / columns);
    constexpr std::array<int64_t, 3> kOrder{1, 2, 0};  // height, depth, width
    for (const int64_t k : kOrder) arguments.add(k < kPadded ? self.size(dims - 1 - k) : int64_t{1});
    for (const int64_t k : kOrder) arguments.add(k < kPadded ? padding[2 * k] : int64_t{0});
    for (const int64_t k : kOrder) arguments.add(k < kPadded ? padding[2 * k + 1] : int64_t{0});
    const int64_t tile = static_cast<int64_t>(function->group) * per_item;
    launch_function(device, *function, static_cast<uint64_t>(self.numel() / columns * ((columns + tile - 1) / tile)), arguments);
  }
  if (!dense.is_same(out)) out.copy_(dense);
  call.give(std::move(out));
  return true;
}

// --- windows ---

struct Windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2];
};

bool read_windows(const Call& call, size_t first, Windows& windows) {
  int64_t* const members[] = {windows.kernel, windows.dilation, windows.padding, windows.stride};
  for (size_t m = 0; m < 4; ++m) {
    const auto values = call[first + m].toDimVector();
    if (values.size() != 2) return false;
    for (size_t k = 0; k < 2; ++k) {
      if (values[k] < (m == 2 ? 0 : 1)) return false;
      members[m][k] = values[k];
    }
  }
  return true;
}

int64_t count_windows(const Windows& w, int64_t size, int k) {
  const int64_t room = size + 2 * w.padding[k] - w.dilation[k] * (w.kernel[k] - 1) - 1;
  return room < 0 ? 0 : room / w.stride[k] + 1;
}

bool im2col(Call& call) {
  const at::Tensor& given = call.tensor(0);
  Windows w{};
  if (!is_movable(given) || (given.dim() != 3 && given.dim() != 4) || !read_windows(call, 1, w)) return false;
  for (int64_t d = given.dim() - 3; d < given.dim(); ++d) {
    if (given.size(d) == 0) return false;
  }
  const at::Tensor self = given.dim() == 3 ? given.unsqueeze(0) : given;
  const int64_t rows = count_windows(w, self.size(2), 0), columns = count_windows(w, self.size(3), 1);
  if (rows < 1 || columns < 1) return false;
  if (!call.is_functional() && call.given()->is_alias_of(given)) return false;
  Strides sizes{self.size(0), self.size(1) * w.kernel[0] * w.kernel[1], rows * columns};
  if (given.dim() == 3) sizes.erase(sizes.begin());
  at::Tensor out = call.output(sizes, self.scalar_type(), self.device());
  if (!out.defined() || !out.is_contiguous()) return false;
  static auto& slots = *new KernelSlots;
  const c10::ScalarType bits = bits_of(self.scalar_type());
  const Strides all{self.size(0), self.size(1), w.kernel[0], w.kernel[1], rows, columns};
  const int64_t y = self.stride(2), x = self.stride(3);
  Walk walk("im2col", all, self.device().index());
  walk.write(out, bits, dense_strides(all))
      .read(self, bits, Strides{self.stride(0), self.stride(1), w.dilation[0] * y, w.dilation[1] * x, w.stride[0] * y, w.stride[1] * x})
      .count(Strides{0, 0, w.dilation[0], 0, w.stride[0], 0})
      .count(Strides{0, 0, 0, w.dilation[1], 0, w.stride[1]})
      .integer(w.padding[0])
      .integer(w.padding[1])
      .integer(self.size(2))
      .integer(self.size(3))
      .integer(w.padding[0] * y + w.padding[1] * x);
  if (!walk.run("const i64 y = i2 - s0; const i64 x = i3 - s1; p0[i0] = y >= 0 && y < s2 && x >= 0 && x < s3 ? p1[i1 - s4] : 0;", slots)) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

bool col2im(Call& call) {
  const at::Tensor& given = call.tensor(0);
  const auto size = call[1].toDimVector();
  Windows w{};
  if (!is_usable(given) || !c10::isFloatingType(given.scalar_type()) || (given.dim() != 2 && given.dim() != 3) || size.size() != 2 ||
      given.numel() == 0 || !read_windows(call, 2, w)) {
    return false;
  }
  const at::Tensor self = (given.dim() == 2 ? given.unsqueeze(0) : given).contiguous();
  const int64_t rows = count_windows(w, size[0], 0), columns = count_windows(w, size[1], 1);
  const int64_t each = w.kernel[0] * w.kernel[1];
  if (rows < 1 || columns < 1 || self.size(2) != rows * columns || self.size(1) % each != 0) return false;
  if (!call.is_functional() && call.given()->is_alias_of(given)) return false;
  const int64_t channels = self.size(1) / each;
  Strides sizes{self.size(0), channels, size[0], size[1]};
  const Strides all = sizes;
  if (given.dim() == 2) sizes.erase(sizes.begin());
  at::Tensor out = call.output(sizes, self.scalar_type(), self.device());
  if (!out.defined() || !out.is_contiguous()) return false;
  static auto& slots = *new KernelSlots;
  Walk walk("col2im", all, self.device().index());
  walk.write(out, out.scalar_type(), dense_strides(all))
      .read(self, self.scalar_type(), Strides{channels * each * rows * columns, each * rows * columns, 0, 0})
      .count(Strides{0, 0, 1, 0})
      .count(Strides{0, 0, 0, 1})
      .compute_in(self.scalar_type());
  for (int k = 0; k < 2; ++k) walk.integer(w.padding[k]).integer(w.kernel[k]).integer(w.dilation[k]).integer(w.stride[k]);
  walk.integer(rows).integer(columns);
  if (!walk.run("C sum = (C)0; "
                "for (i64 a = 0; a < s1; ++a) { const i32 y = (i32)(i2 + s0 - a * s2); const i32 r = y / (i32)s3; "
                "  if (y < 0 || r * s3 != y || r >= s8) continue; "
                "  for (i64 b = 0; b < s5; ++b) { const i32 x = (i32)(i3 + s4 - b * s6); const i32 c = x / (i32)s7; "
                "    if (x < 0 || c * s7 != x || c >= s9) continue; "
                "    sum += LOAD1(i1 + ((a * s5 + b) * s8 + r) * s9 + c); } } "
                "STORE0(i0, sum);",
                slots)) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

// As torch's, which is a copy through views; on CPU it is no composition.
bool channel_shuffle(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t groups = call[1].toInt();
  if (!is_movable(self) || self.dim() < 3 || groups < 1 || self.size(1) % groups != 0 || self.numel() == 0) return false;
  Strides sizes{self.size(0), groups, self.size(1) / groups};
  for (int64_t d = 2; d < self.dim(); ++d) sizes.push_back(self.size(d));
  const at::MemoryFormat format = self.suggest_memory_format();
  call.give(self.contiguous().view(sizes).transpose(1, 2).contiguous().view(self.sizes()).contiguous(format));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"fill_.Scalar"}, &fill);
  add_operator(kernels, {"zero_"}, &zero);
  add_operator(kernels, {"flip"}, &flip);
  add_operator(kernels, {"roll"}, &roll);
  add_operator(kernels, {"tril", "tril.out", "tril_"}, &triangle<false>);
  add_operator(kernels, {"triu", "triu.out", "triu_"}, &triangle<true>);
  add_operator(kernels, {"cat", "cat.out"}, &cat);
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
  add_operator(kernels, {"channel_shuffle"}, &channel_shuffle);
  add_operator(kernels, {"im2col", "im2col.out"}, &im2col);
  add_operator(kernels, {"col2im", "col2im.out"}, &col2im);
});

}  // namespace
}  // namespace move_impl
}  // namespace backplane::portable
