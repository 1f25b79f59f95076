// backplane/driver/cxx/groups.hpp: the optional groups of the driver ABI as one list, and what every one of them is for code that treats
// them alike: an id, a version and named slots.
//
// A new group is a header in driver/ with its BP_<GROUP>_SLOTS and a line in BP_DRIVER_GROUPS; a vendor's own one a line of
// BP_GROUP_TRAITS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "../collective.h"
#include "../compiler.h"
#include "../graph.h"
#include "../host_exec.h"
#include "../host_view.h"
#include "../ipc.h"
#include "../module.h"
#include "../peer.h"
#include "../profile.h"
#include "../vmm.h"
#include "table.hpp"

/// X(name, NAME, about) for each group: bp_<name> with BP_<NAME>_ID, BP_<NAME>_VERSION and BP_<NAME>_SLOTS, and what a driver does that has
/// it.
#define BP_DRIVER_GROUPS(X)                                      \
  X(host_exec, HOST_EXEC, "runs host functions in stream order") \
  X(host_view, HOST_VIEW, "lets the host reach device memory")   \
  X(peer, PEER, "lets devices reach each other's memory")        \
  X(vmm, VMM, "maps memory into addresses set aside before")     \
  X(ipc, IPC, "shares memory between processes")                 \
  X(compiler, COMPILER, "compiles kernels")                      \
  X(module, MODULE, "loads and runs compiled kernels")           \
  X(collective, COLLECTIVE, "moves and reduces between ranks")   \
  X(profile, PROFILE, "records what ran when")                   \
  X(graph, GRAPH, "records work and runs it as one")

namespace backplane::driver {

/// An entry of a group.
struct GroupSlot {
  const char* name;
  size_t offset;
};

/// Of a group's struct: `name`, `about`, `id`, `version`, `slots`, and each_slot(f), which calls f with an object for each slot, whose type
/// has `name`; `value`, which is &Group::slot; and method<Object>(), which is &Object::slot. Of bp_driver: each_slot alone.
template <class Group>
struct GroupTraits;

#define BP_SLOT_TYPE(slot)                                      \
  struct slot##_slot {                                          \
    static constexpr const char* name = #slot;                  \
    static constexpr auto value = &Group::slot;                 \
    template <class Object>                                     \
    static constexpr auto method() -> decltype(&Object::slot) { \
      return &Object::slot;                                     \
    }                                                           \
  };
#define BP_GROUP_SLOT(slot) GroupSlot{#slot, offsetof(Group, slot)},
#define BP_CALL(slot) f(slot##_slot());
/// For a group of the vendor's own, in this namespace: GroupTraits of `type`, whose slots are listed by SLOTS(X).
#define BP_GROUP_TRAITS(type, the_name, the_id, the_version, SLOTS, about_it)                                         \
  template <>                                                                                                         \
  struct GroupTraits<type> {                                                                                          \
    using Group = type;                                                                                               \
    static constexpr const char* name = the_name;                                                                     \
    static constexpr const char* about = about_it;                                                                    \
    static constexpr const char* id = the_id;                                                                         \
    static constexpr uint32_t version = the_version;                                                                  \
    static constexpr GroupSlot slots[] = {SLOTS(BP_GROUP_SLOT)};                                                      \
    static_assert(sizeof(bp_ext) + std::size(slots) * sizeof(void (*)()) == sizeof(Group), #SLOTS " is without one"); \
    SLOTS(BP_SLOT_TYPE)                                                                                               \
    template <class F>                                                                                                \
    static void each_slot(F&& f) {                                                                                    \
      SLOTS(BP_CALL)                                                                                                  \
    }                                                                                                                 \
  };
#define BP_TRAITS(group, GROUP, about) BP_GROUP_TRAITS(bp_##group, #group, BP_##GROUP##_ID, BP_##GROUP##_VERSION, BP_##GROUP##_SLOTS, about)
BP_DRIVER_GROUPS(BP_TRAITS)
#undef BP_TRAITS

template <>
struct GroupTraits<bp_driver> {
  using Group = bp_driver;
#define BP_OF_DRIVER(group, slot) BP_SLOT_TYPE(slot)
  BP_DRIVER_SLOTS(BP_OF_DRIVER)
#undef BP_OF_DRIVER
  template <class F>
  static void each_slot(F&& f) {
#define BP_OF_DRIVER(group, slot) BP_CALL(slot)
    BP_DRIVER_SLOTS(BP_OF_DRIVER)
#undef BP_OF_DRIVER
  }
};

/// Calls f(GroupTraits<bp_...>()) for each group.
template <class F>
void for_each_group(F&& f) {
#define BP_EACH(group, GROUP, about) f(GroupTraits<bp_##group>());
  BP_DRIVER_GROUPS(BP_EACH)
#undef BP_EACH
}

/// The name of the first entry that is missing in a group; nullptr if it is whole. `head` is of the struct's full size.
template <class Group>
const char* missing_slot(const bp_ext& head) {
  for (const GroupSlot& slot : GroupTraits<Group>::slots) {
    void (*entry)() = nullptr;
    std::memcpy(&entry, reinterpret_cast<const char*>(&head) + slot.offset, sizeof entry);
    if (!entry) return slot.name;
  }
  return nullptr;
}

/// Asks the driver for a group, in the newest version that it has: versions of a group have the same slots. Nothing if it has none, if one
/// of the slots is missing, or if it answers with another one.
template <class Group>
std::optional<Group> find_group(const bp_driver& driver) {
  constexpr const char* id = GroupTraits<Group>::id;
  for (uint32_t version = GroupTraits<Group>::version; driver.query_ext && version > 0; --version) {
    const bp_ext* ext = nullptr;
    if (driver.query_ext(driver.self, id, version, &ext) != BP_OK || !ext) continue;
    if (wrong_head(*ext, id, version)) return std::nullopt;
    Group group = normalised_group<Group>(*ext);
    if (missing_slot<Group>(group.head)) return std::nullopt;
    return group;
  }
  return std::nullopt;
}

}  // namespace backplane::driver
