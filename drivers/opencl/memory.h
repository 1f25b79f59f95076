// drivers/opencl/memory.h: device memory of two kinds: pointers, which are the device's addresses, and buffer objects, which get reserved
// ones; and pinned host memory.
#pragma once

#include <cstdint>
#include <memory>

#include <backplane/driver/cxx/addresses.hpp>

#include "runtime.h"

namespace backplane::driver::opencl {

/// An allocation.
struct Block {
  Device* device;
  void* raw;      // of pointers: what the runtime gave, before it was aligned
  cl_mem buffer;  // of buffers
};

/// Where one side of a copy lies.
struct Place {
  uint64_t address;
  int32_t device;  // or BP_HOST_DEVICE
};

/// Thread safe. The kinds differ in the calls of the runtime; this class checks ranges and keeps accounts.
class Memory {
 public:
  using Found = AddressPlace<Block>;
  virtual ~Memory() = default;

  uint64_t alloc(Device& device, uint64_t bytes);
  void free(int32_t device, uint64_t address);
  virtual std::optional<Found> find(uint64_t address) const = 0;
  /// A range of a device's; throws for what does not lie in one allocation. `what` is named then.
  Found range(Place place, uint64_t bytes, const char* what) const;

  /// Queue a copy, or a fill. The event is empty where nothing is to be done.
  Event copy(Queue& queue, Place dst, Place src, uint64_t bytes);
  /// What these check of their arguments. Of a side on the host nothing is found.
  struct Sides {
    std::optional<Found> to, from;
  };
  Sides check_copy(Place dst, Place src, uint64_t bytes) const;
  Found check_fill(const Device& device, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count) const;
  Event fill(Queue& queue, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count);

  /// Sets a pointer of a kernel, and gives what the kernel has to add to it. An address of 0 is allowed.
  virtual uint64_t set_argument(cl_kernel kernel, cl_uint index, uint64_t address) const = 0;

 protected:
  virtual Found range_of(uint64_t address, uint64_t bytes, const char* what) const = 0;
  /// One command. Of a side on the host, `found` is NULL.
  struct Side {
    uint64_t address;
    const Found* found;
  };
  virtual uint64_t make(Device& device, uint64_t bytes) = 0;
  virtual std::optional<Found> remove(uint64_t address) = 0;
  virtual void destroy(const Block& block) = 0;
  virtual Event copy(Queue& queue, Side dst, Side src, uint64_t bytes) = 0;
  virtual Event fill(Queue& queue, const Found& dst, const void* pattern, uint32_t pattern_size, uint64_t bytes) = 0;
};

/// The kind that the devices' survey has chosen.
std::unique_ptr<Memory> make_memory(Context& context, MemoryKind kind);
std::unique_ptr<Memory> make_pointers(Context& context, MemoryKind kind);
std::unique_ptr<Memory> make_buffers(Context& context);

/// Host memory that the runtime has allocated for copies, mapped as long as it lives.
class Pinned {
 public:
  explicit Pinned(Device& device) : device_(device) {}
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  void* alloc(uint64_t bytes);
  void free(void* memory);
  std::optional<AddressPlace<cl_mem>> find(uint64_t address) const { return table_.find(address); }

 private:
  void release(cl_mem buffer, void* memory);

  Device& device_;
  AddressTable<cl_mem> table_;
};

}  // namespace backplane::driver::opencl
