// runtime/driver.h: the loaded driver as the core calls it: complete (emulate has filled the gaps), thread safe, opened at first use.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <backplane/driver/cxx/groups.hpp>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/errors.h"

namespace backplane {

// What was loaded, for reports: files from the outermost shim to the driver, options as given.
struct DriverInfo {
  std::string path;
  std::string shims;  // comma separated, outermost first; "emulate" included when the core added it
  std::string options;
  std::string refusal;  // why there is no driver; empty if there is one
};

struct Driver {
  bp_driver table{};  // normalised: an absent or unsupported entry is NULL
#define BP_MEMBER(group, GROUP, about) const bp_##group* group = nullptr;
  BP_DRIVER_GROUPS(BP_MEMBER)  // the optional groups, such as `peer`; NULL if not offered
#undef BP_MEMBER
  bool zero_copy = false;  // host_view with SAME_ADDRESS, COHERENT and CACHED_READ

  // A group by type: group<bp_peer>().
  template <class Group>
  const Group* group() const {
#define BP_MEMBER(group, GROUP, about) \
  if constexpr (std::is_same_v<Group, bp_##group>) return group;
    BP_DRIVER_GROUPS(BP_MEMBER)
#undef BP_MEMBER
  }
};

// Loads the driver (no context, no open). Idempotent; any thread. Returns false, with info().refusal set, if there is none. Throws
// c10::Error only if <PREFIX>_DRIVER, _SHIMS or _OPTIONS name something that is not available: an explicit request is never replaced
// silently.
bool load_driver();
DriverInfo driver_info();

// The loaded driver, opened or not, for the entries that may be called before open (count, properties, groups). NULL if there is none.
const Driver* loaded_driver() noexcept;

namespace detail {
extern std::atomic<const Driver*> opened;    // NULL before first use, after close and in a forked child
extern std::atomic<int> unreported_devices;  // > 0: for some threads the driver does not know the current device
const Driver& open_now();
void report_current_device(const Driver& driver);  // runtime/device.cpp
}  // namespace detail

// The opened driver. Opens it at first use. Throws: no driver (with the reason), forked child, closed.
inline const Driver& open_driver() {
  const Driver* d = detail::opened.load(std::memory_order_acquire);
  return C10_LIKELY(d != nullptr && detail::unreported_devices.load(std::memory_order_relaxed) == 0) ? *d : detail::open_now();
}

// The driver if it is open in this process, else NULL. For frees, destructors and queries that must not initialize.
inline const Driver* driver_if_open() noexcept { return detail::opened.load(std::memory_order_acquire); }

// Explicit shutdown at the user's request only: closes the driver, after which every use raises. There must be no live tensors.
void close_driver();

// True in a child forked after the driver was opened.
bool in_bad_fork() noexcept;

// The calling thread's last error text.
std::string last_error_text() noexcept;

// Visible index -> the driver's index; BP_HOST_DEVICE for -1. Throws c10::Error for an index out of range.
int32_t driver_index(c10::DeviceIndex device);
void mark_context(c10::DeviceIndex device) noexcept;

namespace detail {
// The struct that has the slot.
template <class Table, class Entry>
Table table_of(Entry Table::*);
template <auto Slot>
using TableOf = decltype(table_of(Slot));
template <auto Slot>
constexpr bool kInGroup = !std::is_same_v<TableOf<Slot>, bp_driver>;

// The slot's name from the template argument, which the compiler prints as "&bp_driver::alloc".
template <auto Slot>
constexpr std::string_view slot_text() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("Slot = ") + 1);
  text.remove_prefix(text.find("::") + 2);
  return text.substr(0, text.find_first_of(";]"));
}
// The slot's name in error messages: "alloc"; for a group's slot "bp.peer.enable".
template <auto Slot>
std::string slot_name() {
  if constexpr (kInGroup<Slot>) {
    return std::string(driver::GroupTraits<TableOf<Slot>>::id) + "." + std::string(slot_text<Slot>());
  } else {
    return std::string(slot_text<Slot>());
  }
}

[[noreturn]] void throw_no_group(const char* id);

[[noreturn]] void throw_null_result(const std::string& call);

// Checks that a pointer that an entry returns with BP_OK is not NULL: it would be taken for the default stream, or for no event.
template <auto Slot, typename Arg>
void check_given(Arg arg) {
  if constexpr (std::is_pointer_v<Arg> && std::is_pointer_v<std::remove_pointer_t<Arg>>) {
    if (C10_UNLIKELY(arg != nullptr && *arg == nullptr)) throw_null_result(slot_name<Slot>());
  }
}

template <auto Slot, typename... Args>
int32_t invoke(const Driver& d, Args... args) {
  int32_t status = BP_OK;
  if constexpr (kInGroup<Slot>) {
    const auto* group = d.group<TableOf<Slot>>();
    if (C10_UNLIKELY(group == nullptr)) throw_no_group(driver::GroupTraits<TableOf<Slot>>::id);
    status = (group->*Slot)(group->head.self, args...);
  } else {
    status = (d.table.*Slot)(d.table.self, args...);
  }
  constexpr bool may_be_null = slot_text<Slot>() == "stream_from_native" || slot_text<Slot>() == "split";
  if constexpr (!may_be_null) {
    if (status == BP_OK) (check_given<Slot>(args), ...);
  }
  return status;
}
}  // namespace detail

// Calls a slot whose first argument is a device and returns its status; a slot of the table, or of an optional group that is offered.
// `device` is a visible index, which is validated and mapped.
template <auto Slot, typename... Args>
int32_t try_call(c10::DeviceIndex device, Args... args) {
  const Driver& d = open_driver();
  const int32_t index = driver_index(device);
  mark_context(device);
  return detail::invoke<Slot>(d, index, args...);
}

// As above, but throws the exception of the error table on anything but BP_OK: call<&bp_driver::alloc>(device, bytes, 0u, &address);
// call<&bp_peer::enable>(device, driver_index(peer));
template <auto Slot, typename... Args>
void call(c10::DeviceIndex device, Args... args) {
  const int32_t status = try_call<Slot>(device, args...);
  if (C10_UNLIKELY(status != BP_OK)) {
    throw_status(status, detail::slot_name<Slot>().c_str(), device, last_error_text());
  }
}

// For destructors: calls only if the driver is open and this is not a forked child; logs a failure and returns false.
template <auto Slot, typename... Args>
bool call_noexcept(c10::DeviceIndex device, Args... args) noexcept {
  const Driver* d = driver_if_open();
  if (d == nullptr) return true;
  try {
    const int32_t status = detail::invoke<Slot>(*d, driver_index(device), args...);
    if (status != BP_OK) log_status(status, detail::slot_name<Slot>().c_str(), device, last_error_text());
    return status == BP_OK;
  } catch (const std::exception& error) {
    log_status(BP_INTERNAL, detail::slot_name<Slot>().c_str(), device, error.what());
    return false;
  }
}

}  // namespace backplane
