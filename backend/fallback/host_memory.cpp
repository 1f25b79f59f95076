// fallback/host_memory.cpp: a CPU allocator that forwards to the one before it, except on a thread that runs an operator on device memory.
#include "fallback/host_memory.h"

#include <c10/core/CPUAllocator.h>

#include <tuple>

#include "fallback/fallback.h"
#include "memory/caching_allocator.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "tensor/tensors.h"

namespace backplane {
namespace host_memory_impl {
namespace {

thread_local DeviceBackedHostMemory* scope = nullptr;

// Device blocks begin at multiples of 512, as few host pointers do. Other addresses are looked up, without a lock.
bool is_device_block(const void* memory) {
  return memory != nullptr && reinterpret_cast<uintptr_t>(memory) % 512 == 0 && CachingAllocator::block_size(memory) != 0;
}

}  // namespace
}  // namespace host_memory_impl

class HostMemoryAllocator final : public c10::Allocator {
 public:
  explicit HostMemoryAllocator(c10::Allocator* inner) : inner_(inner), inner_deleter_(inner->raw_deleter()) {}

  c10::DataPtr allocate(size_t bytes) override {
    DeviceBackedHostMemory* const scope = host_memory_impl::scope;
    return C10_LIKELY(scope == nullptr) || bytes == 0 ? allocate_inner(bytes) : scope->allocate(bytes);
  }

  // The deleter of a plain pointer becomes this one, so that raw_deleter() is correct.
  c10::DataPtr allocate_inner(size_t bytes) {
    c10::DataPtr data = inner_->allocate(bytes);
    if (C10_LIKELY(data.get() == data.get_context())) std::ignore = data.compare_exchange_deleter(inner_deleter_, &release);
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override { return inner_deleter_ == nullptr ? nullptr : &release; }

  void copy_data(void* dst, const void* src, std::size_t bytes) const override { inner_->copy_data(dst, src, bytes); }

  static void release(void* memory);

 private:
  c10::Allocator* inner_;
  c10::DeleterFnPtr inner_deleter_;
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
  if (C10_UNLIKELY(host_memory_impl::is_device_block(memory))) {
    CachingAllocator::raw_delete(memory);
  } else {
    host_memory_impl::allocator()->inner_deleter_(memory);
  }
}

c10::Allocator* host_memory_allocator() { return host_memory_impl::allocator(); }

namespace host_memory_impl {
namespace {

// While the library is loaded, because torch's pointer to its allocator is read without a lock: not later, when threads may allocate.
const bool installed = [] {
  if (!fallback::is_wanted()) return false;
  c10::SetCPUAllocator(allocator());
  return true;
}();

}  // namespace
}  // namespace host_memory_impl

DeviceBackedHostMemory::DeviceBackedHostMemory(c10::DeviceIndex device) : device_(device), outer_(host_memory_impl::scope) {
  host_memory_impl::scope = this;
}

DeviceBackedHostMemory::~DeviceBackedHostMemory() { host_memory_impl::scope = outer_; }

bool DeviceBackedHostMemory::owns(const c10::DataPtr& data) const {
  return data.get_deleter() == &HostMemoryAllocator::release && host_memory_impl::is_device_block(data.get());
}

c10::DataPtr DeviceBackedHostMemory::to_device_memory(c10::DataPtr data) const {
  void* const memory = data.release_context();
  return {memory, memory, c10::GetAllocator(kDevice)->raw_deleter(), c10::Device(kDevice, device_)};
}

// The block may have been freed in stream order, with queued work; the host writes outside that order, so this waits for the stream.
c10::DataPtr DeviceBackedHostMemory::allocate(size_t bytes) {
  DeviceSwitch guard(device_);
  c10::DataPtr data;
  try {
    data = c10::GetAllocator(kDevice)->allocate(bytes);
  } catch (const c10::OutOfMemoryError&) {
    return host_memory_impl::allocator()->allocate_inner(bytes);
  }
  if (C10_UNLIKELY(data.get() != data.get_context() || !host_memory_impl::is_device_block(data.get()))) {
    return host_memory_impl::allocator()->allocate_inner(bytes);  // a vendor's allocator without blocks to look up
  }
  const c10::Stream stream = current_stream(device_);
  if (!query_stream(stream)) {
    about_to_wait("it runs on the CPU");
    synchronize_stream(stream);
  }
  return {data.get(), data.release_context(), &HostMemoryAllocator::release, c10::Device(c10::kCPU)};
}

}  // namespace backplane
