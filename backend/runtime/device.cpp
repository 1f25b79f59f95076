// runtime/device.cpp: counting, visibility and the current device.
#include "runtime/device.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/visible_devices.h"

namespace backplane {
namespace device_impl {
namespace {

// The visible devices at one time; immutable. Objects are never freed, because there are references to them.
struct Devices {
  std::vector<VisibleDevice> visible;
  std::string reason;               // why there is no device
  bool answered = false;            // the driver has reported its devices
  std::optional<std::string> list;  // <PREFIX>_VISIBLE_DEVICES
};

struct DeviceLists {
  std::mutex mutex;  // protects what follows, and the driver's counting
  std::optional<std::vector<VisibleDevice>> all;
  std::vector<std::unique_ptr<const Devices>> made;
};

DeviceLists& device_lists() {
  static auto* instance = new DeviceLists();
  return *instance;
}

std::atomic<const Devices*> latest{nullptr};
std::atomic<const Devices*> frozen{nullptr};  // from the opening of the driver on

Devices look(const Driver* driver, std::optional<std::vector<VisibleDevice>>& all) {
  Devices found;
  try {
    if (driver == nullptr) {
      found.reason = driver_info().refusal;
      return found;
    }
    if (!all) all = all_devices(driver->table);
    found.answered = true;
    found.list = visible_list();
    found.visible = visible_devices(*all, found.list);
    if (found.visible.empty()) {
      found.reason = found.list ? "the driver's devices are hidden by " BACKPLANE_ENV_PREFIX "_VISIBLE_DEVICES=" + *found.list
                                : "the driver finds no device";
    }
  } catch (const std::exception& error) {
    found.reason = text_of(error);
  }
  return found;
}

// Launchers set the list late: it is read again until the driver is opened.
const Devices& refresh() {
  const Devices* known = latest.load(std::memory_order_acquire);
  if (known != nullptr && known->answered && known->list == visible_list()) return *known;
  const Driver* driver = loaded_driver();
  auto& all = device_lists();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Devices found = look(driver, all.all);
  known = latest.load(std::memory_order_relaxed);
  if (known != nullptr && !known->answered && !found.answered && known->reason == found.reason) return *known;
  latest.store(all.made.emplace_back(std::make_unique<const Devices>(std::move(found))).get(), std::memory_order_release);
  return *latest.load(std::memory_order_relaxed);
}

const Devices& devices() {
  const Devices* known = frozen.load(std::memory_order_acquire);
  return C10_LIKELY(known != nullptr) ? *known : refresh();
}

const VisibleDevice& device_at(c10::DeviceIndex device) {
  const auto& visible = devices().visible;
  if (C10_UNLIKELY(device < 0 || static_cast<size_t>(device) >= visible.size())) refuse_device(device);
  return visible[static_cast<size_t>(device)];
}

std::array<std::atomic<bool>, kMaxDevices> contexts{};
thread_local c10::DeviceIndex t_current = 0;

// Note [The driver's current device]: each change of a thread's current device is reported to a driver that has set_current. Before the
// driver is open a change cannot be reported, and where <PREFIX>_VISIBLE_DEVICES makes the driver's device 3 our device 0, the driver's
// idea of a thread's device is wrong from the start. Threads in this state are counted, and while there are any, open_driver() takes the
// slow path through report_current_device(), which reports each thread's device at its first use of the driver.
thread_local int32_t t_reported = 0;  // the driver's number; a thread that has reported nothing is on its device 0
thread_local bool t_unreported = false;

void mark_reported() {
  if (std::exchange(t_unreported, false)) detail::unreported_devices.fetch_sub(1);
}

void mark_unreported() {
  struct AtThreadExit {
    ~AtThreadExit() { mark_reported(); }
  };
  static thread_local AtThreadExit at_exit;
  static_cast<void>(at_exit);
  if (!std::exchange(t_unreported, true)) detail::unreported_devices.fetch_add(1);
}

// Throws, and changes nothing, if the driver refuses.
void report(const Driver& driver, c10::DeviceIndex device) {
  const int32_t wanted = device_at(device).driver_index;
  if (driver.table.set_current != nullptr && wanted != t_reported) {
    mark_context(device);
    const int32_t status = driver.table.set_current(driver.table.self, wanted);
    if (status != BP_OK) throw_status(status, "set_current", device, last_error_text());
    t_reported = wanted;
  }
  mark_reported();
}

}  // namespace
}  // namespace device_impl

c10::DeviceIndex device_count() noexcept { return static_cast<c10::DeviceIndex>(device_impl::devices().visible.size()); }

void require_device() {
  load_driver();  // raises if what the user asked for by name is not available
  TORCH_CHECK(device_count() > 0, "No ", device_name(), " device is available: ", device_impl::devices().reason);
}

void check_device(c10::DeviceIndex device) { device_impl::device_at(device); }

void refuse_device(int64_t device) {
  require_device();
  const int count = device_count();
  TORCH_CHECK(false, "invalid device index ", device, ": there ", count == 1 ? "is " : "are ", count, " ", device_name(),
              count == 1 ? " device" : " devices", " (0 to ", count - 1, ")");
}

void freeze_devices(const Driver& driver) {
  const device_impl::Devices& devices = device_impl::refresh();
  device_impl::frozen.store(&devices);
  static bool counted = false;  // see Note [The driver's current device]; protected by the caller's lock
  const bool elsewhere = driver.table.set_current != nullptr && !devices.visible.empty() && devices.visible.front().driver_index != 0;
  if (elsewhere != std::exchange(counted, elsewhere)) detail::unreported_devices.fetch_add(elsewhere ? 1 : -1);
}

void thaw_devices() noexcept { device_impl::frozen.store(nullptr); }

c10::DeviceIndex resolve_device(c10::DeviceIndex device) {
  if (device == -1) device = current_device();
  check_device(device);
  return device;
}

c10::DeviceIndex current_device() noexcept { return device_impl::t_current; }

void set_device(c10::DeviceIndex device) {
  check_device(device);
  if (device == device_impl::t_current) return;
  const Driver* driver = driver_if_open();
  if (driver == nullptr) {
    device_impl::mark_unreported();
  } else {
    device_impl::report(*driver, device);
  }
  device_impl::t_current = device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const auto previous = current_device();
  set_device(device);
  return previous;
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex device) { return device < 0 ? current_device() : exchange_device(device); }

void set_device_noexcept(c10::DeviceIndex device) noexcept {
  if (device == device_impl::t_current || device < 0 || device >= device_count()) return;
  try {
    set_device(device);
  } catch (...) {
    // The next work must run on that device. The thread's next use of the driver reports the device again, and raises the error.
    device_impl::t_current = device;
    device_impl::mark_unreported();
  }
}

void detail::report_current_device(const Driver& driver) { device_impl::report(driver, device_impl::t_current); }

int32_t driver_index(c10::DeviceIndex device) { return device == -1 ? BP_HOST_DEVICE : device_impl::device_at(device).driver_index; }

void mark_context(c10::DeviceIndex device) noexcept {
  auto& flag = device_impl::contexts[static_cast<size_t>(device)];
  if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);
}

