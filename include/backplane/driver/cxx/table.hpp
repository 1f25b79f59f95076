// backplane/driver/cxx/table.hpp: reads a bp_driver table safely: normalised copies, groups that must be whole, names for messages.
//
// Whoever loads a driver (the core, a shim, the contract checker) takes a normalised copy once. After that "absent" and "unsupported" are
// one NULL test, and no other code looks at struct_size.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "../../driver.h"

namespace backplane::driver {

/// A table of `bytes` bytes, the rest zeroed. Half a slot at its end is dropped.
template <class Table>
Table whole_slots(const void* table, uint64_t bytes) {
  Table copy{};
  std::memcpy(static_cast<void*>(&copy), table, std::min<uint64_t>(bytes, sizeof copy) & ~uint64_t{7});
  return copy;
}

/// A zeroed copy of `table` that holds no byte beyond the table's own struct_size. Slots that the driver does not have are NULL.
inline bp_driver normalised(const bp_driver& table) {
  auto copy = whole_slots<bp_driver>(&table, table.struct_size);
  copy.struct_size = sizeof(bp_driver);
  return copy;
}

/// The same for an optional group that query_ext answered with. Group is a struct whose first member is `bp_ext head`.
template <class Group>
Group normalised_group(const bp_ext& ext) {
  auto copy = whole_slots<Group>(&ext, ext.struct_size);
  copy.head.struct_size = sizeof(Group);
  return copy;
}

/// What the head of an answer of query_ext says in place of what was asked for; nothing if it is that.
inline std::optional<std::string> wrong_head(const bp_ext& ext, const char* id, uint32_t version) {
  if (ext.id && !std::strcmp(ext.id, id) && ext.version == version) return std::nullopt;
  return "query_ext(\"" + std::string(id) + "\", " + std::to_string(version) + ") answers with the group \"" +
         (ext.id ? ext.id : "(NULL)") + "\", version " + std::to_string(ext.version);
}

/// Slots that are there together or not at all. `single` slots stand alone; `minimum` must be there.
enum class Group { minimum, streams, events, pinned, host_register, single };

/// One slot of the table.
struct Slot {
  Group group;
  const char* name;
  size_t offset;

