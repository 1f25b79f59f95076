// aten/host_memory.cpp: a CPU allocator that forwards to the one before it, except on a thread that runs an operator on device memory.
#include "aten/host_memory.h"

#include <c10/core/CPUAllocator.h>

#include <mutex>

#include "aten/tensors.h"
#include "memory/caching_allocator.h"
#include "runtime/stream.h"

namespace backplane {
namespace host_memory_impl {
namespace {

thread_local DeviceBackedHostMemory* scope = nullptr;

}  // namespace
}  // namespace host_memory_impl

class HostMemoryAllocator final : public c10::Allocator {
 public:
  explicit HostMemoryAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    DeviceBackedHostMemory* scope = host_memory_impl::scope;
    return scope == nullptr || bytes == 0 ? inner_->allocate(bytes) : scope->allocate(bytes);
  }

  // For callers of raw_allocate (oneDNN's scratch memory), who may free outside of the scope in which they allocated.
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dst, const void* src, std::size_t bytes) const override { default_copy_data(dst, src, bytes); }

 private:
  static void release(void* memory);
  c10::Allocator* inner_;
};

namespace host_memory_impl {
namespace {

HostMemoryAllocator* allocator() {
  static auto* const instance = new HostMemoryAllocator(c10::GetCPUAllocator());
  return instance;
}

}  // namespace
}  // namespace host_memory_impl

void HostMemoryAllocator::release(void* memory) {
  if (CachingAllocator::block_size(memory) != 0) {
    CachingAllocator::raw_delete(memory);
  } else {
    host_memory_impl::allocator()->inner_->raw_deallocate(memory);
  }
}

c10::Allocator* host_memory_allocator() { return host_memory_impl::allocator(); }

DeviceBackedHostMemory::DeviceBackedHostMemory(c10::DeviceIndex device)
    : device_(device), deleter_(c10::GetAllocator(kDevice)->raw_deleter()), outer_(host_memory_impl::scope) {
  static std::once_flag installed;  // by the first zero-copy call: a process that makes none keeps torch's allocator untouched
  std::call_once(installed, [] { c10::SetCPUAllocator(host_memory_allocator()); });
  host_memory_impl::scope = this;
}

DeviceBackedHostMemory::~DeviceBackedHostMemory() { host_memory_impl::scope = outer_; }

bool DeviceBackedHostMemory::owns(const c10::DataPtr& data) const { return deleter_ != nullptr && data.get_deleter() == deleter_; }

// The block may have been freed in stream order, with work in flight; the host writes out of that order, so it waits for the stream.
c10::DataPtr DeviceBackedHostMemory::allocate(size_t bytes) {
  DeviceSwitch guard(device_);
  c10::DataPtr data = c10::GetAllocator(kDevice)->allocate(bytes);
  const c10::Stream stream = current_stream(device_);
  if (!query_stream(stream)) synchronize_stream(stream);
  return relabel(std::move(data), c10::Device(c10::kCPU));
}

c10::DataPtr relabel(c10::DataPtr data, c10::Device device) {
  void* const memory = data.get();
  const c10::DeleterFnPtr deleter = data.get_deleter();
  return {memory, data.release_context(), deleter, device};
}

}  // namespace backplane
