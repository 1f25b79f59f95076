// backend/kernels/matmul_library.cpp: a blocked matrix product for the processor that the simulated device computes on, one thread.
//
// b is packed, a block of kDepth x kWidth at a time, into panels of kColumns columns, which lie in the caches. a is read where it is, if
// its rows are dense; else a block of it is packed, too, and so converted, if it is float16 or bfloat16. The innermost function keeps a
// tile of c, kRows x kColumns, in registers.
#include "matmul_library.h"

#include <backplane/dtypes.h>

#include <algorithm>
#include <memory>

#include "vectors.h"

namespace matmul_library {
namespace {

constexpr int kRows = 6;         // with two vectors a row: 12 accumulators of the 16 registers
constexpr int64_t kDepth = 256;  // a panel of b is half of a 32 KiB first cache
constexpr int64_t kWidth = 512;  // a block of b is half of a 1 MiB second cache
constexpr int64_t kHeight = 96;  // of a packed block of a; a multiple of kRows
template <typename C>
constexpr int kColumns = 64 / sizeof(C);  // two vectors

// A matrix in memory: element (i, j) is at[i * row + j * column].
template <typename T>
struct Strided {
  const T* at;
  int64_t row;
  int64_t column;

  Strided from(int64_t i, int64_t j) const { return {at + i * row + j * column, row, column}; }
};

// Memory that a thread keeps from call to call; each `use` has its own.
template <typename C, int use>
C* scratch(int64_t count) {
  static thread_local std::unique_ptr<C[]> memory;
  static thread_local int64_t size = 0;
  if (count > size) {
    memory.reset(new C[count]);
    size = count;
  }
  return memory.get();
}

// c = beta * c + alpha * (kRows rows of a) * (a panel of b), a full tile. Vectors by the compilers' extension: a processor without AVX2 has
// them in halves.
template <typename C>
VECTOR_VERSIONS void multiply(int64_t depth, C alpha, const C* const* rows, int64_t step, const C* panel, C beta, C* c, int64_t ldc) {
  typedef C Vector __attribute__((vector_size(32)));
  typedef C Unaligned __attribute__((vector_size(32), aligned(sizeof(C)), may_alias));
  Vector sums[kRows][2] = {};
  for (int64_t p = 0; p < depth; ++p) {
    const auto* const b = reinterpret_cast<const Unaligned*>(panel + p * kColumns<C>);
    const Vector left = b[0];
    const Vector right = b[1];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const Vector a = rows[i][p * step] - Vector{};  // in every lane
      sums[i][0] += a * left;
      sums[i][1] += a * right;
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    auto* const to = reinterpret_cast<Unaligned*>(c + i * ldc);
    to[0] = beta == 0 ? alpha * sums[i][0] : beta * to[0] + alpha * sums[i][0];
    to[1] = beta == 0 ? alpha * sums[i][1] : beta * to[1] + alpha * sums[i][1];
  }
}

// Rows of a as tiles of kRows: row r of tile t begins at at[t * tile + r * row], its elements are `column` apart.
template <typename C>
struct Tiles {
  const C* at;
  int64_t tile;
  int64_t row;
  int64_t column;
};

// c = beta * c + alpha * a * (packed block of b).
template <typename C>
void multiply_block(int64_t height, int64_t width, int64_t depth, C alpha, Tiles<C> a, const C* panels, C beta, C* c, int64_t ldc) {
  for (int64_t j = 0; j < width; j += kColumns<C>) {
    const int64_t columns = std::min<int64_t>(kColumns<C>, width - j);
    const C* const panel = panels + j * depth;
    const C* tile = a.at;
    for (int64_t i = 0; i < height; i += kRows, tile += a.tile) {
      const int64_t count = std::min<int64_t>(kRows, height - i);
      const C* rows[kRows];
      for (int r = 0; r < kRows; ++r) rows[r] = tile + std::min<int64_t>(r, count - 1) * a.row;  // the last row again, for a full tile
      C* const to = c + i * ldc + j;
      if (count == kRows && columns == kColumns<C>) {
        multiply(depth, alpha, rows, a.column, panel, beta, to, ldc);
        continue;
      }
      C edge[kRows * kColumns<C>];
      multiply(depth, alpha, rows, a.column, panel, C(0), edge, int64_t{kColumns<C>});
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t q = 0; q < columns; ++q) {
          const C sum = edge[r * kColumns<C> + q];
          to[r * ldc + q] = beta == 0 ? sum : beta * to[r * ldc + q] + sum;
        }
      }
    }
  }
}

