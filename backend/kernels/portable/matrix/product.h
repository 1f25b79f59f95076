// kernels/portable/matrix/product.h: products of matrices of any strides, by kernels that are compiled for their dtype: matmul.bpc,
// matvec.bpc for those with a thin side, split.bpc for sums that several groups share.
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

// out = alpha a b + beta self, where a is m x k and b is k x n. All have one dtype.
struct Product {
  c10::DeviceIndex device;
  c10::ScalarType dtype;
  int64_t batches, m, n, k;
  bool sums_batches = false;  // out is one matrix, the sum of all products
  Matrices out, a, b, self;   // self.address is 0 where there is none; it is not read then
  uint64_t alpha, beta;       // as word_of() gives them, or integers
};

// The dtype that a product is summed in: of parts.
c10::ScalarType sum_dtype(c10::ScalarType dtype);

// One, as a word of the type that is computed in.
uint64_t one_of(c10::ScalarType dtype);

// Queues it on the current stream. False: nothing was done, because there are no such kernels (now).
bool multiply(const Product& product);

// The same of complex64 matrices, by products of their parts; alpha and beta of `product` are not read. The conjugates of a or b may be
// meant.
bool multiply_parts(const Product& product, double alpha, double beta, bool conj_a, bool conj_b);

// Parts of sums in memory, part[split][batch][row][column] without gaps, become out = alpha sum(parts) + beta self.
bool add_parts(const Product& product, int64_t splits, uint64_t parts);

// What a text needs that computes with these elements: C, IDX, T, LOAD, OUT, STORE_OUT, SCALARS.
void define_elements(Unit& unit, c10::ScalarType dtype, c10::ScalarType out, bool wide_index);

}  // namespace backplane::portable
