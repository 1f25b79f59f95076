// backplane/host/reduce.h: reductions of a tensor over some of its dimensions, of any strides and dtypes.
//
//   template <typename T>
//   struct Largest {
//     using Element = T;                    // what is computed in: an element of another dtype is converted
//     using Accumulator = T;
//     static constexpr T kIdentity = -std::numeric_limits<T>::infinity();
//     template <typename A> static A combine(A a, A b) { return a > b ? a : b; }   // associative, commutative
//     static T finish(T result, int64_t count) { return result; }                  // count: elements that were reduced
//   };
//   backplane::reduce<Largest<float>>(self, dims, keepdim, out);
//
// Elements are combined as Element in lanes that compilers vectorise, a few hundred at a time, and then as Accumulator: a float sum with an
// accumulator of double has no more error than pairwise summation.
#pragma once

#include <ATen/core/Tensor.h>
#include <backplane/dtypes.h>
#include <backplane/host/elementwise.h>

#include <cstddef>
#include <cstdint>

namespace backplane {

// Whether a reduction walks this tensor: no more dimensions than Elements, and a dtype that can be converted.
inline bool is_reducible(const at::Tensor& self) { return self.dim() <= Elements::kMostDims && NumbersAndBool::has(self.scalar_type()); }

namespace detail {

// One reduction by functions over contiguous elements; `index` is their place in the order of the reduced dimensions.
struct Reduction {
  c10::ScalarType element;
  c10::ScalarType result;
  size_t accumulator_bytes;  // at most 16
  bool in_order;             // the reduced dimensions, for what depends on the index
  void (*begin)(void* accumulators, int64_t count);
  void (*row)(void* accumulator, const void* elements, int64_t count, int64_t index);       // all into one
  void (*columns)(void* accumulators, const void* elements, int64_t count, int64_t index);  // each into its own; index is that of all
  void (*finish)(const void* accumulators, void* results, int64_t count, int64_t reduced);
};

// `reduction` lives on. An element goes by way of `common` to what is computed in.
void launch_reduction(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, c10::ScalarType common, const at::Tensor& out,
                      const Reduction& reduction);

template <typename Op>
struct Reducer {
  using T = typename Op::Element;
  using A = typename Op::Accumulator;

  static void begin(void* accumulators, int64_t count) {
    auto* a = static_cast<A*>(accumulators);
    for (int64_t i = 0; i < count; ++i) a[i] = Op::kIdentity;
  }

  // As many independent lanes as it takes to hide the latency of an addition, then all of them together.
  template <int64_t kLanes>
  [[gnu::always_inline]] static inline int64_t row_lanes(A* accumulator, const T* x, int64_t count) {
    if (count < kLanes) return 0;
    T lanes[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] = backplane::load(x + i);
    int64_t k = kLanes;
    for (; k + kLanes <= count; k += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] = Op::combine(lanes[i], backplane::load(x + k + i));
    }
    for (int64_t j = 16; j < kLanes; j += 16) {
      for (int64_t i = 0; i < 16; ++i) lanes[i] = Op::combine(lanes[i], lanes[j + i]);
    }
    for (int64_t half = 8; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) lanes[i] = Op::combine(lanes[i], lanes[i + half]);
    }
    *accumulator = Op::combine(*accumulator, static_cast<A>(lanes[0]));
    return k;
  }

  [[gnu::always_inline]] static inline void row_loop(A* accumulator, const T* x, int64_t count) {
    int64_t k = row_lanes<128>(accumulator, x, count);
    k += row_lanes<16>(accumulator, x + k, count - k);
    for (; k < count; ++k) *accumulator = Op::combine(*accumulator, static_cast<A>(backplane::load(x + k)));
  }

  [[gnu::always_inline]] static inline void column_loop(A* a, const T* x, int64_t count) {
    vector_loop([](A total, T value) { return Op::combine(total, static_cast<A>(value)); }, count, a, static_cast<const A*>(a), x);
  }

#ifdef BACKPLANE_AVX2
  [[gnu::target("avx2,fma"), gnu::flatten]] static void row_avx2(A* a, const T* x, int64_t count) { row_loop(a, x, count); }
  [[gnu::target("avx2,fma"), gnu::flatten]] static void columns_avx2(A* a, const T* x, int64_t count) { column_loop(a, x, count); }
#endif

  static void row(void* accumulator, const void* elements, int64_t count, int64_t) {
#ifdef BACKPLANE_AVX2
    if (has_avx2()) return row_avx2(static_cast<A*>(accumulator), static_cast<const T*>(elements), count);
#endif
    row_loop(static_cast<A*>(accumulator), static_cast<const T*>(elements), count);
  }

  static void columns(void* accumulators, const void* elements, int64_t count, int64_t) {
#ifdef BACKPLANE_AVX2
    if (has_avx2()) return columns_avx2(static_cast<A*>(accumulators), static_cast<const T*>(elements), count);
#endif
    column_loop(static_cast<A*>(accumulators), static_cast<const T*>(elements), count);
  }

  static void finish(const void* accumulators, void* results, int64_t count, int64_t reduced) {
    const auto* a = static_cast<const A*>(accumulators);
    for (int64_t i = 0; i < count; ++i) static_cast<T*>(results)[i] = Op::finish(a[i], reduced);
  }

  static constexpr Reduction kReduction{kDtypeOf<T>, kDtypeOf<T>, sizeof(A), false, begin, row, columns, finish};
};

// Better(a, b): a strict order in which a NaN is before all else.
template <typename T, typename Better>
struct ArgReducer {
  struct Best {
    T value;
    int64_t index;  // -1: none yet
  };

  static void begin(void* accumulators, int64_t count) {
    for (int64_t i = 0; i < count; ++i) static_cast<Best*>(accumulators)[i] = {T(), -1};
  }
  static void row(void* accumulator, const void* elements, int64_t count, int64_t index) {
    const auto* x = static_cast<const T*>(elements);
    Best best = *static_cast<Best*>(accumulator);
    for (int64_t i = 0; i < count; ++i) {
      if (best.index < 0 || Better()(x[i], best.value)) best = {x[i], index + i};
    }
    *static_cast<Best*>(accumulator) = best;
  }
  static void columns(void* accumulators, const void* elements, int64_t count, int64_t index) {
    for (int64_t i = 0; i < count; ++i) {
      Best& best = static_cast<Best*>(accumulators)[i];
      const T value = static_cast<const T*>(elements)[i];
      if (best.index < 0 || Better()(value, best.value)) best = {value, index};
    }
  }
  static void finish(const void* accumulators, void* results, int64_t count, int64_t) {
    for (int64_t i = 0; i < count; ++i) static_cast<int64_t*>(results)[i] = static_cast<const Best*>(accumulators)[i].index;
  }

  static constexpr Reduction kReduction{kDtypeOf<T>, c10::kLong, sizeof(Best), true, begin, row, columns, finish};
};

}  // namespace detail

// Queues out = the reduction of self over dims (none: all). `out` has the sizes that keepdim asks for, any strides, and a convertible
// dtype. Elements are converted by way of out's dtype.
template <typename Op>
void reduce(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, const at::Tensor& out) {
  detail::launch_reduction(self, dims, keepdim, out.scalar_type(), out, detail::Reducer<Op>::kReduction);
}

// Queues out = the index, in row-major order over dims, of the first element that no other is better than. Not over no elements.
template <typename T, typename Better>
void arg_reduce(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, const at::Tensor& out) {
  detail::launch_reduction(self, dims, keepdim, self.scalar_type(), out, detail::ArgReducer<T, Better>::kReduction);
}

}  // namespace backplane