  bool present(const bp_driver& table) const {
    void (*entry)() = nullptr;
    std::memcpy(&entry, reinterpret_cast<const char*>(&table) + offset, sizeof entry);
    return entry != nullptr;
  }
};

/// X(group, slot) for each slot, in the table's order.
#define BP_DRIVER_SLOTS(X)          \
  X(minimum, device_count)          \
  X(minimum, device_properties)     \
  X(minimum, open)                  \
  X(minimum, close)                 \
  X(minimum, alloc)                 \
  X(minimum, free)                  \
  X(minimum, copy)                  \
  X(minimum, synchronize)           \
  X(minimum, last_error)            \
  X(streams, stream_create)         \
  X(streams, stream_destroy)        \
  X(streams, stream_query)          \
  X(streams, stream_synchronize)    \
  X(streams, copy_async)            \
  X(events, event_create)           \
  X(events, event_destroy)          \
  X(events, event_record)           \
  X(events, event_query)            \
  X(events, event_synchronize)      \
  X(events, stream_wait)            \
  X(events, event_elapsed)          \
  X(pinned, host_alloc)             \
  X(pinned, host_free)              \
  X(host_register, host_register)   \
  X(host_register, host_unregister) \
  X(single, fill)                   \
  X(single, stream_callback)        \
  X(single, stream_native)          \
  X(single, stream_from_native)     \
  X(single, pointer_info)           \
  X(single, memory_info)            \
  X(single, set_current)            \
  X(single, query_ext)

/// Every slot, in the table's order.
inline const auto& slots() {
#define BP_SLOT(group, name) Slot{Group::group, #name, offsetof(bp_driver, name)},
  static constexpr std::array all{BP_DRIVER_SLOTS(BP_SLOT)};
#undef BP_SLOT
  static_assert(offsetof(bp_driver, device_count) + all.size() * sizeof(void (*)()) == sizeof(bp_driver), "a slot is not in the list");
  return all;
}

inline const char* group_name(Group group) {
  constexpr const char* names[] = {"minimum", "streams", "events", "pinned", "host_register", "single"};
  return names[static_cast<size_t>(group)];
}

/// True if every slot of the group is there. Of a normalised table.
inline bool has_group(const bp_driver& table, Group group) {
  return std::all_of(slots().begin(), slots().end(), [&](const Slot& slot) { return slot.group != group || slot.present(table); });
}

inline bool has_minimum(const bp_driver& table) { return has_group(table, Group::minimum); }
inline bool has_streams(const bp_driver& table) { return has_group(table, Group::streams); }
inline bool has_events(const bp_driver& table) { return has_group(table, Group::events); }
inline bool has_pinned(const bp_driver& table) { return has_group(table, Group::pinned); }
inline bool has_host_register(const bp_driver& table) { return has_group(table, Group::host_register); }
inline bool has_fill(const bp_driver& table) { return table.fill != nullptr; }

/// True if nothing is left for the emulate shim: the table is whole and takes calls from every thread.
inline bool is_complete(const bp_driver& table) {
  return has_minimum(table) && has_streams(table) && has_events(table) && has_pinned(table) && has_fill(table) &&
         !(table.flags & BP_DRIVER_SERIALIZE);
}

/// What makes the table unusable, "group events: slot event_query is missing"; nothing if every group is whole or absent.
inline std::optional<std::string> incomplete_group(const bp_driver& table) {
  for (Group group : {Group::minimum, Group::streams, Group::events, Group::pinned, Group::host_register}) {
    bool any = group == Group::minimum;
    const char* missing = nullptr;
    for (const Slot& slot : slots()) {
      if (slot.group != group) continue;
      if (slot.present(table)) {
        any = true;
      } else if (!missing) {
        missing = slot.name;
      }
    }
    if (any && missing) return std::string("group ") + group_name(group) + ": slot " + missing + " is missing";
  }
  if (has_events(table) && !has_streams(table)) return "group events needs group streams: slot stream_create is missing";
  return std::nullopt;
}

/// How the ABIs of a driver and its caller differ, "driver ABI 0.1, needed is 0.2; since 0.1 changed: ..."; nothing if they are compatible.
inline std::optional<std::string> abi_mismatch(uint32_t major, uint32_t minor) {
  // While the major is 0 the minor must be equal; from 1 on a newer minor only appends, and struct_size says what is there.
  if (major == BP_ABI_MAJOR && (BP_ABI_MAJOR > 0 || minor == BP_ABI_MINOR)) return std::nullopt;
  std::string text = "driver ABI " + std::to_string(major) + "." + std::to_string(minor) + ", needed is " + std::to_string(BP_ABI_MAJOR) +
                     "." + std::to_string(BP_ABI_MINOR);
  if (major == 0 && minor == 1) {
    text +=
        "; since 0.1 changed: copy and copy_async (no kind, the two devices say the direction; flags last), fill and event_record (flags "
        "last), pointer_info (a kind; an unknown address is BP_OK), stream_callback (no longer of the group streams), the order of the "
        "entries; new: stream_from_native";
  }
  return text;
}

/// A status that is in the list, or BP_INTERNAL.
constexpr bp_status checked_status(int32_t status) {
  return status >= BP_OK && status <= BP_INTERNAL ? static_cast<bp_status>(status) : BP_INTERNAL;
}

constexpr bool is_sticky(int32_t status) { return status == BP_FAULT || status == BP_DEVICE_LOST; }

/// "OUT_OF_MEMORY"; an unknown value is "INTERNAL".
constexpr const char* status_name(int32_t status) {
  constexpr const char* names[] = {"OK",          "PENDING", "OUT_OF_MEMORY", "INVALID_ARGUMENT", "INVALID_DEVICE",
                                   "UNSUPPORTED", "FAULT",   "DEVICE_LOST",   "TIMEOUT",          "INTERNAL"};
  return names[checked_status(status)];
}

/// The calling thread's last error text of a driver, "" if it has none.
inline std::string last_error_text(const bp_driver& table) {
  char text[512] = "";
  if (table.last_error) table.last_error(table.self, text, sizeof text);
  text[sizeof text - 1] = '\0';
  return text;
}

}  // namespace backplane::driver
