// drivers/opencl/pointers.cpp: device memory with addresses of its own: shared virtual memory of OpenCL 2.0, fine or coarse, and Intel's
// unified shared memory.
#include <backplane/driver/cxx/live.hpp>

#include "memory.h"

namespace backplane::driver::opencl {
namespace {

class Pointers final : public Memory {
 public:
  Pointers(Context& context, MemoryKind kind) : context_(context), api_(context.api), usm_(context.usm()), kind_(kind) {}

  std::optional<Found> find(uint64_t address) const override { return table_.find(address); }
  Found range_of(uint64_t address, uint64_t bytes, const char* what) const override { return table_.range(address, bytes, what); }

  uint64_t set_argument(cl_kernel kernel, cl_uint index, uint64_t address) const override {
    const void* pointer = reinterpret_cast<const void*>(address);
    if (!pointer) {
      check(api_.clSetKernelArg(kernel, index, sizeof(cl_mem), nullptr), "clSetKernelArg");
    } else if (is_usm()) {
      check(usm_.clSetKernelArgMemPointerINTEL(kernel, index, pointer), "clSetKernelArgMemPointerINTEL");
    } else {
      check(api_.clSetKernelArgSVMPointer(kernel, index, pointer), "clSetKernelArgSVMPointer");
    }
    return 0;
  }

 protected:
  uint64_t make(Device& device, uint64_t bytes) override {
    // A runtime need not align to more than its largest type: so this does.
    const uint64_t size = bytes + BP_MIN_ALIGNMENT;
    cl_int code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    void* raw = nullptr;
    if (is_usm()) {
      raw = usm_.clDeviceMemAllocINTEL(context_.get(), device.id(), nullptr, size, 0, &code);
    } else {
      raw = api_.clSVMAlloc(context_.get(), CL_MEM_READ_WRITE | (kind_ == MemoryKind::fine ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0), size, 0);
    }
    if (!raw) {
      throw Error(BP_OUT_OF_MEMORY, format("alloc: %llu bytes of %s memory: ", wide(bytes), memory_name(kind_)) + code_name(code));
    }
    const uint64_t address = (reinterpret_cast<uint64_t>(raw) + BP_MIN_ALIGNMENT - 1) & ~uint64_t{BP_MIN_ALIGNMENT - 1};
    live_.add(raw);
    try {
      table_.insert(address, bytes, Block{&device, raw, nullptr});
    } catch (...) {
      live_.destroy(raw, "alloc");
      throw;
    }
    return address;
  }
  std::optional<Found> remove(uint64_t address) override { return table_.remove(address); }
  void destroy(const Block& block) override { live_.destroy(block.raw, "free"); }

  Event copy(Queue& queue, Side dst, Side src, uint64_t bytes) override {
    void* to = reinterpret_cast<void*>(dst.address);
    const void* from = reinterpret_cast<const void*>(src.address);
    return queue.submit("copy", [&](cl_command_queue on, cl_event* event) {
      return is_usm() ? usm_.clEnqueueMemcpyINTEL(on, 0, to, from, bytes, 0, nullptr, event)
                      : api_.clEnqueueSVMMemcpy(on, 0, to, from, bytes, 0, nullptr, event);
    });
  }
  Event fill(Queue& queue, const Found& dst, const void* pattern, uint32_t pattern_size, uint64_t bytes) override {
    void* to = reinterpret_cast<void*>(dst.base + dst.offset);
    return queue.submit("fill", [&](cl_command_queue on, cl_event* event) {
      return is_usm() ? usm_.clEnqueueMemFillINTEL(on, to, pattern, pattern_size, bytes, 0, nullptr, event)
                      : api_.clEnqueueSVMMemFill(on, to, pattern, pattern_size, bytes, 0, nullptr, event);
    });
  }

 private:
  bool is_usm() const { return kind_ == MemoryKind::usm; }
  void release(void* raw) {
    if (is_usm()) {
      usm_.clMemBlockingFreeINTEL(context_.get(), raw);
    } else {
      api_.clSVMFree(context_.get(), raw);
    }
  }

  Context& context_;
  const Api& api_;
  const Usm& usm_;
  const MemoryKind kind_;
  AddressTable<Block> table_;
  LiveHandles<void*> live_{[this](void* raw) { release(raw); }};
};

}  // namespace

std::unique_ptr<Memory> make_pointers(Context& context, MemoryKind kind) { return std::make_unique<Pointers>(context, kind); }

}  // namespace backplane::driver::opencl
