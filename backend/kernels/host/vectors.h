// kernels/host/vectors.h: how these kernels use the vector unit of the processor that the simulated device computes on: plain loops over
// blocks of a fixed size, which compilers vectorise, and functions of one element that they can vectorise.
//
// A kernel for a real chip has its own ways; this header, and what includes it, is the simulated device's only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// Before a function whose loops are worth it: compiled for the baseline and for AVX2, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTOR_VERSIONS [[gnu::target_clones("arch=x86-64-v3", "default"), gnu::flatten]]
#else
#define VECTOR_VERSIONS
#endif
#define VECTOR_INLINE [[gnu::always_inline]] inline

namespace vectors {

constexpr int kBlock = 32;  // elements

// function(i) for all i.
template <typename Function>
VECTOR_INLINE void each(int64_t count, const Function& function) {
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
#pragma GCC ivdep
    for (int k = 0; k < kBlock; ++k) function(i + k);
  }
  for (; i < count; ++i) function(i);
}

template <typename To, typename From>
VECTOR_VERSIONS void convert(int64_t count, const From* from, To* to) {
  each(count, [=](int64_t i) { to[i] = static_cast<To>(from[i]); });
}

// The sum of function(i) for begin <= i < end, in kBlock partial sums.
template <typename C, typename Function>
VECTOR_INLINE C sum_of_piece(int64_t begin, int64_t end, const Function& function) {
  C sums[kBlock] = {};
  int64_t i = begin;
  for (; i + kBlock <= end; i += kBlock) {
#pragma GCC ivdep
    for (int k = 0; k < kBlock; ++k) sums[k] += function(i + k);
  }
  for (int k = 0; i < end; ++i, ++k) sums[k] += function(i);
  for (int k = 0; k < 16; ++k) sums[k] += sums[k + 16];
  for (int k = 0; k < 8; ++k) sums[k] += sums[k + 8];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

// The sum of function(i) over all i, called once for each; pieces are added in double, so that the error does not grow with their number.
template <typename C, typename Function>
VECTOR_INLINE C sum(int64_t count, const Function& function) {
  constexpr int64_t kPiece = 2048;
  if (count <= kPiece) return sum_of_piece<C>(0, count, function);
  double total = 0;
  for (int64_t i = 0; i < count; i += kPiece) total += sum_of_piece<C>(i, i + kPiece < count ? i + kPiece : count, function);
  return static_cast<C>(total);
}

// The largest x[i]; -infinity for none. NaNs are passed over.
template <typename C>
VECTOR_INLINE C max(int64_t count, const C* x) {
  C largest[kBlock];
  for (C& value : largest) value = -std::numeric_limits<C>::infinity();
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) largest[k] = x[i + k] > largest[k] ? x[i + k] : largest[k];
  }
  for (int k = 0; i < count; ++i, ++k) largest[k] = x[i] > largest[k] ? x[i] : largest[k];
  for (int k = 0; k < 16; ++k) largest[k] = largest[k] > largest[k + 16] ? largest[k] : largest[k + 16];
  for (int k = 0; k < 8; ++k) largest[k] = largest[k] > largest[k + 8] ? largest[k] : largest[k + 8];
  C result = largest[0];
  for (int k = 1; k < 8; ++k) result = largest[k] > result ? largest[k] : result;
  return result;
}

// exp(x) for x <= 0, within 2 units in the last place; 0 below -87. Two comparisons of floats would keep
// compilers from vectorising it.
VECTOR_INLINE float exp_of_negative(float x) {
  const float limited = x < -87.0f ? -87.0f : x;
  const float shifted = limited * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the integer nearest to x / ln 2 is in the low bits
  const float n = shifted - 12582912.0f;
  const float r = (limited - n * 0.693359375f) + n * 2.12194440e-4f;  // |r| <= ln 2 / 2
  float p = 1.9875691500e-4f;                                         // the polynomial of Cephes' expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = std::bit_cast<int32_t>(p) + (std::bit_cast<int32_t>(shifted) << 23);
  // As an unsigned integer -87 is 0xC2AE0000, and smaller numbers are larger. A NaN stays one.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) > 0xC2AE0000u ? 0 : bits) + limited * 0.0f;
}
VECTOR_INLINE double exp_of_negative(double x) { return std::exp(x); }

}  // namespace vectors
