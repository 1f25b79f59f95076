// backplane/kernel.h: what the author of a kernel needs: the current stream, device pointers, and launch().
//
// A kernel is queued on the current stream and runs later, perhaps on another thread: it captures by value what it needs (addresses, sizes,
// scalars) and never a tensor. It needs no reference to the memory: the allocator is stream-ordered, so a block that is freed after the
// launch is not reused before the kernel has run.
//
// There are two ways to queue work. A vendor's own: call the vendor's API with native_stream(device) and the tensors' addresses. Or
// launch(), which runs a C++ function on the device's behalf, for drivers that offer "bp.host_exec" (can_launch() tells).
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

struct bp_stream;

namespace backplane {

// The calling thread's current stream of a device; its driver handle (NULL: the default stream); the vendor's own stream object.
c10::Stream current_stream(c10::DeviceIndex device);
bp_stream* current_stream_handle(c10::DeviceIndex device);
uint64_t native_stream(c10::DeviceIndex device);

// An address in device memory. Arithmetic is in elements; only a launched function can turn it into a pointer.
template <typename T>
struct DevicePtr {
  uint64_t address = 0;
  DevicePtr operator+(int64_t elements) const { return {address + static_cast<uint64_t>(elements) * sizeof(T)}; }
};

namespace detail {
[[noreturn]] void throw_not_allocated(const at::TensorBase& tensor);
}  // namespace detail

// Throws for a tensor that has elements and no memory for them (`x.untyped_storage().resize_(0)`). Registered kernels (structured.h) and
// the functions below ask it of every tensor; a kernel that takes an address in another way asks first, for on a device nobody else does.
inline void check_allocated(const at::TensorBase& tensor) {
  if (C10_UNLIKELY(!tensor.unsafeGetTensorImpl()->storage_initialized())) detail::throw_not_allocated(tensor);
}

// The address of a tensor's first element: to be written, or to be read only.
template <typename T>
DevicePtr<T> device_ptr(const at::TensorBase& tensor) {
  check_allocated(tensor);
  return {reinterpret_cast<uint64_t>(tensor.mutable_data_ptr())};
}
template <typename T>
DevicePtr<const T> const_device_ptr(const at::TensorBase& tensor) {
  check_allocated(tensor);
  return {reinterpret_cast<uint64_t>(tensor.const_data_ptr())};
}

// Device memory as a launched function reaches it.
class DeviceMemory {
 public:
  explicit DeviceMemory(c10::DeviceIndex device) : device_(device) {}

  // Valid while the function runs. NULL stays NULL (tensors without elements). Throws for an address that is not the device's.
  void* at(uint64_t address) const;

  template <typename T>
  T* operator()(DevicePtr<T> pointer) const {
    return static_cast<T*>(at(pointer.address));
  }

 private:
  c10::DeviceIndex device_;
};

// Whether this driver runs host functions. Where it does not, kernels written with launch() leave their operators to the fallback.
bool can_launch();

namespace detail {
void enqueue(c10::DeviceIndex device, int32_t (*run)(void*), void* task, void (*destroy)(void*));
int32_t report_exception() noexcept;  // within a catch block: logs it, and gives the status that makes the device fault
}  // namespace detail

// Queues function(memory) on the current stream of `device`. The function may run more than once (a replay), so it leaves its captures as
// they are. An exception in it is a fault of the device. <PREFIX>_LAUNCH_BLOCKING=1 waits for every launch.
template <typename Function>
void launch(c10::DeviceIndex device, Function&& function) {
  struct Task {
    DeviceMemory memory;
    std::decay_t<Function> function;
  };
  auto* task = new Task{DeviceMemory(device), std::forward<Function>(function)};
  detail::enqueue(
      device,
      [](void* arg) -> int32_t {
        try {
          auto* self = static_cast<Task*>(arg);
          std::as_const(self->function)(self->memory);
          return 0;
        } catch (...) {
          return detail::report_exception();
        }
      },
      task, [](void* arg) { delete static_cast<Task*>(arg); });
}

// Counts the calls of a kernel, so that a test can tell that the kernel ran and not the fallback. One static object a kernel.
class KernelCounter {
 public:
  explicit KernelCounter(const char* name);  // "add.Tensor"; a string that lives on
  void count() { calls_.fetch_add(1, std::memory_order_relaxed); }
  const char* name() const { return name_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  const char* name_;
  std::atomic<uint64_t> calls_{0};
};

// Calls since the start, all forms of the operator together. Throws for a name that no kernel has.
uint64_t kernel_calls(const std::string& name);

}  // namespace backplane
