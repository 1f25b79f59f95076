// backplane/kernel.h: what every kernel requires: the current stream, device pointers, and launch(). Kernels of ATen's operators start with
// structured.h, which includes this; kernels of a vendor's own operators with library.h.
//
// A kernel is queued on the current stream and runs later, perhaps on another thread: it captures by value what it needs (addresses, sizes,
// scalars) and never a tensor. It needs no reference to the memory: the allocator is stream-ordered, so a block that is freed after the
// launch is not reused before the kernel has run.
//
// There are two ways to queue work. With the vendor's API: call it with the stream of a NativeLaunch and the tensors' addresses. Or with
// launch(), which runs a C++ function as device work, for drivers that offer "bp.host_exec": such a kernel derives from HostKernel.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

struct bp_stream;
namespace at {
struct TensorIteratorBase;
}

namespace backplane {

// The calling thread's current stream of a device; its driver handle (NULL: the default stream); the vendor's own stream object.
c10::Stream current_stream(c10::DeviceIndex device);
bp_stream* current_stream_handle(c10::DeviceIndex device);
uint64_t native_stream(c10::DeviceIndex device);

// An address in device memory. Arithmetic is in elements; only a launched function can convert it to a pointer.
template <typename T>
struct DevicePtr {
  uint64_t address = 0;
  DevicePtr operator+(int64_t elements) const { return {address + static_cast<uint64_t>(elements) * sizeof(T)}; }
};

namespace detail {
[[noreturn]] void throw_not_allocated(const at::TensorBase& tensor);
}  // namespace detail

// Throws for a tensor that has elements and no memory for them (`x.untyped_storage().resize_(0)`). Registered kernels (structured.h) and
// the functions below check every tensor; a kernel that obtains an address in another way must check first, because nothing else does on a
// device.
C10_ALWAYS_INLINE void check_allocated(const at::TensorBase& tensor) {
  if (C10_UNLIKELY(!tensor.unsafeGetTensorImpl()->storage_initialized())) detail::throw_not_allocated(tensor);
}

// The address of a tensor's first element: to write, or only to read.
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

// Converts addresses to pointers within a launched function.
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

// Whether this driver runs host functions.
bool can_launch();

// Base of the kernels of structured() and function() (structured.h) that queue host functions: with launch() or elementwise(). If the
// driver does not run host functions, the next default kernel computes the operators. Every other kernel requires only what it declares
// itself.
struct HostKernel {
  static constexpr const char* kNeeds = "host functions (bp.host_exec)";
  static bool can_run() { return can_launch(); }
  static bool can_walk(const at::TensorIteratorBase& iter);  // Elements::takes (host/elementwise.h)
};

namespace detail {
void enqueue(c10::DeviceIndex device, int32_t (*run)(void*), void* task, void (*destroy)(void*));
int32_t report_exception() noexcept;  // within a catch block: logs the exception, and returns the status that makes the device fault

// Whether this thread runs or destroys a launched function: the driver may not be called there, nor waited for.
bool& in_host_function() noexcept;
struct HostFunctionScope {
  HostFunctionScope() : before(std::exchange(in_host_function(), true)) {}
  ~HostFunctionScope() { in_host_function() = before; }
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
  bool before;
};
}  // namespace detail

// Whether the device's current stream (-1: the current device's) records queued work into a graph instead of running it: a kernel that
// otherwise waits for its own work must not.
bool is_capturing(c10::DeviceIndex device = -1);

// Queues function(memory) on the current stream of `device`. The function may run more than once (a replay), so it must not modify its
// captures. An exception in it is a fault of the device. <PREFIX>_LAUNCH_BLOCKING=1 waits for every launch.
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
        const detail::HostFunctionScope scope;
        try {
          auto* self = static_cast<Task*>(arg);
          std::as_const(self->function)(self->memory);
          return 0;
        } catch (...) {
          return detail::report_exception();
        }
      },
      task,
      [](void* arg) {
        const detail::HostFunctionScope scope;
        delete static_cast<Task*>(arg);
      });
}

// The scope in which a kernel calls the vendor's API to queue its own work.
//
//   backplane::NativeLaunch launch(out.device().index(), "acme_add");
//   acme_add(launch.stream(), self.const_data_ptr(), other.const_data_ptr(), out.mutable_data_ptr(), out.numel());
//
// While it lives the stream's device is the thread's current one, and has been reported to the driver (set_current). Through it
// <PREFIX>_LAUNCH_BLOCKING, the watchdog, the fault shim and the stream sanitizer see work that does not pass through the driver. Its
// destructor throws the error of LAUNCH_BLOCKING's wait, unless an exception is already in flight. One thread; it costs at most two calls
// of the driver.
class NativeLaunch {
 public:
  // `name` must live as long as the object. With an index: on the device's current stream.
  NativeLaunch(const c10::Stream& stream, const char* name);
  NativeLaunch(c10::DeviceIndex device, const char* name) : NativeLaunch(current_stream(device), name) {}
  ~NativeLaunch() noexcept(false);
  NativeLaunch(const NativeLaunch&) = delete;
  NativeLaunch& operator=(const NativeLaunch&) = delete;

  // The vendor's own stream object: the result of the driver's stream_native, else the driver's handle (0: the default stream).
  uint64_t stream() const { return native_; }

 private:
  const c10::Stream stream_;
  const char* const name_;
  const int exceptions_;
  const c10::DeviceIndex previous_;
  uint64_t native_ = 0;
};

// For a kernel that calls its own driver: the driver's number of a device as PyTorch numbers it (<PREFIX>_VISIBLE_DEVICES), and an optional
// group of the opened driver, including the vendor's own; NULL if the driver, or a shim above it, does not offer the group, or offers a
// smaller one. Throw if the device or the driver is not available.
int32_t driver_index(c10::DeviceIndex device);
const void* driver_group(const char* id, uint32_t version, uint64_t struct_size);
template <typename Group>
const Group* driver_group(const char* id, uint32_t version) {
  return static_cast<const Group*>(driver_group(id, version, sizeof(Group)));
}

namespace detail {
extern std::atomic<const char*> queued_last;  // the kernel that this process queued last, for messages; NULL: none yet
}  // namespace detail

// Counts the calls of a kernel, so that a test can check that the kernel ran and not the fallback. One static object per kernel.
class KernelCounter {
 public:
  explicit KernelCounter(const char* name);  // "add.Tensor"; a string that is never freed
  void count() {
    calls_.fetch_add(1, std::memory_order_relaxed);
    detail::queued_last.store(name_, std::memory_order_relaxed);
  }
  const char* name() const { return name_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  const char* name_;
  std::atomic<uint64_t> calls_{0};
};

// Calls since the start, all forms of the operator together. Throws for a name that no kernel has.
uint64_t kernel_calls(const std::string& name);

}  // namespace backplane
