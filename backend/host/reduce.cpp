// host/reduce.cpp: what all reductions share (backplane/host/reduce.h): which dimensions are walked in what order, in contiguous pieces.
#include <backplane/host/reduce.h>

#include <algorithm>

#include "host/conversion.h"

namespace backplane::detail {
namespace reduce_impl {
namespace {

using c10::ScalarType;

struct Dim {
  int64_t size;
  int64_t stride;      // of self, in bytes
  int64_t out_stride;  // bytes; 0 in a reduced dimension
};

struct Dims {
  int64_t count = 0;
  Dim dim[Elements::kMostDims];  // innermost first

  void add(const Dim& next) {
    if (next.size == 1) return;
    if (count > 0) {  // one that continues the last one is a part of it
      Dim& last = dim[count - 1];
      if (next.stride == last.stride * last.size && next.out_stride == last.out_stride * last.size) {
        last.size *= next.size;
        return;
      }
    }
    dim[count++] = next;
  }

  int64_t numel() const {
    int64_t product = 1;
    for (int64_t i = 0; i < count; ++i) product *= dim[i].size;
    return product;
  }

  // visit(offset in self, offset in out) for every index over the dimensions from `first` on; not called where there are none.
  template <typename Visit>
  void each(int64_t first, const Visit& visit) const {
    for (int64_t i = first; i < count; ++i) {
      if (dim[i].size == 0) return;
    }
    int64_t position[Elements::kMostDims] = {};
    int64_t offset = 0;
    int64_t out_offset = 0;
    while (true) {
      visit(offset, out_offset);
      int64_t i = first;
      for (; i < count; ++i) {
        offset += dim[i].stride;
        out_offset += dim[i].out_stride;
        if (++position[i] < dim[i].size) break;
        offset -= dim[i].stride * dim[i].size;
        out_offset -= dim[i].out_stride * dim[i].size;
        position[i] = 0;
      }
      if (i >= count) return;
    }
  }
};

class Kernel {
 public:
  Kernel(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, ScalarType common, const at::Tensor& out,
         const Reduction& reduction)
      : reduction_(&reduction),
        self_(const_device_ptr<char>(self).address),
        out_(device_ptr<char>(out).address),
        dtype_(self.scalar_type()),
        out_dtype_(out.scalar_type()),
        via_(rounds_to(common, dtype_, reduction.element)) {
    const bool all = !dims || dims->empty();
    bool is_reduced[Elements::kMostDims] = {};
    if (!all && self.dim() > 0) {
      for (const int64_t dim : *dims) is_reduced[dim < 0 ? dim + self.dim() : dim] = true;  // ATen has checked them
    }
    Dim kept[Elements::kMostDims];
    Dim reduced[Elements::kMostDims];
    int64_t kept_count = 0;
    int64_t reduced_count = 0;
    int64_t out_dim = out.dim();
    for (int64_t i = self.dim() - 1; i >= 0; --i) {
      const int64_t stride = self.stride(i) * self.element_size();
      if (all || is_reduced[i]) {
        if (keepdim) --out_dim;
        reduced[reduced_count++] = {self.size(i), stride, 0};
      } else {
        --out_dim;
        kept[kept_count++] = {self.size(i), stride, out.stride(out_dim) * out.element_size()};
      }
    }
    const auto nearer = [](const Dim& a, const Dim& b) { return a.stride < b.stride; };
    std::stable_sort(kept, kept + kept_count, nearer);
    if (!reduction.in_order) std::stable_sort(reduced, reduced + reduced_count, nearer);
    for (int64_t i = 0; i < kept_count; ++i) kept_.add(kept[i]);
    for (int64_t i = 0; i < reduced_count; ++i) reduced_.add(reduced[i]);
  }

  void run(const DeviceMemory& memory) const {
    const char* self = static_cast<const char*>(memory.at(self_));
    char* out = static_cast<char*>(memory.at(out_));
    const bool columns = kept_.count > 0 && (reduced_.count == 0 || kept_.dim[0].stride < reduced_.dim[0].stride);
    columns ? by_columns(self, out) : by_rows(self, out);
  }

 private:
  // One result at a time: the nearest elements belong to it.
  void by_rows(const char* self, char* out) const {
    const Dim inner = reduced_.count > 0 ? reduced_.dim[0] : Dim{1, 0, 0};
    const int64_t piece = is_direct(inner.stride) ? 16 * kChunk : kChunk;  // of 128 lanes: 32 additions in each
    const int64_t reduced = reduced_.numel();
    kept_.each(0, [&](int64_t kept_offset, int64_t out_offset) {
      alignas(16) char accumulator[16];
      reduction_->begin(accumulator, 1);
      int64_t index = 0;
      if (reduced > 0) {
        reduced_.each(std::min<int64_t>(1, reduced_.count), [&](int64_t offset, int64_t) {
          const char* row = self + kept_offset + offset;
          for (int64_t k = 0; k < inner.size; k += piece) {
            const int64_t n = std::min(piece, inner.size - k);
            alignas(64) char buffer[kChunk * 8];
            reduction_->row(accumulator, read(row + k * inner.stride, inner.stride, n, buffer), n, index);
            index += n;
          }
        });
      }
      write(accumulator, 1, reduced, out + out_offset, 0);
    });
  }

  // A piece of neighbouring results at a time.
  void by_columns(const char* self, char* out) const {
    const Dim inner = kept_.dim[0];
    const int64_t reduced = reduced_.numel();
    kept_.each(1, [&](int64_t kept_offset, int64_t out_offset) {
      for (int64_t k = 0; k < inner.size; k += kChunk) {
        const int64_t n = std::min(kChunk, inner.size - k);
        alignas(64) char accumulators[kChunk * 16];
        reduction_->begin(accumulators, n);
        int64_t index = 0;
        if (reduced > 0) {
          reduced_.each(0, [&](int64_t offset, int64_t) {
            alignas(64) char buffer[kChunk * 8];
            const char* row = self + kept_offset + offset + k * inner.stride;
            reduction_->columns(accumulators, read(row, inner.stride, n, buffer), n, index++);
          });
        }
        write(accumulators, n, reduced, out + out_offset + k * inner.out_stride, inner.out_stride);
      }
    });
  }

  bool is_direct(int64_t stride) const { return dtype_ == reduction_->element && stride == size_of(dtype_); }

  const char* read(const char* data, int64_t stride, int64_t count, char* buffer) const {
    if (is_direct(stride)) return data;
    convert_via(via_, dtype_, {const_cast<char*>(data), stride}, reduction_->element, {buffer, size_of(reduction_->element)}, count);
    return buffer;
  }

  void write(const char* accumulators, int64_t count, int64_t reduced, char* out, int64_t stride) const {
    alignas(64) char results[kChunk * 8];
    reduction_->finish(accumulators, results, count, reduced);
    convert(reduction_->result, {results, size_of(reduction_->result)}, out_dtype_, {out, stride}, count);
  }

  const Reduction* reduction_;
  uint64_t self_;
  uint64_t out_;
  ScalarType dtype_;
  ScalarType out_dtype_;
  ScalarType via_;
  Dims kept_;
  Dims reduced_;
};

}  // namespace
}  // namespace reduce_impl

void launch_reduction(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, c10::ScalarType common, const at::Tensor& out,
                      const Reduction& reduction) {
  if (out.numel() == 0) return;
  const reduce_impl::Kernel kernel(self, dims, keepdim, common, out, reduction);
  launch(out.device().index(), [kernel](const DeviceMemory& memory) { kernel.run(memory); });
}

}  // namespace backplane::detail