// Strips of `strip` neighbours, as floats or doubles: to[(s * depth + p) * strip + q] = from[(s * strip + q) * across + p * along]. Places
// past the end are zero.
template <int strip, typename C>
void pack(const C* from, int64_t across, int64_t along, int64_t width, int64_t depth, C* to) {
  for (int64_t j = 0; j < width; j += strip, to += depth * strip) {
    const int64_t count = std::min<int64_t>(strip, width - j);
    const C* const begin = from + j * across;
    if (count < strip) {
      std::fill_n(to, depth * strip, C(0));
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t q = 0; q < count; ++q) to[p * strip + q] = begin[p * along + q * across];
      }
    } else if (across == 1) {
      for (int64_t p = 0; p < depth; ++p) {
        for (int q = 0; q < strip; ++q) to[p * strip + q] = begin[p * along + q];
      }
    } else {
      for (int64_t p = 0; p < depth; ++p) {
        for (int q = 0; q < strip; ++q) to[p * strip + q] = begin[p * along + q * across];
      }
    }
  }
}

constexpr int64_t up_to_multiple(int64_t count, int64_t of) { return (count + of - 1) / of * of; }

// c = beta * c + alpha * a * b; k > 0.
template <typename C>
void product(int64_t m, int64_t n, int64_t k, C alpha, Strided<C> a, Strided<C> b, C beta, C* c, int64_t ldc) {
  C* const panels = scratch<C, 0>(std::min(k, kDepth) * up_to_multiple(std::min(n, kWidth), kColumns<C>));
  for (int64_t j = 0; j < n; j += kWidth) {
    const int64_t width = std::min(kWidth, n - j);
    for (int64_t p = 0; p < k; p += kDepth) {
      const int64_t depth = std::min(kDepth, k - p);
      pack<kColumns<C>>(b.from(p, j).at, b.column, b.row, width, depth, panels);
      for (int64_t i = 0; i < m; i += kHeight) {
        const int64_t height = std::min(kHeight, m - i);
        const Strided<C> part = a.from(i, p);
        Tiles<C> tiles{nullptr, kRows * depth, 1, kRows};
        if (a.column == 1) {
          tiles = {part.at, kRows * a.row, a.row, 1};
        } else {
          C* const packed = scratch<C, 1>(kHeight * kDepth);
          pack<kRows>(part.at, a.row, a.column, height, depth, packed);
          tiles.at = packed;
        }
        multiply_block(height, width, depth, alpha, tiles, panels, p == 0 ? beta : C(1), c + i * ldc + j, ldc);
      }
    }
  }
}

// Dot products of x with the dense rows of a.
template <typename C>
VECTOR_VERSIONS void rows_times_vector(int64_t m, int64_t k, C alpha, const C* a, int64_t row, const C* x, C beta, C* c, int64_t step) {
  for (int64_t i = 0; i < m; ++i) {
    const C* const begin = a + i * row;
    const C product = alpha * vectors::sum<C>(k, [&](int64_t p) { return begin[p] * x[p]; });
    c[i * step] = beta == 0 ? product : beta * c[i * step] + product;
  }
}

