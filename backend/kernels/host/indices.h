// kernels/host/indices.h: what kernels with indices share: how they walk their operands, and the check of indices that only the device
// can read.
//
// Note [Wrong indices]: the operator is queued before its indices are known. This simulated device waits until the kernel has seen them, so
// that a wrong one is an error of the call itself, as on the CPU; the device goes on. That costs these operators their asynchrony, as
// the CPU fallback would. A chip for which that is too much lets its kernel fault instead, as CUDA does: then the error comes later, and
// the device is lost to the process. So it is here in a graph, whose runs nobody waits for. Nothing is read or written out of bounds in
// either case.
#pragma once

#include <ATen/core/Tensor.h>
#include <backplane/dtypes.h>
#include <backplane/kernel.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <future>
#include <memory>

namespace indices {

// Made where the kernel is launched; the launched function has a copy.
class Check {
 public:
  Check(int64_t dim, int64_t size)
      : dim_(dim), size_(size), captured_(backplane::is_capturing()), finished_(running_->get_future().share()) {}

  // In the launched function. False: the index is wrong, and the function returns.
  bool operator()(int64_t index) const {
    if (C10_LIKELY(index >= 0 && index < size_)) return true;
    TORCH_CHECK_INDEX(!captured_, "index ", index, " is out of range for ", size_, " elements, in a run of a graph");
    found_->is_wrong = true;
    found_->index = index;
    return false;
  }

  int64_t size() const { return size_; }

  // After the launch: waits for the function, also where it is skipped because the device has faulted.
  // The two errors of the CPU's operators.
  void raise() {
    wait();
    TORCH_CHECK_INDEX(!found_->is_wrong, "index out of range in self");
  }
  void raise_with_index() {
    wait();
    TORCH_CHECK(!found_->is_wrong, "index ", found_->index, " is out of bounds for dimension ", dim_, " with size ", size_);
  }

 private:
  struct Found {
    bool is_wrong = false;
    int64_t index = 0;
  };

  void wait() {
    running_.reset();
    if (captured_) return;  // it runs later, any number of times
    finished_.wait();
  }

  int64_t dim_;
  int64_t size_;
  bool captured_;
  std::shared_ptr<Found> found_ = std::make_shared<Found>();
  std::shared_ptr<std::promise<void>> running_ = std::make_shared<std::promise<void>>();  // broken when the last copy of the function goes
  std::shared_future<void> finished_;
};

using Indices = backplane::Dtypes<int64_t, int32_t>;

// A list of indices as a kernel reads it.
struct IndexList {
  explicit IndexList(const at::Tensor& index)
      : address(backplane::const_device_ptr<char>(index).address),
        stride(index.dim() == 0 ? 1 : index.stride(0)),
        is_long(index.scalar_type() == c10::kLong) {}

  // at(i): the i-th index.
  auto map(const backplane::DeviceMemory& memory) const {
    return [data = memory.at(address), stride = stride, is_long = is_long](int64_t i) -> int64_t {
      return is_long ? static_cast<const int64_t*>(data)[i * stride] : static_cast<const int32_t*>(data)[i * stride];
    };
  }

  uint64_t address;
  int64_t stride;
  bool is_long;
};

inline int64_t wrap(int64_t dim, int64_t dims) { return dim < 0 ? dim + dims : dim; }

// A contiguous tensor as [outer, size, inner] along a dimension.
struct Blocks {
  Blocks(at::IntArrayRef sizes, int64_t dim)
      : outer(c10::multiply_integers(sizes.begin(), sizes.begin() + dim)),
        size(sizes.empty() ? 1 : sizes[dim]),
        inner(sizes.empty() ? 1 : c10::multiply_integers(sizes.begin() + dim + 1, sizes.end())) {}
  int64_t outer;
  int64_t size;
  int64_t inner;
};

// The elements of `index`, of a source or output of its shape, and of self but for `dim`, row by row of the last dimension.
struct Lattice {
  struct Offsets {
    int64_t self, index, source;
  };

  Lattice(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source)
      : sizes(index.sizes().begin(), index.sizes().end()), step(self.dim() == 0 ? 1 : self.stride(dim)) {
    for (int64_t d = 0; d < index.dim(); ++d) strides.push_back({d == dim ? 0 : self.stride(d), index.stride(d), source.stride(d)});
    if (sizes.empty()) {
      sizes.push_back(1);
      strides.push_back({0, 0, 0});
    }
  }

  // Calls row(where it begins) until one returns false.
  template <typename Row>
  void each_row(const Row& row) const {
    c10::SmallVector<int64_t, 5> position(sizes.size(), 0);
    Offsets at{0, 0, 0};
    while (row(at)) {
      auto d = static_cast<int64_t>(sizes.size()) - 2;
      for (; d >= 0; --d) {
        const bool carries = ++position[d] == sizes[d];
        const int64_t steps = carries ? 1 - sizes[d] : 1;
        at.self += steps * strides[d].self;
        at.index += steps * strides[d].index;
        at.source += steps * strides[d].source;
        if (!carries) break;
        position[d] = 0;
      }
      if (d < 0) return;
    }
  }

  // Calls element(self's, source's) for every element, with self's at the index along dim.
  template <typename Self, typename Source, typename Element>
  void each(Self* self, const int64_t* index, Source* source, const Check& check, const Element& element) const {
    const int64_t count = sizes.back();
    const Offsets by = strides.back();
    each_row([&, step = step, size = check.size()](const Offsets& at) {
      for (int64_t k = 0; k < count; ++k) {
        const int64_t i = index[at.index + k * by.index];
        if (C10_UNLIKELY(i < 0 || i >= size)) return check(i);
        element(self[at.self + k * by.self + i * step], source[at.source + k * by.source]);
      }
      return true;
    });
  }

  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<Offsets, 5> strides;
  int64_t step;  // of self along dim
};

}  // namespace indices
