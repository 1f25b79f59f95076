// backplane/host/vector_math.h: functions without branches for a kernel's loop, so that compilers vectorise them. float has its own, right
// to 2 units in the last place; double is the C library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace backplane {

namespace detail {
template <typename... C>
constexpr float polynomial(float x, float first, C... rest) {  // the constant term first
  if constexpr (sizeof...(rest) == 0) {
    return first;
  } else {
    return first + x * polynomial(x, rest...);
  }
}

// 2^n, exact, for n in [-126, 127].
inline float power_of_two(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }
}  // namespace detail

inline double vector_exp(double x) { return std::exp(x); }
inline float vector_exp(float x) {
  constexpr float kRound = 12582912.0f;         // 1.5 * 2^23: adding it rounds to an integer, which then is in the low bits
  const float low = x < -104.0f ? -104.0f : x;  // e^-104 rounds to 0
  const float clamped = low > 89.0f ? 89.0f : low;
  const float shifted = clamped * 1.44269504f + kRound;
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float integer = shifted - kRound;
  const float r = (clamped - integer * 0.693145752f) - integer * 1.42860677e-6f;  // ln 2 in two parts
  const float p = 1.0f + (r + r * r * detail::polynomial(r, 0.5f, 0.166665133f, 0.0416661886f, 0.00836952423f, 0.00139515898f));
  const int32_t half = n >> 1;  // in two steps, because 2^n may be beyond the floats where the result is not
  return p * detail::power_of_two(half) * detail::power_of_two(n - half);
}

inline double vector_log(double x) { return std::log(x); }
inline float vector_log(float x) {
  const bool tiny = x < 1.17549435e-38f;  // subnormal, zero or negative
  const float normal = tiny ? x * 8388608.0f : x;
  const auto bits = std::bit_cast<int32_t>(normal);
  const int32_t from_root_half = bits - 0x3f3504f3;  // so that the mantissa is in [sqrt(1/2), sqrt(2))
  const int32_t exponent = from_root_half >> 23;
  const float f = std::bit_cast<float>((from_root_half & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const float e = static_cast<float>(exponent) - (tiny ? 23.0f : 0.0f);
  const float p = detail::polynomial(f, 0.333333104f, -0.249999871f, 0.200020226f, -0.166692495f, 0.142186552f, -0.123843724f, 0.118730201f,
                                     -0.117896846f, 0.0691512544f);
  const float tail = f * f * (f * p - 0.5f) + e * 1.42860677e-6f;
  const float result = e * 0.693145752f + (f + tail);
  const float infinite = x == HUGE_VALF ? x : result;
  const float zero = x == 0.0f ? -HUGE_VALF : infinite;
  return x >= 0.0f ? zero : NAN;  // also of NaN
}

template <typename T>
T vector_sigmoid(T x) {
  return T(1) / (T(1) + vector_exp(-x));
}

inline double vector_tanh(double x) { return std::tanh(x); }
inline float vector_tanh(float x) {
  const float a = std::fabs(x);
  const float z = a * a;
  const float small = a + a * z * detail::polynomial(z, -0.333332626f, 0.133308998f, -0.0536929678f, 0.0204833156f, -0.00552863310f);
  const float large = 1.0f - 2.0f / (vector_exp(2.0f * a) + 1.0f);
  return std::copysign(a < 0.64f ? small : large, x);
}

inline double vector_erf(double x) { return std::erf(x); }
inline float vector_erf(float x) {
  const float z = x * x;
  const float small = x * detail::polynomial(z, 1.12837917f, -0.376126258f, 0.112835851f, -0.0268538118f, 0.00518832745f, -0.000801019159f,
                                             0.0000785385463f);
  const float magnitude = std::fabs(x);
  const float bounded = magnitude > 4.0f ? 4.0f : magnitude;  // erf(4) rounds to 1
  const float t = 1.0f / (1.0f + 0.5f * bounded);
  const float large = std::copysign(1.0f - vector_exp(-bounded * bounded) * detail::polynomial(t, 0.00179974553f, 0.259899575f, 0.39610807f,
                                                                                               -0.0632543287f, 0.63563507f, -0.230440738f),
                                    x);
  return magnitude < 1.0f ? small : large;
}

}  // namespace backplane