// The sum of a's dense columns, each times an element of x.
template <typename C>
VECTOR_VERSIONS void columns_times_vector(int64_t m, int64_t k, C alpha, const C* a, int64_t column, const C* x, C beta, C* c,
                                          int64_t step) {
  for (int64_t i = 0; i < m; i += vectors::kBlock) {  // rows whose sums stay in registers
    const int64_t count = std::min<int64_t>(vectors::kBlock, m - i);
    C sums[vectors::kBlock] = {};
    for (int64_t p = 0; p < k; ++p) {
      const C* const part = a + i + p * column;
      if (count == vectors::kBlock) {
        for (int r = 0; r < vectors::kBlock; ++r) sums[r] += part[r] * x[p];
      } else {
        for (int64_t r = 0; r < count; ++r) sums[r] += part[r] * x[p];
      }
    }
    for (int64_t r = 0; r < count; ++r) c[(i + r) * step] = beta == 0 ? alpha * sums[r] : beta * c[(i + r) * step] + alpha * sums[r];
  }
}

// A product whose result is one column.
template <typename C>
void times_vector(int64_t m, int64_t k, C alpha, Strided<C> a, const C* x, int64_t x_step, C beta, C* c, int64_t step) {
  if (x_step != 1) {
    C* const dense = scratch<C, 3>(k);
    for (int64_t p = 0; p < k; ++p) dense[p] = x[p * x_step];
    x = dense;
  }
  if (a.column == 1) return rows_times_vector(m, k, alpha, a.at, a.row, x, beta, c, step);
  columns_times_vector(m, k, alpha, a.at, a.column, x, beta, c, step);
}

// A float matrix of a's elements: rows that were dense stay so, and columns.
template <int use, typename T>
Strided<float> converted(Strided<T> a, int64_t rows, int64_t columns) {
  const bool by_column = a.column != 1;
  const int64_t lines = by_column ? columns : rows;
  const int64_t length = by_column ? rows : columns;
  float* const to = scratch<float, use>(lines * length);
  for (int64_t i = 0; i < lines; ++i) vectors::convert(length, a.at + i * (by_column ? a.column : a.row), to + i * length);
  return by_column ? Strided<float>{to, 1, length} : Strided<float>{to, length, 1};
}

// c = beta * c + alpha * a * b; k > 0.
template <typename C>
void any_product(int64_t m, int64_t n, int64_t k, C alpha, Strided<C> a, Strided<C> b, C beta, C* c, int64_t ldc) {
  if (n == 1) return times_vector(m, k, alpha, a, b.at, b.row, beta, c, ldc);
  if (m == 1) return times_vector(n, k, alpha, Strided<C>{b.at, b.column, b.row}, a.at, a.column, beta, c, int64_t{1});  // transposed
  product(m, n, k, alpha, a, b, beta, c, ldc);
}

}  // namespace

template <typename T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a, int64_t lda, const T* b,
          int64_t ldb, double beta, T* c, int64_t ldc) {
  using C = backplane::ComputeType<T>;
  if (m == 0 || n == 0) return;
  const Strided<T> left = transpose_a ? Strided<T>{a, 1, lda} : Strided<T>{a, lda, 1};
  const Strided<T> right = transpose_b ? Strided<T>{b, 1, ldb} : Strided<T>{b, ldb, 1};
  const C factor = static_cast<C>(alpha);
  const C keep = static_cast<C>(beta);
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? T(0) : static_cast<T>(keep * static_cast<C>(c[i * ldc + j]));
    }
  } else if constexpr (std::is_same_v<T, C>) {
    any_product(m, n, k, factor, left, right, keep, c, ldc);
  } else {
    C* const sums = scratch<C, 4>(m * n);
    for (int64_t i = 0; beta != 0 && i < m; ++i) vectors::convert(n, c + i * ldc, sums + i * n);
    any_product(m, n, k, factor, converted<5>(left, m, k), converted<6>(right, k, n), keep, sums, n);
    for (int64_t i = 0; i < m; ++i) vectors::convert(n, sums + i * n, c + i * ldc);
  }
}

template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const float*, int64_t, const float*, int64_t, double, float*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t, double, double*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const at::BFloat16*, int64_t, const at::BFloat16*, int64_t, double,
                   at::BFloat16*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const at::Half*, int64_t, const at::Half*, int64_t, double, at::Half*,
                   int64_t);

}  // namespace matmul_library
