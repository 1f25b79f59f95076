// minimal_driver.cpp: the smallest whole driver in C++: nine functions over operator new and memcpy. Start your own from this file.
//
// Put your runtime's calls in place of the bodies, one function at a time, and run `torch-backplane check-driver` after each. What is not
// here (streams, events, pinned memory, fill) comes from the emulate shim until you add it: a method of that name is an entry of the table.
// Methods may throw; backplane/driver/cxx/driver.hpp makes a status and a text of it. Runtimes with handles in place of addresses:
// docs/handles.md.
#include <backplane/driver/cxx/driver.hpp>

#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace backplane::driver;

constexpr uint64_t kMemory = uint64_t{4} << 30;  // bytes of each device

class Minimal : public Driver<Minimal> {  // an instance: nothing is global, so a process can hold several
 public:
  explicit Minimal(const Host& host) : Driver(host) {
    Options options(host.config());
    used_.resize(static_cast<size_t>(options.integer("devices", 1, 1, 16)));
    options.finish();
  }

  // These two answer before open, without a context and without a thread.
  void device_count(int32_t* out) { *out = static_cast<int32_t>(used_.size()); }

  void device_properties(int32_t device, bp_device_properties* out) {
    check(device);
    std::strcpy(out->name, "Minimal device");
    std::strcpy(out->vendor, "Backplane");
    std::strcpy(out->driver_version, "0.1.0");
    out->total_memory = out->max_allocation = kMemory;
    out->alignment = BP_MIN_ALIGNMENT;
  }

  // Start your runtime here, and end it in the destructor: close deletes the instance. memory_ then releases what was not freed.
  void open() {}

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {  // 0 bytes is a size too
    check(device);
    if (flags) throw Error(BP_INVALID_ARGUMENT, "alloc: flags must be 0");
    std::lock_guard lock(mutex_);
    if (bytes > kMemory - used_[static_cast<size_t>(device)]) throw Error(BP_OUT_OF_MEMORY, "alloc: not so much memory left");
    void* block = memory_.add(::operator new(bytes, std::align_val_t(BP_MIN_ALIGNMENT)));
    *out = reinterpret_cast<uint64_t>(block);
    addresses_.insert(*out, bytes, device);
    used_[static_cast<size_t>(device)] += bytes;
  }

  void free(int32_t device, uint64_t address) {
    check(device);
    std::lock_guard lock(mutex_);
    const auto place = addresses_.find(address);
    if (!place || place->offset || place->handle != device) throw Error(BP_INVALID_ARGUMENT, "free: not an address of alloc");
    addresses_.remove(address);
    used_[static_cast<size_t>(device)] -= place->bytes;
    memory_.destroy(reinterpret_cast<void*>(address), "free");
  }

  // Work is done when the call returns, so there is no queue to keep in order and nothing to wait for.
  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    check(device);
    if (stream || flags) throw Error(BP_INVALID_ARGUMENT, "copy: there are no streams, and flags must be 0");
    if (dst_device == BP_HOST_DEVICE && src_device == BP_HOST_DEVICE) throw Error(BP_INVALID_ARGUMENT, "copy: one must be a device");
    void* to = at(dst, dst_device, bytes, "copy: dst");
    const void* from = at(src, src_device, bytes, "copy: src");
    if (bytes) std::memcpy(to, from, bytes);
  }

  void synchronize(int32_t device, uint64_t) { check(device); }

  // last_error is the base class's.

 private:
  void check(int32_t device) const {
    if (device < 0 || device >= static_cast<int32_t>(used_.size())) {
      throw Error(BP_INVALID_DEVICE, format("no device %d: there are %zu", device, used_.size()));
    }
  }

  void* at(uint64_t address, int32_t device, uint64_t bytes, const char* what) {
    if (device != BP_HOST_DEVICE) {
      check(device);
      if (addresses_.range(address, bytes, what).handle != device) {
        throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx is not of device %d", what, static_cast<unsigned long long>(address), device));
      }
    }
    return reinterpret_cast<void*>(address);
  }

  std::mutex mutex_;                 // over used_; the other two have locks of their own
  std::vector<uint64_t> used_;       // bytes, of each device
  AddressTable<int32_t> addresses_;  // which device an address belongs to; your buffer's handle here
  LiveHandles<void*> memory_{[](void* block) { ::operator delete(block, std::align_val_t(BP_MIN_ALIGNMENT)); }};
};

}  // namespace

BP_DEFINE_DRIVER(Minimal)
