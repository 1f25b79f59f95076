// drivers/engine/transpose.h: the word BP_TRANSPOSE of a prelude (docs/dialect.md), for GCC and clang, of C and of OpenCL C.
#pragma once

namespace backplane::driver {

/// With BP_VECTOR, BP_FN, BP_LOCAL and BP_UNROLL of the prelude.
constexpr const char* kTransposeText = R"prelude(
#if defined BP_VECTOR && defined BP_VECTOR_BYTES /* the probe of a compiler has no target */
/* A block of rows becomes columns in as many steps as their number has bits, each of which interleaves the first half of the vectors with the
 * second. With half as many rows as a vector has elements, a vector of the result is two columns. */
#ifdef __clang__
#define BP_SHUFFLE_(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define BP_UNROLL_16_ _Pragma("clang loop unroll_count(16)")
#else
#define BP_SHUFFLE_(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#define BP_UNROLL_16_ _Pragma("GCC unroll 16")
#endif
#define BP_PAIRS_1_(i, n) (i), (i) + (n)
#define BP_PAIRS_2_(i, n) BP_PAIRS_1_(i, n), BP_PAIRS_1_((i) + 1, n)
#define BP_PAIRS_4_(i, n) BP_PAIRS_2_(i, n), BP_PAIRS_2_((i) + 2, n)
#define BP_PAIRS_8_(i, n) BP_PAIRS_4_(i, n), BP_PAIRS_4_((i) + 4, n)
#define BP_TRANSPOSE_OF_(name, U, n, PAIRS)                                                                         \
  BP_VECTOR(U, name##_vector_);                                                                                     \
  BP_FN void name##_block_(BP_LOCAL U* to, i32 step, BP_LOCAL const U* from, i32 pitch, const i32 rows) {           \
    name##_vector_ v[n], next[n];                                                                                   \
    BP_UNROLL_16_ for (i32 r = 0; r < rows; ++r) v[r] = *(BP_LOCAL const name##_vector_*)(from + r * pitch);        \
    BP_UNROLL_16_ for (i32 bit = 1; bit < rows; bit *= 2) {                                                         \
      BP_UNROLL_16_ for (i32 r = 0; r < rows / 2; ++r) {                                                            \
        next[2 * r] = BP_SHUFFLE_(name##_vector_, v[r], v[r + rows / 2], PAIRS(0, n));                              \
        next[2 * r + 1] = BP_SHUFFLE_(name##_vector_, v[r], v[r + rows / 2], PAIRS((n) / 2, n));                    \
      }                                                                                                             \
      BP_UNROLL_16_ for (i32 r = 0; r < rows; ++r) v[r] = next[r];                                                  \
    }                                                                                                               \
    BP_UNROLL_16_ for (i32 r = 0; r < rows; ++r) *(BP_LOCAL name##_vector_*)(to + r * step) = v[r];                 \
  }                                                                                                                 \
  BP_FN void name(BP_LOCAL U* to, const i32 step, BP_LOCAL const U* from, i32 pitch, const i32 rows, i32 depth) {   \
    const i32 halved = 2 * rows == (n) && step == rows;                                                             \
    const i32 in_blocks = halved ? rows : rows / (n) * (n);                                                         \
    const i32 whole = depth / (n) * (n);                                                                            \
    for (i32 k = 0; halved && k < whole; k += (n)) name##_block_(to + k * step, n, from + k, pitch, (n) / 2);       \
    for (i32 r = 0; !halved && r < in_blocks; r += (n)) {                                                           \
      for (i32 k = 0; k < whole; k += (n)) name##_block_(to + k * step + r, step, from + r * pitch + k, pitch, n);  \
    }                                                                                                               \
    for (i32 r = 0; r < rows; ++r) {                                                                                \
      for (i32 k = r < in_blocks ? whole : 0; k < depth; ++k) to[k * step + r] = from[r * pitch + k];               \
    }                                                                                                               \
  }
#if BP_VECTOR_BYTES == 64
BP_TRANSPOSE_OF_(bp_transpose_32_, u32, 16, BP_PAIRS_8_)
BP_TRANSPOSE_OF_(bp_transpose_64_, u64, 8, BP_PAIRS_4_)
#elif BP_VECTOR_BYTES == 32
BP_TRANSPOSE_OF_(bp_transpose_32_, u32, 8, BP_PAIRS_4_)
BP_TRANSPOSE_OF_(bp_transpose_64_, u64, 4, BP_PAIRS_2_)
#else
BP_TRANSPOSE_OF_(bp_transpose_32_, u32, 4, BP_PAIRS_2_)
BP_TRANSPOSE_OF_(bp_transpose_64_, u64, 2, BP_PAIRS_1_)
#endif
#define BP_TRANSPOSE(to, step, from, pitch, rows, depth)                                                             \
  (sizeof *(to) == 4 ? bp_transpose_32_((BP_LOCAL u32*)(to), step, (BP_LOCAL const u32*)(from), pitch, rows, depth)  \
                     : bp_transpose_64_((BP_LOCAL u64*)(to), step, (BP_LOCAL const u64*)(from), pitch, rows, depth))
#endif
)prelude";

}  // namespace backplane::driver
