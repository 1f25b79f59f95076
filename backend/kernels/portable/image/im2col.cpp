// kernels/portable/image/im2col.cpp: the windows of an image as columns, and the sum of columns into an image.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/walk.h"

namespace backplane::portable {
namespace im2col_impl {
namespace {

using Strides = c10::SmallVector<int64_t, 6>;

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
  if (!walk.run("const i64 y = i2 - s0; const i64 x = i3 - s1; p0[i0] = y >= 0 && y < s2 && x >= 0 && x < s3 ? p1[i1 - s4] : 0;")) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

// The sum of columns, each of them a window, into an image.
struct Sum {
  const at::Tensor &columns, &image;  // dense
  std::array<int64_t, 4> sizes;       // images, channels, and the windows along each dimension
  std::array<int64_t, 2> extent;      // of an image
  const Windows& w;

  // Adds one element of all windows at a time, in torch's order. Windows that only touch each other are copied.
  bool add_windows() const {
    const auto [images, channels, rows, across] = sizes;
    const c10::ScalarType dtype = image.scalar_type();
    const int64_t plane = extent[0] * extent[1], each = w.kernel[0] * w.kernel[1], count = rows * across;
    bool touch = true;
    for (size_t d = 0; d < 2; ++d) {
      touch = touch && w.dilation[d] == 1 && w.padding[d] == 0 && w.stride[d] == w.kernel[d] && extent[d] == w.kernel[d] * sizes[d + 2];
    }
    if (touch) {
      Walk walk("col2im", {images, channels, rows, w.kernel[0], across, w.kernel[1]}, image.device().index());
      walk.write(image, bits_of(dtype), {channels * plane, plane, w.stride[0] * extent[1], extent[1], w.stride[1], 1});
      walk.read(columns, bits_of(dtype), {channels * each * count, each * count, across, w.kernel[1] * count, 1, count});
      return walk.run("p0[i0] = p1[i1];");
    }
    image.zero_();
    for (int64_t place = 0; place < each; ++place) {
      std::array<int64_t, 2> first{}, windows{}, at{};
      const std::array<int64_t, 2> own{place / w.kernel[1], place % w.kernel[1]};
      for (size_t d = 0; d < 2; ++d) {
        const int64_t begin = own[d] * w.dilation[d] - w.padding[d];  // where it lies in the first window
        first[d] = begin >= 0 ? 0 : (w.stride[d] - 1 - begin) / w.stride[d];
        const int64_t end = begin >= extent[d] ? 0 : (extent[d] - 1 - begin) / w.stride[d] + 1;
        windows[d] = std::min(end, sizes[d + 2]) - first[d];
        at[d] = begin + first[d] * w.stride[d];
      }
      if (windows[0] <= 0 || windows[1] <= 0) continue;
      Walk walk("col2im", {images, channels, windows[0], windows[1]}, image.device().index());
      walk.write(image, dtype, {channels * plane, plane, w.stride[0] * extent[1], w.stride[1]}, at[0] * extent[1] + at[1]);
      walk.read(columns, dtype, {channels * each * count, each * count, across, 1}, place * count + first[0] * across + first[1]);
      if (!walk.compute_in(dtype).run("STORE0(i0, LOAD0(i0) + LOAD1(i1));")) return false;
    }
    return true;
  }
};

bool col2im(Call& call) {
  const at::Tensor& given = call.tensor(0);
  const auto size = call[1].toDimVector();
  Windows w{};
  if (is_complex(given.scalar_type())) return compute_each_part(call, &col2im);
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
  const Sum sum{self, out, {self.size(0), channels, rows, columns}, {size[0], size[1]}, w};
  if (target_of(self.device().index()).is_host()) {
    if (!sum.add_windows()) return false;
    call.give(std::move(out));
    return true;
  }
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
                "STORE0(i0, sum);")) {
    return false;
  }
  call.give(std::move(out));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"im2col", "im2col.out"}, &im2col);
  add_operator(kernels, {"col2im", "col2im.out"}, &col2im);
});

}  // namespace
}  // namespace im2col_impl
}  // namespace backplane::portable
