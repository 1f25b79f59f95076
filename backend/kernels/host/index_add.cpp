// kernels/host/index_add.cpp: index_add, scatter_add and embedding_dense_backward, the backwards of index_select, gather and embedding,
// for float32, float64, bfloat16, float16 (these two are added in float32 and rounded at the end) and int64. Indices are int32 or int64,
// where the operator allows both. Other calls, wrong shapes among them, are left to the CPU fallback. For indices out of range see Note
// [Wrong indices] in indices.h.
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/scatter_add_meta.h>
#include <backplane/structured.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>

#include "indices.h"
#include "vectors.h"

namespace {

using backplane::const_device_ptr;
using backplane::device_ptr;
using backplane::DeviceMemory;
using indices::Blocks;
using indices::IndexList;
using indices::Indices;
using indices::Lattice;
using indices::wrap;
using Added = backplane::Dtypes<float, double, at::BFloat16, at::Half, int64_t>;
// What elements of T are added in.
template <typename T>
using Sum = backplane::ComputeType<T>;

struct ScatterAdd : backplane::HostKernel {
  using Takes = Added;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, int64_t, const at::Tensor& index, const at::Tensor& src) {
    return self.dim() == index.dim() && src.dim() == index.dim() && index.scalar_type() == c10::kLong &&
           src.scalar_type() == self.scalar_type();
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src,
                  const at::Tensor& out) {
    const bool is_half = c10::isReducedFloatingType(out.scalar_type());
    const at::Tensor sums = is_half ? backplane::empty(out.sizes(), c10::kFloat, out.device().index()) : out;
    if (!sums.is_same(self)) sums.copy_(self);
    if (index.numel() > 0) add(sums, wrap(dim, self.dim()), index, src);
    if (!sums.is_same(out)) out.copy_(sums);
  }

 private:
  static void add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
    indices::Check check(dim, self.dim() == 0 ? 1 : self.size(dim));
    Added::dispatch(src.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      backplane::launch(self.device().index(),
                        [lattice = Lattice(self, dim, index, src), check, pself = device_ptr<Sum<T>>(self),
                         pindex = const_device_ptr<int64_t>(index), psrc = const_device_ptr<T>(src)](const DeviceMemory& memory) {
                          lattice.each(memory(pself), memory(pindex), memory(psrc), check,
                                       [](Sum<T>& to, const T& from) { to += static_cast<Sum<T>>(from); });
                        });
    });
    check.raise_with_index();
  }
};

template <typename T, typename Sum>
VECTOR_VERSIONS void add_row(int64_t count, Sum alpha, const T* from, Sum* to) {
  vectors::each(count, [=](int64_t i) { to[i] += alpha * static_cast<Sum>(from[i]); });
}

// The row of each index among those that occur, in order of their first use.
class Rows {
 public:
  explicit Rows(int64_t size) : row_(new int64_t[size]), used_(new int64_t[size]) { std::fill_n(row_.get(), size, int64_t{-1}); }

  void use(int64_t index) {
    if (row_[index] >= 0) return;
    row_[index] = count_;
    used_[count_++] = index;
  }
  int64_t count() const { return count_; }
  int64_t row(int64_t index) const { return row_[index]; }
  int64_t index(int64_t row) const { return used_[row]; }

 private:
  std::unique_ptr<int64_t[]> row_, used_;
  int64_t count_ = 0;
};

// to[:, index[i], :] += alpha * source[:, i, :], both contiguous, indices in range; rows of index `skip` are left out.
template <typename T, typename At>
void add_rows(const Blocks& blocks, int64_t count, const At& at, T alpha, int64_t skip, const T* source, T* to) {
  for (int64_t outer = 0; outer < blocks.outer; ++outer, to += blocks.size * blocks.inner) {
    for (int64_t i = 0; i < count; ++i, source += blocks.inner) {
      const int64_t index = at(i);
      if (index == skip) continue;
      add_row(blocks.inner, alpha, source, to + index * blocks.inner);
    }
  }
}

// The same for a half type: the rows that are written are floats meanwhile, and rounded once.
template <typename T, typename At>
void add_half_rows(const Blocks& blocks, int64_t count, const At& at, float alpha, int64_t skip, const T* source, T* to) {
  Rows rows(blocks.size);
  for (int64_t i = 0; i < count; ++i) {
    if (at(i) != skip) rows.use(at(i));
  }
  const int64_t inner = blocks.inner;
  const std::unique_ptr<float[]> sums(new float[rows.count() * inner]);
  for (int64_t outer = 0; outer < blocks.outer; ++outer, to += blocks.size * inner) {
    for (int64_t r = 0; r < rows.count(); ++r) vectors::convert(inner, to + rows.index(r) * inner, sums.get() + r * inner);
    for (int64_t i = 0; i < count; ++i, source += inner) {
      if (at(i) == skip) continue;
      add_row(inner, alpha, source, sums.get() + rows.row(at(i)) * inner);
    }
    for (int64_t r = 0; r < rows.count(); ++r) vectors::convert(inner, sums.get() + r * inner, to + rows.index(r) * inner);
  }
}

