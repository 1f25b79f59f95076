// backplane/dtypes.h: the dtypes that a kernel declares to support, and the C++ type of a dtype.
//
//   using Takes = backplane::Floats;                        // a kernel's declared list; other dtypes use the fallback
//   Takes::dispatch(dtype, [&](auto zero) {                 // once for each dtype: T is float, double, at::BFloat16 or at::Half
//     using T = decltype(zero);
//   });
//   Takes::dispatch_compute(dtype, [&](auto zero) { ... });  // once for each type to compute in: T is float or double
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <type_traits>

namespace backplane {

// The type in which a kernel computes T: float for the half types, 64 bits for all integers and bool (wrapped to T when stored, which gives
// the results of T's own arithmetic), else T itself.
template <typename T>
using ComputeType = std::conditional_t<std::is_integral_v<T>, int64_t,
                                       std::conditional_t<std::is_same_v<T, at::Half> || std::is_same_v<T, at::BFloat16>, float, T>>;

// An element as a value. The bytes of a bool tensor may have any value (a view of uint8, for example): all but 0 are true, as on the CPU. A
// kernel that reads a bool from memory itself must use this.
template <typename T>
[[gnu::always_inline]] inline T load(const T* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const uint8_t*>(from) != 0;
  } else {
    return *from;
  }
}

template <typename T>
inline constexpr c10::ScalarType kDtypeOf = c10::CppTypeToScalarType<T>::value;

template <typename... T>
struct Dtypes {
  static constexpr c10::ScalarType kAll[] = {kDtypeOf<T>...};

  static constexpr bool has(c10::ScalarType dtype) { return ((dtype == kDtypeOf<T>) || ...); }

  // Calls function(T()) for the type of `dtype`, which must be in the list.
  template <typename Function>
  static void dispatch(c10::ScalarType dtype, const Function& function) {
    const bool found = ((dtype == kDtypeOf<T> && (function(T()), true)) || ...);
    TORCH_INTERNAL_ASSERT(found, "a kernel was called for ", dtype, ", which it does not support");
  }

  // Calls function(ComputeType<T>()): one instantiation for all dtypes that share a type of computation.
  template <typename Function>
  static void dispatch_compute(c10::ScalarType dtype, const Function& function) {
    const bool found = call<float>(dtype, function) || call<double>(dtype, function) || call<int64_t>(dtype, function);
    TORCH_INTERNAL_ASSERT(found, "a kernel was called for ", dtype, ", which it does not support");
  }

 private:
  template <typename In, typename Function>
  static bool call(c10::ScalarType dtype, const Function& function) {
    if constexpr ((std::is_same_v<ComputeType<T>, In> || ...)) {
      if (((dtype == kDtypeOf<T> && std::is_same_v<ComputeType<T>, In>) || ...)) {
        function(In());
        return true;
      }
    }
    return false;
  }
};

using Floats = Dtypes<float, double, at::BFloat16, at::Half>;
using Integers = Dtypes<int64_t, int32_t, int16_t, int8_t, uint8_t>;
using Numbers = Dtypes<float, double, at::BFloat16, at::Half, int64_t, int32_t, int16_t, int8_t, uint8_t>;
using NumbersAndBool = Dtypes<float, double, at::BFloat16, at::Half, int64_t, int32_t, int16_t, int8_t, uint8_t, bool>;

}  // namespace backplane
