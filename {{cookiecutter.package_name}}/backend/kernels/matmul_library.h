// backend/kernels/matmul_library.h: stands for the matrix library of a chip: one function, as such libraries have it. matmul.cpp turns
// operators into calls of it. A vendor deletes the pair of files and calls its own.
#pragma once

#include <cstdint>

namespace matmul_library {

// c = alpha * op(a) * op(b) + beta * c, row-major, op(x) = x or its transpose: op(a) is m x k, op(b) is k x n, c is m x n. A leading
// dimension is the distance of two rows in elements. beta == 0 does not read c. The sizes may be zero. T is float, double, at::BFloat16 or
// at::Half; the last two are computed and summed up in float and rounded once.
template <typename T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a, int64_t lda, const T* b,
          int64_t ldb, double beta, T* c, int64_t ldc);

}  // namespace matmul_library
