// check_driver/points.h: numbers at which words of the dialect are tried, and how results are compared.
#pragma once

#include <cmath>
#include <limits>

#include "kernels.h"

namespace backplane::check {
namespace dialect_impl {

template <class T>
constexpr const char* type_name = nullptr;
#define TYPE(host, word) \
  template <>            \
  constexpr const char* type_name<host> = word;
TYPE(int8_t, "i8")
TYPE(int16_t, "i16")
TYPE(int32_t, "i32")
TYPE(int64_t, "i64")
TYPE(uint8_t, "u8")
TYPE(uint16_t, "u16")
TYPE(uint32_t, "u32")
TYPE(uint64_t, "u64")
TYPE(float, "f32")
TYPE(double, "f64")
#undef TYPE

template <class To, class From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To out;
  memcpy(&out, &value, sizeof out);
  return out;
}

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return format("%.9g (0x%08x)", static_cast<double>(value), bits<uint32_t>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    return format("%.17g (0x%016llx)", value, wide(bits<uint64_t>(value)));
  } else if constexpr (std::is_signed_v<T>) {
    return format("%lld", wide(value));
  } else {
    return format("%llu (0x%llx)", wide(value), wide(value));
  }
}

// ulps 0: the same bits; but any NaN for a NaN, and a zero where the result is at the edge of the subnormal numbers.
template <class T>
bool agrees(T got, T want, double ulps) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
    const T least = std::numeric_limits<T>::min();
    if (std::fabs(want) <= least && (want != 0 || ulps > 0) && std::fabs(got) <= (ulps > 0 ? least : T(0))) return true;
    if (ulps == 0 || std::isinf(want) || std::isinf(got)) return !memcmp(&got, &want, sizeof got);
    const T ulp = std::nextafter(std::max(std::fabs(want), least), std::numeric_limits<T>::infinity()) - std::max(std::fabs(want), least);
    return std::fabs(got - want) <= static_cast<T>(ulps) * ulp;
  } else {
    return got == want;
  }
}

// x, y, z of the i-th element.
template <class T>
struct Points {
  std::vector<T> x, y, z;
  uint64_t size() const { return x.size(); }
};

class Random {
 public:
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
  }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 7;
};

// Each special value with each, then random ones. Of real numbers no subnormal: a target may take it for a zero.
template <class T>
std::vector<T> special() {
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    const T whole = T(1) / Limits::epsilon();  // from here on there are no fractions
    std::vector<T> values = {0, T(0.5), 1, T(1.5), 2, T(2.5), 3, T(3.5), T(0.1), T(0.49999997), 1000, T(65504), T(1e-6), T(1e30)};
    values.insert(values.end(), {T(1) / 3, whole, whole / 2 + T(0.5), whole / 2 - T(0.5), std::nextafter(T(1), T(0))});
    values.insert(values.end(), {Limits::max(), Limits::min(), Limits::infinity()});
    for (size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
    values.push_back(Limits::quiet_NaN());
    return values;
  } else {
    using Limits = std::numeric_limits<T>;
    std::vector<T> values = {0, 1, 2, 3, 7, 31, 100, T(-1), T(-2), T(-100), T(0x55aa55aa), T(12345)};
    values.insert(values.end(), {Limits::max(), Limits::min(), T(Limits::max() / 2), T(Limits::max() - 1)});
    return values;
  }
}

template <class T>
const Points<T>& points() {
  static const Points<T> all = [] {
    Points<T> p;
    const std::vector<T> values = special<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = 0; j < values.size(); ++j) {
        p.x.push_back(values[i]);
        p.y.push_back(values[j]);
        p.z.push_back(values[(i * 5 + j * 3) % values.size()]);
      }
    }
    Random random;
    const auto any = [&] {
      if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(std::ldexp(random.between(-2, 2), static_cast<int>(random.next() % 41) - 20));
      } else {
        return static_cast<T>(random.next());
      }
    };
    for (int i = 0; i < 500; ++i) {
      p.x.push_back(any());
      p.y.push_back(any());
      p.z.push_back(any());
      // The exact rest of a product: an fma that rounds twice gives 0.
      if constexpr (std::is_floating_point_v<T>) {
        if (i % 2) p.z.back() = -(p.x.back() * p.y.back());
      }
    }
    return p;
  }();
  return all;
}

// Where functions of the C library are looked at: magnitudes that occur, ends of domains, infinity and NaN.
template <class T>
const Points<T>& library_points() {
  static const Points<T> all = [] {
    Points<T> p;
    const T infinity = std::numeric_limits<T>::infinity();
    const std::vector<T> values = {0,      T(1e-9), T(0.001), T(0.1), T(0.25), T(0.5), T(0.75), T(0.9), 1,       T(1.5),
                                   T(2.5), 3,       5,        10,     20,      50,     80,      1000,   infinity};
    std::vector<T> both = values;
    for (T value : values) both.push_back(-value);
    both.push_back(std::numeric_limits<T>::quiet_NaN());
    for (T x : both) {
      for (T y : both) {
        p.x.push_back(x);
        p.y.push_back(y);
      }
    }
    Random random;
    for (double range : {1.0, 4.0, 30.0, 100.0}) {
      for (int i = 0; i < 200; ++i) {
        p.x.push_back(static_cast<T>(random.between(-range, range)));
        p.y.push_back(static_cast<T>(random.between(-range, range)));
      }
    }
    p.z = p.x;
    return p;
  }();
  return all;
}

}  // namespace dialect_impl
}  // namespace backplane::check
