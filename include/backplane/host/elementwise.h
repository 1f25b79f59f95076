// backplane/host/elementwise.h: the operands of an elementwise kernel by value: sizes, strides, dtypes and addresses of a TensorIterator,
// to be walked later.
//
//   backplane::elementwise<float, float, float>(iter, [](float a, float b) { return a + b; });  // output, inputs: what is computed in
//
// The function is compiled into one loop, over contiguous elements of just these types, for compilers to vectorise. Operands of other
// strides or other dtypes (the half types, type promotion, broadcasting) are brought into that form piece by piece, in cache, by code that
// all kernels share.
#pragma once

#include <ATen/TensorIterator.h>
#include <backplane/dtypes.h>
#include <backplane/kernel.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace backplane {

// What a single number becomes (the 2 in `x + 2`, a tensor of one element) where half types are computed in float: a value of the half
// type, as in most of ATen, or one of float, as where ATen multiplies and divides. `x == 0.1` is true of the half nearest to 0.1.
enum class Scalars : uint8_t { rounded, exact };

// The operands of an iterator, the outputs first. An input that is a 0-dim CPU tensor (the 2 in `x + 2`) travels by value. Copyable,
// without references to tensors: made where the kernel is launched, walked in the launched function.
class Elements {
 public:
  static constexpr int64_t kMostDims = 12;  // after ATen has merged those that can be walked as one
  static constexpr int64_t kMostOperands = 6;

  // What can be walked: no more dimensions or operands than that, and dtypes that can be converted (NumbersAndBool). A HostKernel over an
  // iterator refuses the rest.
  static bool takes(const at::TensorIteratorBase& iter) {
    if (iter.ndim() > kMostDims || iter.ntensors() > kMostOperands) return false;
    for (int i = 0; i < iter.ntensors(); ++i) {
      if (!NumbersAndBool::has(iter.dtype(i))) return false;
    }
    return true;
  }

  explicit Elements(const at::TensorIteratorBase& iter, Scalars scalars = Scalars::rounded);
  Elements(const Elements& other);
  Elements& operator=(const Elements&) = delete;

  // Calls row(addresses, byte strides, count) for every row of the innermost dimension; char* const*, const int64_t*, int64_t. The
  // elements are in their own dtypes; dtype(i) tells.
  template <typename Row>
  void each_row(const DeviceMemory& memory, const Row& row) const {
    walk_rows(
        memory,
        [](const void* context, char* const* data, const int64_t* strides, int64_t count) {
          (*static_cast<const Row*>(context))(data, strides, count);
        },
        &row);
  }

  // Calls block(context, addresses, count) for pieces that are contiguous in `types`, one type an operand, and one output. An operand of
  // another dtype is converted, inputs by way of the iterator's common dtype, as ATen does.
  using BlockFunction = void (*)(const void* context, char* const* data, int64_t count);
  void walk_blocks(const DeviceMemory& memory, const c10::ScalarType* types, BlockFunction block, const void* context) const;

  c10::ScalarType dtype(int64_t i) const { return operands_[i].dtype; }

 private:
  struct Operand {
    uint64_t address;
    c10::ScalarType dtype;
    bool by_value;
    bool exact;  // not rounded to the common dtype
    alignas(16) char value[16];
    int64_t strides[kMostDims];  // bytes, innermost first
  };
  using RowFunction = void (*)(const void* context, char* const* data, const int64_t* strides, int64_t count);

  void walk_rows(const DeviceMemory& memory, RowFunction row, const void* context) const;

  int64_t dims_;
  int64_t count_;
  c10::ScalarType common_;  // or Undefined
  int64_t sizes_[kMostDims];
  Operand operands_[kMostOperands];
};

namespace detail {

void launch_blocks(const at::TensorIteratorBase& iter, const c10::ScalarType* types, size_t count, Elements::BlockFunction block,
                   const void* function, size_t bytes, Scalars scalars);

// The loop that compilers vectorise, twice on x86: for any processor, and for those with AVX2.
#if defined(__x86_64__) && defined(__GNUC__)
#define BACKPLANE_AVX2 1
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

constexpr int64_t kVectorBlock = 32;

template <typename Function, typename Out, typename... In>
[[gnu::always_inline]] inline void vector_block(const Function& function, Out* out, const In*... in) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep  // an input may be the output itself; any other overlap ATen has refused
#endif
  for (int64_t i = 0; i < kVectorBlock; ++i) out[i] = function(backplane::load(in + i)...);
}

// out[i] = function(in[i]...), in blocks of a known size: those are vectorised at -O2 already.
template <typename Function, typename Out, typename... In>
[[gnu::always_inline]] inline void vector_loop(const Function& function, int64_t count, Out* out, const In*... in) {
  int64_t k = 0;
  for (; k + kVectorBlock <= count; k += kVectorBlock) vector_block(function, out + k, in + k...);
  for (; k < count; ++k) out[k] = function(backplane::load(in + k)...);
}

template <typename Function, typename Out, typename... In>
struct Block {
  static void run(const void* function, char* const* data, int64_t count) {
    const auto call = [&]<size_t... I>(std::index_sequence<I...>) {
      const auto& f = *static_cast<const Function*>(function);
#ifdef BACKPLANE_AVX2
      if (has_avx2()) return avx2(f, count, reinterpret_cast<Out*>(data[0]), reinterpret_cast<const In*>(data[I + 1])...);
#endif
      vector_loop(f, count, reinterpret_cast<Out*>(data[0]), reinterpret_cast<const In*>(data[I + 1])...);
    };
    call(std::index_sequence_for<In...>());
  }

 private:
#ifdef BACKPLANE_AVX2
  [[gnu::target("avx2,fma"), gnu::flatten]] static void avx2(const Function& function, int64_t count, Out* out, const In*... in) {
    vector_loop(function, count, out, in...);
  }
#endif
};

}  // namespace detail

// Queues output[i] = function(inputs[i]...) over an iterator of one output. One type for each operand, the output's first: what is computed
// in, whatever the operands' dtypes. The function captures values alone, 64 bytes at most.
template <typename Out, typename... In, typename Function>
void elementwise(const at::TensorIteratorBase& iter, const Function& function, Scalars scalars = Scalars::rounded) {
  static_assert(std::is_trivially_copyable_v<Function> && sizeof(Function) <= 64, "a kernel captures values, and never a tensor");
  static constexpr c10::ScalarType kTypes[] = {kDtypeOf<Out>, kDtypeOf<In>...};
  detail::launch_blocks(iter, kTypes, 1 + sizeof...(In), &detail::Block<Function, Out, In...>::run, &function, sizeof(Function), scalars);
}

}  // namespace backplane
