// kernels/portable/matrix/product.h: products of matrices of any strides, by kernels compiled for their dtype: matmul.bpc, matvec.bpc for
// thin ones, split.bpc for sums that several groups share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/portable/unit/unit.h"

namespace backplane::portable {

// A batch of matrices: an address in device memory, and strides in elements.
struct Matrices {
  uint64_t address = 0;
  int64_t batch = 0, row = 0, column = 0;
};

// out = alpha a b + beta self, where a is m x k and b is k x n. All have one dtype, or out has that of the sums.
struct Product {
  c10::DeviceIndex device;
  c10::ScalarType dtype;
  int64_t batches, m, n, k;
  bool keeps_sums = false;    // out is of sum_dtype(dtype)
  bool sums_batches = false;  // out is one matrix, the sum of all products
  Matrices out, a, b, self;   // self.address is 0 if there is no self
  uint64_t alpha, beta;       // as word_of() gives them, or integers
};

// The dtype of partial sums.
c10::ScalarType sum_dtype(c10::ScalarType dtype);

// 1 as a word of the compute type.
uint64_t one_of(c10::ScalarType dtype);

// Queues it on the current stream. False: nothing was done, because the kernels are not available (yet).
bool multiply(const Product& product);

// The same for complex64 matrices, by products of their parts. alpha and beta of `product` are not read; a or b may be conjugated.
bool multiply_parts(const Product& product, double alpha, double beta, bool conj_a, bool conj_b);

// Adds partial sums in memory, dense as [split][batch][row][column]: out = alpha sum(parts) + beta self.
bool add_parts(const Product& product, int64_t splits, uint64_t parts);

// Defines what a text needs for these elements: C, IDX, T, LOAD, HALVES, OUT, STORE_OUT, SCALARS.
void define_elements(Unit& unit, c10::ScalarType dtype, c10::ScalarType out, bool wide_index);

}  // namespace backplane::portable
