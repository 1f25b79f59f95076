// backplane/strided.h: the operands of an elementwise kernel by value: sizes, strides and addresses of a TensorIterator, to be walked
// later.
#pragma once

#include <ATen/TensorIterator.h>
#include <backplane/kernel.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace backplane {

namespace detail {
// Writes a 0-dim CPU tensor's value, converted to `dtype`, into 16 bytes.
void host_scalar_bytes(const at::TensorBase& scalar, c10::ScalarType dtype, void* bytes);
}  // namespace detail

// The output first, then the inputs. An input that is a 0-dim CPU tensor (the 2 in `x + 2`) travels by value. Copyable, without references
// to tensors: made where the kernel is launched, used in the launched function.
template <size_t N>
class Elements {
 public:
  explicit Elements(const at::TensorIteratorBase& iter) : sizes_(iter.shape().begin(), iter.shape().end()) {
    TORCH_INTERNAL_ASSERT(iter.ntensors() == static_cast<int>(N));
    for (size_t i = 0; i < N; ++i) {
      Operand& operand = operands_[i];
      operand.strides.assign(iter.strides(i).begin(), iter.strides(i).end());
      operand.by_value = iter.is_cpu_scalar(i);
      if (operand.by_value) {
        detail::host_scalar_bytes(iter.tensor_base(i), iter.common_dtype(), operand.value);
      } else {
        operand.address = reinterpret_cast<uint64_t>(iter.data_ptr(i));
      }
    }
  }

  // output[i] = function(inputs[i]...) for every element; one type for each operand, the output's first.
  template <typename Out, typename... In, typename Function>
  void map(const DeviceMemory& memory, const Function& function) const {
    static_assert(1 + sizeof...(In) == N, "one type an operand");
    each_row(memory, [&](const std::array<char*, N>& data, const std::array<int64_t, N>& strides, int64_t count) {
      map_row<Out, In...>(data, strides, count, function, std::make_index_sequence<sizeof...(In)>());
    });
  }

  // Calls row(addresses, byte strides, count) for every row of the innermost dimension.
  template <typename Row>
  void each_row(const DeviceMemory& memory, const Row& row) const {
    std::array<char*, N> data;
    std::array<int64_t, N> strides;
    for (size_t i = 0; i < N; ++i) {
      const Operand& operand = operands_[i];
      data[i] = operand.by_value ? const_cast<char*>(operand.value) : static_cast<char*>(memory.at(operand.address));
      strides[i] = operand.strides.empty() ? 0 : operand.strides[0];
    }
    const size_t dims = sizes_.size();
    for (const int64_t size : sizes_) {
      if (size == 0) return;
    }
    c10::SmallVector<int64_t, 6> position(dims, 0);
    const int64_t count = dims == 0 ? 1 : sizes_[0];
    while (true) {
      row(data, strides, count);
      size_t dim = 1;
      for (; dim < dims; ++dim) {  // the next row: an odometer over the outer dimensions
        const bool carries = ++position[dim] == sizes_[dim];
        for (size_t i = 0; i < N; ++i) {
          data[i] += carries ? -operands_[i].strides[dim] * (sizes_[dim] - 1) : operands_[i].strides[dim];
        }
        if (!carries) break;
        position[dim] = 0;
      }
      if (dim >= dims) return;
    }
  }

 private:
  struct Operand {
    uint64_t address = 0;
    c10::SmallVector<int64_t, 6> strides;  // bytes, innermost first
    bool by_value = false;
    alignas(16) char value[16];
  };

  // A block of known size is vectorised at -O2 already.
  template <int64_t Known, typename Out, typename Function, typename... In>
  static void dense_block(int64_t count, Out* out, const Function& function, const In*... in) {
    const int64_t n = Known > 0 ? Known : count;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep  // an input may be the output itself; any other overlap ATen has refused
#endif
    for (int64_t k = 0; k < n; ++k) out[k] = function(in[k]...);
  }

  template <typename Out, typename... In, typename Function, size_t... I>
  static void map_row(const std::array<char*, N>& data, const std::array<int64_t, N>& strides, int64_t count, const Function& function,
                      std::index_sequence<I...>) {
    if (strides[0] == sizeof(Out) && ((strides[I + 1] == sizeof(In)) && ...)) {  // the loop that compilers vectorise
      constexpr int64_t kBlock = 32;
      int64_t k = 0;
      for (; k + kBlock <= count; k += kBlock) {
        dense_block<kBlock>(kBlock, reinterpret_cast<Out*>(data[0]) + k, function, reinterpret_cast<const In*>(data[I + 1]) + k...);
      }
      dense_block<0>(count - k, reinterpret_cast<Out*>(data[0]) + k, function, reinterpret_cast<const In*>(data[I + 1]) + k...);
      return;
    }
    for (int64_t k = 0; k < count; ++k) {
      *reinterpret_cast<Out*>(data[0] + k * strides[0]) = function(*reinterpret_cast<const In*>(data[I + 1] + k * strides[I + 1])...);
    }
  }

  c10::SmallVector<int64_t, 6> sizes_;  // innermost first
  std::array<Operand, N> operands_;
};

}  // namespace backplane
