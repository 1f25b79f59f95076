// host/conversion.cpp: conversions of dtypes.
//
// Note [Conversions]: every dtype is computed in float, double or int64 (its hub). An element is converted from its dtype to its hub, to
// the other dtype's hub, and to the other dtype: a loop per step instead of one per pair of dtypes.
#include "host/conversion.h"

#include <backplane/host/elementwise.h>

#include <type_traits>

namespace backplane {
namespace conversion_impl {
namespace {

using c10::ScalarType;

template <typename To, typename From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else {
    return static_cast<To>(value);
  }
}

template <typename To, typename From>
[[gnu::always_inline]] inline void contiguous_loop(const From* from, To* to, int64_t count) {
  detail::vector_loop([](From value) { return convert_element<To>(value); }, count, to, from);
}

#ifdef BACKPLANE_AVX2
template <typename To, typename From>
[[gnu::target("avx2,fma"), gnu::flatten]] void contiguous_avx2(const From* from, To* to, int64_t count) {
  contiguous_loop(from, to, count);
}
#endif

template <typename To, typename From>
void convert_run(Run from, Run to, int64_t count) {
  if (from.stride == sizeof(From) && to.stride == sizeof(To)) {
    const auto* source = reinterpret_cast<const From*>(from.data);
    auto* target = reinterpret_cast<To*>(to.data);
#ifdef BACKPLANE_AVX2
    if constexpr (sizeof(From) > 1 && sizeof(To) > 1) {
      if (detail::has_avx2()) return contiguous_avx2(source, target, count);
    }
#endif
    return contiguous_loop(source, target, count);
  }
  for (int64_t k = 0; k < count; ++k) {
    *reinterpret_cast<To*>(to.data + k * to.stride) =
        convert_element<To>(backplane::load(reinterpret_cast<const From*>(from.data + k * from.stride)));
  }
}

// Rows of a broadcast operand are often short: for the right dtype, this is the only step.
template <typename Bits>
void move_run(Run from, Run to, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    *reinterpret_cast<Bits*>(to.data + k * to.stride) = *reinterpret_cast<const Bits*>(from.data + k * from.stride);
  }
}

void to_hub(ScalarType dtype, Run from, Run to, int64_t count) {
  NumbersAndBool::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    convert_run<ComputeType<T>, T>(from, to, count);
  });
}

void from_hub(ScalarType dtype, Run from, Run to, int64_t count) {
  NumbersAndBool::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    convert_run<T, ComputeType<T>>(from, to, count);
  });
}

// From one hub to another. A float's truth is decided before it is rounded to an integer.
void hub_to_hub(ScalarType from, ScalarType to, bool truth, const char* source, char* target, int64_t count) {
  const auto loop = [&](auto from_zero, auto to_zero) {
    using From = decltype(from_zero);
    using To = decltype(to_zero);
    const auto* a = reinterpret_cast<const From*>(source);
    auto* b = reinterpret_cast<To*>(target);
    for (int64_t k = 0; k < count; ++k) b[k] = truth ? static_cast<To>(a[k] != From(0)) : static_cast<To>(a[k]);
  };
  if (from == c10::kFloat) return to == c10::kDouble ? loop(float(), double()) : loop(float(), int64_t());
  if (from == c10::kDouble) return to == c10::kFloat ? loop(double(), float()) : loop(double(), int64_t());
  return to == c10::kFloat ? loop(int64_t(), float()) : loop(int64_t(), double());
}

}  // namespace
}  // namespace conversion_impl

c10::ScalarType compute_dtype(c10::ScalarType dtype) {
  if (dtype == c10::kDouble) return dtype;
  return c10::isFloatingType(dtype) ? c10::kFloat : c10::kLong;
}

void convert(c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count) {
  using namespace conversion_impl;
  if (from_dtype == to_dtype) {
    const int64_t size = size_of(to_dtype);
    if (size == 4) return move_run<uint32_t>(from, to, count);
    if (size == 8) return move_run<uint64_t>(from, to, count);
    return size == 2 ? move_run<uint16_t>(from, to, count) : move_run<uint8_t>(from, to, count);
  }
  const c10::ScalarType from_hub_type = compute_dtype(from_dtype);
  const c10::ScalarType to_hub_type = compute_dtype(to_dtype);
  if (from_hub_type == to_hub_type && from_dtype == from_hub_type) return from_hub(to_dtype, from, to, count);
  if (from_hub_type == to_hub_type && to_dtype == to_hub_type) return to_hub(from_dtype, from, to, count);
  alignas(64) char first[kChunk * 8];
  alignas(64) char second[kChunk * 8];
  to_hub(from_dtype, from, {first, size_of(from_hub_type)}, count);
  char* hub = first;
  if (from_hub_type != to_hub_type) {
    hub_to_hub(from_hub_type, to_hub_type, to_dtype == c10::kBool, first, second, count);
    hub = second;
  }
  from_hub(to_dtype, {hub, size_of(to_hub_type)}, to, count);
}

c10::ScalarType rounds_to(c10::ScalarType common, c10::ScalarType dtype, c10::ScalarType type) {
  const bool rounds = common != c10::ScalarType::Undefined && common != type && common != dtype && type == compute_dtype(common);
  return rounds ? common : c10::ScalarType::Undefined;
}

void convert_via(c10::ScalarType via, c10::ScalarType from_dtype, Run from, c10::ScalarType to_dtype, Run to, int64_t count) {
  if (via == c10::ScalarType::Undefined) return convert(from_dtype, from, to_dtype, to, count);
  alignas(64) char rounded[kChunk * 8];
  convert(from_dtype, from, via, {rounded, size_of(via)}, count);
  convert(via, {rounded, size_of(via)}, to_dtype, to, count);
}

}  // namespace backplane