bool has_context(c10::DeviceIndex device) noexcept {
  return device >= 0 && device < kMaxDevices && driver_if_open() != nullptr &&
         device_impl::contexts[static_cast<size_t>(device)].load(std::memory_order_relaxed);
}

bool is_initialized() noexcept { return driver_if_open() != nullptr; }

const bp_device_properties& device_properties(c10::DeviceIndex device) { return device_impl::device_at(device).properties; }

std::optional<bp_pointer_info> pointer_info(const void* pointer) {
  if (!knows_pointers()) return std::nullopt;
  const bp_driver& table = driver_if_open()->table;
  bp_pointer_info info{};
  info.struct_size = sizeof(info);
  const bool is_known = table.pointer_info(table.self, reinterpret_cast<uint64_t>(pointer), &info) == BP_OK;
  return is_known ? std::optional(info) : std::nullopt;
}

c10::DeviceIndex device_of_pointer(const void* pointer) {
  const auto info = pointer_info(pointer);
  if (!info || info->kind != BP_MEMORY_DEVICE) return -1;
  const auto& visible = device_impl::devices().visible;
  for (size_t i = 0; i < visible.size(); ++i) {
    if (visible[i].driver_index == info->device) return static_cast<c10::DeviceIndex>(i);
  }
  return -1;
}

bool knows_pointers() {
  const Driver* driver = driver_if_open();
  return driver != nullptr && driver->table.pointer_info != nullptr;
}

int32_t driver_alloc(c10::DeviceIndex device, uint64_t bytes, uint32_t flags, uint64_t* address) {
  const int32_t status = try_call<&bp_driver::alloc>(device, bytes, flags, address);
  const uint32_t alignment = device_properties(device).alignment;
  TORCH_CHECK(status != BP_OK || (*address != 0 && *address % alignment == 0), device_name(), " driver: alloc(device ",
              static_cast<int>(device), ") -> OK with the address ", *address, " for ", bytes, " bytes; a multiple of ", alignment,
              ", the alignment of its properties, other than 0 is required.");
  return status;
}

bool driver_memory_info(c10::DeviceIndex device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (open_driver().table.memory_info == nullptr) return false;
  call<&bp_driver::memory_info>(device, free_bytes, total_bytes);
  return true;
}

}  // namespace backplane
