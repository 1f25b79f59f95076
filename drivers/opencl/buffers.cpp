// drivers/opencl/buffers.cpp: device memory of OpenCL 1.2: buffer objects, each at a place in a range of reserved addresses.
//
// An argument of a kernel is a buffer and cannot be an address inside one, so that kernels take the offset as well: prelude.h.
#include <backplane/driver/cxx/live.hpp>

#include "memory.h"

namespace backplane::driver::opencl {
namespace {

constexpr uint64_t kWindow = uint64_t{1} << 42;  // of addresses, which cost nothing

class Buffers final : public Memory {
 public:
  explicit Buffers(Context& context) : context_(context), api_(context.api) {}

  std::optional<Found> find(uint64_t address) const override { return places_.find(address); }
  Found range_of(uint64_t address, uint64_t bytes, const char* what) const override { return places_.range(address, bytes, what); }

  uint64_t set_argument(cl_kernel kernel, cl_uint index, uint64_t address) const override {
    cl_mem buffer = nullptr;
    uint64_t offset = 0;
    if (address != 0) {
      const Found found = places_.range(address, 0, "module.launch: a pointer");
      buffer = found.handle.buffer;
      offset = found.offset;
    }
    check(api_.clSetKernelArg(kernel, index, sizeof buffer, buffer ? &buffer : nullptr), "clSetKernelArg");
    return offset;
  }

 protected:
  uint64_t make(Device& device, uint64_t bytes) override {
    cl_int code = CL_SUCCESS;
    const cl_mem buffer = api_.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes ? bytes : 1, nullptr, &code);
    if (code != CL_SUCCESS) {
      throw Error(BP_OUT_OF_MEMORY, format("alloc: %llu bytes: clCreateBuffer: ", wide(bytes)) + code_name(code));
    }
    live_.add(buffer);
    try {
      // Runtimes take the memory at a buffer's first use; a lack is to be reported here, and before another queue uses it.
      const Event taken = device.default_queue().submit("clEnqueueMigrateMemObjects", [&](cl_command_queue queue, cl_event* event) {
        return api_.clEnqueueMigrateMemObjects(queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, nullptr, event);
      });
      if (device.wait(taken, Deadline(BP_NO_TIMEOUT))) throw Error(BP_OUT_OF_MEMORY, "alloc: clEnqueueMigrateMemObjects failed");
      return places_.place(bytes, BP_MIN_ALIGNMENT, Block{&device, nullptr, buffer});
    } catch (...) {
      live_.destroy(buffer, "alloc");
      throw;
    }
  }
  std::optional<Found> remove(uint64_t address) override { return places_.remove(address); }
  void destroy(const Block& block) override { live_.destroy(block.buffer, "free"); }

  Event copy(Queue& queue, Side dst, Side src, uint64_t bytes) override {
    return queue.submit("copy", [&](cl_command_queue on, cl_event* event) {
      if (!src.found) {
        return api_.clEnqueueWriteBuffer(on, dst.found->handle.buffer, 0, dst.found->offset, bytes,
                                         reinterpret_cast<const void*>(src.address), 0, nullptr, event);
      }
      if (!dst.found) {
        return api_.clEnqueueReadBuffer(on, src.found->handle.buffer, 0, src.found->offset, bytes, reinterpret_cast<void*>(dst.address), 0,
                                        nullptr, event);
      }
      return api_.clEnqueueCopyBuffer(on, src.found->handle.buffer, dst.found->handle.buffer, src.found->offset, dst.found->offset, bytes,
                                      0, nullptr, event);
    });
  }
  Event fill(Queue& queue, const Found& dst, const void* pattern, uint32_t pattern_size, uint64_t bytes) override {
    return queue.submit("clEnqueueFillBuffer", [&](cl_command_queue on, cl_event* event) {
      return api_.clEnqueueFillBuffer(on, dst.handle.buffer, pattern, pattern_size, dst.offset, bytes, 0, nullptr, event);
    });
  }

 private:
  Context& context_;
  const Api& api_;
  Reservation<Block> places_{kWindow};
  LiveHandles<cl_mem> live_{[this](cl_mem buffer) { api_.clReleaseMemObject(buffer); }};
};

}  // namespace

std::unique_ptr<Memory> make_buffers(Context& context) { return std::make_unique<Buffers>(context); }

}  // namespace backplane::driver::opencl
