// inductor/kernel.h: a kernel that torch.compile or Triton wrote: its source, its arguments, its functions on the devices. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <backplane/generated.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "modules/launch.h"
#include "runtime/device.h"

namespace backplane {

class GeneratedKernel {
 public:
  // definitions: lines before everything else. files: of the dialect's library, before the text. written: bit i for tensor i. reports: it
  // reports indices out of range. Throws if there are more arguments than a kernel supports.
  GeneratedKernel(const std::string& name, std::string definitions, std::string text, const std::vector<std::string>& files,
                  uint32_t per_item, size_t tensors, size_t numbers, uint64_t written, bool reports,
                  std::vector<generated::Extent> extents);
  // Of TTIR, by that release of Triton.
  GeneratedKernel(const std::string& name, std::string ttir, std::string triton, uint32_t num_warps, uint32_t num_stages, size_t pointers,
                  size_t numbers);

  const KernelSource& source() const { return source_; }
  size_t tensors() const { return tensors_; }
  size_t numbers() const { return numbers_; }

  bool is_loaded(c10::DeviceIndex device) const {
    return functions_.at(static_cast<size_t>(device)).load(std::memory_order_acquire) != nullptr;
  }

  // Compiled, or read from the cache, and loaded, at the first call for a device. Throws why that failed.
  const Function& function(c10::DeviceIndex device) {
    const Function* function = functions_.at(static_cast<size_t>(device)).load(std::memory_order_acquire);
    return C10_LIKELY(function != nullptr) ? *function : load(device);
  }

  // tensor(i), number(i): the arguments. Queues it on the current stream of the tensors' device.
  template <typename TensorOf, typename NumberOf>
  void launch(TensorOf tensor, NumberOf number) {
    KernelArguments block;
    c10::DeviceIndex device = -1;
    for (size_t i = 0; i < tensors_; ++i) {
      const at::Tensor& one = tensor(i);
      check_device(one, i, device);
      device = one.device().index();
      const bool is_written = (source_.signature.written >> i & 1) != 0;
      block.add(reinterpret_cast<uint64_t>(is_written ? one.mutable_data_ptr() : one.const_data_ptr()));
    }
    std::array<int64_t, KernelArguments::kMost / 8> numbers;
    for (size_t i = 0; i < numbers_; ++i) numbers[i] = number(i);
    finish(device, block, numbers.data());
  }

  // As above with addresses of that device's memory, and numbers; as many as tensors() and numbers().
  void launch_at(c10::DeviceIndex device, const uint64_t* addresses, const int64_t* numbers) {
    KernelArguments block;
    for (size_t i = 0; i < tensors_; ++i) block.add(addresses[i]);
    finish(device, block, numbers);
  }

  // The same of TTIR, for a grid of programs.
  void launch_grid_at(c10::DeviceIndex device, const uint64_t* addresses, const int64_t* numbers, const std::array<int64_t, 3>& grid);
  bool is_ttir() const { return !source_.triton.empty(); }

 private:
  const Function& load(c10::DeviceIndex device);
  void check_device(const at::Tensor& tensor, size_t i, c10::DeviceIndex others) const {
    if (C10_UNLIKELY(tensor.device().type() != kDevice || (others >= 0 && others != tensor.device().index()))) refuse(tensor, i, others);
  }
  [[noreturn]] void refuse(const at::Tensor& tensor, size_t i, c10::DeviceIndex others) const;
  void check_arguments();  // their number; sets the signature
  void finish(c10::DeviceIndex device, KernelArguments& block, const int64_t* numbers);
  template <typename Launch>
  void profiled(Launch launch) const;

  KernelSource source_;
  const size_t tensors_, numbers_;
  const std::vector<generated::Extent> extents_;
  const bool reports_;
  std::array<std::atomic<const Function*>, kMaxDevices> functions_{};
};

}  // namespace backplane