// Queues that; nothing is written if an index is out of range.
template <typename T>
void launch_add_rows(const at::Tensor& to, int64_t dim, const at::Tensor& index, const at::Tensor& source, Sum<T> alpha, int64_t skip) {
  indices::Check check(dim, to.dim() == 0 ? 1 : to.size(dim));
  backplane::launch(to.device().index(),
                    [blocks = Blocks(to.sizes(), dim), list = IndexList(index), count = index.numel(), alpha, skip, check,
                     pto = device_ptr<T>(to), psource = const_device_ptr<T>(source)](const DeviceMemory& memory) {
                      const auto at = list.map(memory);
                      for (int64_t i = 0; i < count; ++i) {
                        if (at(i) != skip && !check(at(i))) return;
                      }
                      if constexpr (std::is_same_v<T, Sum<T>>) {
                        add_rows(blocks, count, at, alpha, skip, memory(psource), memory(pto));
                      } else {
                        add_half_rows(blocks, count, at, alpha, skip, memory(psource), memory(pto));
                      }
                    });
  to.dim() > 1 ? check.raise_with_index() : check.raise();
}

constexpr int64_t kSkipNone = std::numeric_limits<int64_t>::min();

struct IndexAdd : backplane::HostKernel {
  using Takes = Added;
  using Precomputed = at::meta::structured_index_add::meta_return_ty;
  static bool takes(const at::impl::MetaBase&, const at::Tensor& self, int64_t, const at::Tensor& index, const at::Tensor& source,
                    const at::Scalar&, const Precomputed&) {
    return self.dim() > 0 && source.dim() == self.dim() && source.scalar_type() == self.scalar_type() && Indices::has(index.scalar_type());
  }
  static void run(const at::impl::MetaBase&, const at::Tensor& self, int64_t, const at::Tensor& index, const at::Tensor& source,
                  const at::Scalar& alpha, const Precomputed& precomputed, const at::Tensor& out) {
    const at::Tensor to = out.is_contiguous() ? out : backplane::empty(out.sizes(), out.scalar_type(), out.device().index());
    if (!to.is_same(self)) to.copy_(self);
    if (source.numel() > 0 && (out.numel() > 0 || out.dim() == 1)) {  // the CPU looks at no index of an empty tensor of more dimensions
      Added::dispatch(self.scalar_type(), [&](auto zero) {
        using T = decltype(zero);
        launch_add_rows<T>(to, precomputed.dim, index, source.contiguous(), alpha.to<Sum<T>>(), kSkipNone);
      });
    }
    if (!to.is_same(out)) out.copy_(to);
  }
};

struct EmbeddingDenseBackward : backplane::HostKernel {
  using Takes = backplane::Floats;
  static bool takes(const at::Tensor& grad, const at::Tensor& index, int64_t, int64_t, bool scale_grad_by_freq) {
    return !scale_grad_by_freq && Indices::has(index.scalar_type()) && grad.dim() == index.dim() + 1 &&
           grad.sizes().slice(0, index.dim()) == index.sizes();
  }
  static at::Tensor run(const at::Tensor& grad, const at::Tensor& index, int64_t num_weights, int64_t padding_idx, bool) {
    const int64_t width = grad.size(-1);
    at::Tensor out = backplane::empty({num_weights, width}, grad.scalar_type(), grad.device().index());
    out.zero_();
    if (grad.numel() == 0) return out;
    const at::Tensor list = index.contiguous().view(-1);
    const at::Tensor source = grad.contiguous();
    Takes::dispatch(grad.scalar_type(), [&](auto zero) { launch_add_rows<decltype(zero)>(out, 0, list, source, 1, padding_idx); });
    return out;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::structured<at::meta::structured_index_add, IndexAdd>(m, {"index_add", "index_add.out", "index_add_"});
  backplane::structured<at::meta::structured_scatter_add, ScatterAdd>(m, {"scatter_add", "scatter_add.out", "scatter_add_"});
  backplane::function<EmbeddingDenseBackward>(m, "embedding_dense_backward");
}
