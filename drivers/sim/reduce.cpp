// drivers/sim/reduce.cpp: one loop for each dtype and op, over blocks that stay in the cache.
#include "reduce.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace backplane::driver::sim {
namespace {

constexpr uint64_t kIntegers = BP_DTYPE_INT8 | BP_DTYPE_UINT8 | BP_DTYPE_INT16 | BP_DTYPE_INT32 | BP_DTYPE_INT64 | BP_DTYPE_BOOL;
constexpr uint64_t kReals = BP_DTYPE_FLOAT16 | BP_DTYPE_BFLOAT16 | BP_DTYPE_FLOAT32 | BP_DTYPE_FLOAT64;
constexpr uint64_t kComplex = BP_DTYPE_COMPLEX64 | BP_DTYPE_COMPLEX128;

float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -small : small;
  }
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/// To the nearest, ties to even.
uint16_t half_of_float(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // what rounds to 65536, and more
  if (magnitude < 0x38800000) {                                              // below the smallest normal: a multiple of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(float_of(magnitude) * 0x1p24f)));
  }
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

uint16_t bfloat_of_float(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// How a dtype lies in memory, and what it is added in.

template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static T load(T stored) { return stored; }
  static T store(T value) { return value; }
};
struct Bool {
  using Stored = uint8_t;
  using Value = bool;
  static bool load(uint8_t stored) { return stored != 0; }
  static uint8_t store(bool value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t stored) { return float_of_half(stored); }
  static uint16_t store(float value) { return half_of_float(value); }
};
struct Bfloat {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t stored) { return float_of(static_cast<uint32_t>(stored) << 16); }
  static uint16_t store(float value) { return bfloat_of_float(value); }
};

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <class T>
constexpr bool takes(int32_t op) {
  if (op == BP_REDUCE_SUM || op == BP_REDUCE_PRODUCT) return true;
  if (op == BP_REDUCE_AVG) return !std::is_integral_v<T>;
  if (op == BP_REDUCE_MIN || op == BP_REDUCE_MAX) return !IsComplex<T>::value;
  return std::is_integral_v<T>;
}

/// A NaN wins.
template <int32_t Op, class T>
T combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    constexpr bool either = Op == BP_REDUCE_SUM || Op == BP_REDUCE_MAX || Op == BP_REDUCE_BOR;
    return Op == BP_REDUCE_BXOR ? a != b : either ? a || b : a && b;
  } else if constexpr (std::is_integral_v<T> && (Op == BP_REDUCE_SUM || Op == BP_REDUCE_PRODUCT)) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);  // wraps
    return static_cast<T>(Op == BP_REDUCE_SUM ? x + y : x * y);
  } else if constexpr (Op == BP_REDUCE_SUM || Op == BP_REDUCE_AVG) {
    return a + b;
  } else if constexpr (Op == BP_REDUCE_PRODUCT) {
    return a * b;
  } else if constexpr (Op == BP_REDUCE_MIN) {
    return b < a || b != b ? b : a;
  } else if constexpr (Op == BP_REDUCE_MAX) {
    return a < b || b != b ? b : a;
  } else if constexpr (Op == BP_REDUCE_BAND) {
    return static_cast<T>(a & b);
  } else if constexpr (Op == BP_REDUCE_BOR) {
    return static_cast<T>(a | b);
  } else {
    return static_cast<T>(a ^ b);
  }
}

template <class Dtype, int32_t Op>
void reduce_as(void* out, const std::vector<const char*>& in, uint64_t count) {
  using Stored = typename Dtype::Stored;
  using Value = typename Dtype::Value;
  constexpr uint64_t kBlock = 512;
  Value sum[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t here = std::min(kBlock, count - at);
    const auto part = [&](const char* from) { return reinterpret_cast<const Stored*>(from) + at; };
    for (uint64_t i = 0; i < here; ++i) sum[i] = Dtype::load(part(in[0])[i]);
    for (size_t rank = 1; rank < in.size(); ++rank) {
      for (uint64_t i = 0; i < here; ++i) sum[i] = combine<Op>(sum[i], static_cast<Value>(Dtype::load(part(in[rank])[i])));
    }
    if constexpr (Op == BP_REDUCE_AVG) {
      for (uint64_t i = 0; i < here; ++i) sum[i] /= static_cast<float>(in.size());
    }
    for (uint64_t i = 0; i < here; ++i) static_cast<Stored*>(out)[at + i] = Dtype::store(sum[i]);
  }
}

using Loop = void (*)(void*, const std::vector<const char*>&, uint64_t);

template <class Dtype, int32_t Op>
constexpr Loop loop_of() {
  if constexpr (takes<typename Dtype::Value>(Op)) {
    return reduce_as<Dtype, Op>;
  } else {
    return nullptr;
  }
}
template <class Dtype>
constexpr std::array<Loop, BP_REDUCE_COUNT> loops_of() {
  return {loop_of<Dtype, 0>(), loop_of<Dtype, 1>(), loop_of<Dtype, 2>(), loop_of<Dtype, 3>(),
          loop_of<Dtype, 4>(), loop_of<Dtype, 5>(), loop_of<Dtype, 6>(), loop_of<Dtype, 7>()};
}

/// In the order of BP_DTYPE_*, as far as any is reduced.
constexpr std::array<Loop, BP_REDUCE_COUNT> kLoops[] = {loops_of<Plain<int8_t>>(),
                                                        loops_of<Plain<uint8_t>>(),
                                                        loops_of<Plain<int16_t>>(),
                                                        loops_of<Plain<int32_t>>(),
                                                        loops_of<Plain<int64_t>>(),
                                                        loops_of<Bool>(),
                                                        loops_of<Half>(),
                                                        loops_of<Bfloat>(),
                                                        loops_of<Plain<float>>(),
                                                        loops_of<Plain<double>>(),
                                                        loops_of<Plain<std::complex<float>>>(),
                                                        loops_of<Plain<std::complex<double>>>()};

size_t number_of(uint64_t dtype) { return static_cast<size_t>(__builtin_ctzll(dtype)); }

}  // namespace

uint64_t bytes_of_dtype(uint64_t dtype) {
  static constexpr uint8_t bytes[] = {1, 1, 2, 4, 8, 1, 2, 2, 4, 8, 8, 16, 1, 1};
  if (dtype == 0 || (dtype & (dtype - 1)) != 0 || number_of(dtype) >= std::size(bytes)) return 0;
  return bytes[number_of(dtype)];
}

const std::array<uint64_t, BP_REDUCE_COUNT>& reduced_dtypes() {
  static constexpr std::array<uint64_t, BP_REDUCE_COUNT> all = [] {
    std::array<uint64_t, BP_REDUCE_COUNT> masks{};
    masks[BP_REDUCE_SUM] = masks[BP_REDUCE_PRODUCT] = kIntegers | kReals | kComplex;
    masks[BP_REDUCE_AVG] = kReals | kComplex;
    masks[BP_REDUCE_MIN] = masks[BP_REDUCE_MAX] = kIntegers | kReals;
    masks[BP_REDUCE_BAND] = masks[BP_REDUCE_BOR] = masks[BP_REDUCE_BXOR] = kIntegers;
    return masks;
  }();
  return all;
}

void reduce(int32_t op, uint64_t dtype, void* out, const std::vector<const char*>& in, uint64_t count) {
  kLoops[number_of(dtype)][static_cast<size_t>(op)](out, in, count);
}

}  // namespace backplane::driver::sim
