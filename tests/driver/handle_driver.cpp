// tests/driver/handle_driver.cpp: a driver for a runtime with buffer objects instead of addresses, written on driver.hpp.
//
// The "runtime" hands out buffers that have no address a host could use. Reservation gives each a place in a range of addresses, and copy
// turns an address back into buffer and offset. emulate supplies the rest.
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

#include <backplane/driver/cxx/driver.hpp>

namespace {

using namespace backplane::driver;

struct Buffer {
  std::unique_ptr<char[]> bytes;
  int32_t device;
};

class HandleDriver : public Driver<HandleDriver> {
 public:
  explicit HandleDriver(const Host& host) : Driver(host) {
    Options options(host.config());
    devices_ = static_cast<int32_t>(options.integer("devices", 2, 0, 8));
    limit_ = options.size("memory", uint64_t{64} << 20);
    options.finish();
  }

  void device_count(int32_t* out) const { *out = devices_; }

  void device_properties(int32_t device, bp_device_properties* out) const {
    check_device(device);
    std::strcpy(out->name, "Device with handles");
    out->total_memory = out->max_allocation = limit_;
    out->alignment = BP_MIN_ALIGNMENT;
    out->copy_alignment = 1;
  }

  void open() {}

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    check_device(device);
    if (flags != 0) throw Error(BP_INVALID_ARGUMENT, "alloc: flags must be 0");
    std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_[device])
      throw Error(BP_OUT_OF_MEMORY, format("no room for %llu bytes", static_cast<unsigned long long>(bytes)));
    auto buffer = std::make_shared<Buffer>(Buffer{std::make_unique<char[]>(bytes), device});
    *out = addresses_.place(bytes, BP_MIN_ALIGNMENT, std::move(buffer));
    used_[device] += bytes;
  }

  void free(int32_t device, uint64_t address) {
    check_device(device);
    std::lock_guard lock(mutex_);
    const auto place = addresses_.find(address);
    if (!place || place->offset != 0 || place->handle->device != device) throw Error(BP_INVALID_ARGUMENT, "free: not an address of alloc");
    addresses_.remove(address);
    used_[device] -= place->bytes;
  }

  void copy(int32_t device, bp_stream*, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    check_device(device);
    if (flags != 0) throw Error(BP_INVALID_ARGUMENT, "copy: flags must be 0");
    if (bytes != 0) std::memcpy(reach(dst, dst_device, bytes), reach(src, src_device, bytes), bytes);
  }

  int32_t synchronize(int32_t device, uint64_t timeout_ns) {
    check_device(device);
    return poll(timeout_ns, [] { return BP_OK; });
  }

  /// No status of the driver's, and no text: the base class must supply both.
  int32_t memory_info(int32_t device, uint64_t*, uint64_t*) {
    if (device == 1) throw 1;
    if (device == 2) throw std::bad_alloc();
    if (device == 3) throw std::runtime_error("the board is gone");
    return BP_UNSUPPORTED;
  }

 private:
  void check_device(int32_t device) const {
    if (device < 0 || device >= devices_) throw Error(BP_INVALID_DEVICE, format("no device %d", device));
  }

  char* reach(uint64_t address, int32_t device, uint64_t bytes) {
    if (device == BP_HOST_DEVICE) return reinterpret_cast<char*>(address);
    const auto place = addresses_.range(address, bytes, "copy");
    if (place.handle->device != device) throw Error(BP_INVALID_ARGUMENT, "copy: an address of another device");
    return place.handle->bytes.get() + place.offset;
  }

  int32_t devices_ = 0;
  uint64_t limit_ = 0;
  uint64_t used_[8] = {};
  std::mutex mutex_;
  Reservation<std::shared_ptr<Buffer>> addresses_{uint64_t{1} << 36};
};

}  // namespace

BP_DEFINE_DRIVER(HandleDriver)
