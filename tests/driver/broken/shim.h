// tests/driver/broken/shim.h: a shim that forwards every call, except the entry that one named defect replaces.
//
// Its option "defect=<name>" takes the name of the check that must find it, or of a kind of sound device; "<name>+<kind>" both.
// All files of this folder are compiled as one unit: names are unique among them.
#pragma once

#include <atomic>
#include <backplane/driver/cxx/groups.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace broken {

struct Shim {
  bp_driver table{};  // what the checker sees
  bp_driver in{};     // the sound inner driver
// The groups, such as `peer` as the checker sees it, and `in_peer`, the sound driver's.
#define BP_MEMBERS(group, GROUP, about) \
  bp_##group group{};                   \
  const bp_##group* in_##group = nullptr;
  BP_DRIVER_GROUPS(BP_MEMBERS)
#undef BP_MEMBERS

  // What defects remember. Each uses what it needs.
  std::mutex mutex;
  std::atomic<int> calls{0};
  std::atomic<bool> inside{false};
  std::atomic<bool> faulted{false};
  std::atomic<bool> closing{false};
  bool opened = false;
  int32_t current = 0;
  uint64_t address = 0;
  std::string text;
  bp_stream* side = nullptr;
  std::set<const void*> seen;
  std::map<const void*, int32_t> devices;
  std::map<uint64_t, int> owners;
  std::map<bp_stream*, bp_event*> waits;
  std::map<uint64_t, std::string> shadows;
  std::vector<std::vector<uint64_t>> held;
};

inline Shim& of(void* self) { return *static_cast<Shim*>(self); }

constexpr int32_t ok = BP_OK;

// A callback that a defect hands on later, or otherwise.
struct Callback {
  Shim* shim;
  bp_callback fn;
  void* arg;
};

// Device work of 30 ms.
inline int32_t sleep_for_a_while(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return BP_OK;
}

// Calls the sound driver's entry.
#define INNER(shim, entry, ...) (shim).in.entry((shim).in.self __VA_OPT__(, ) __VA_ARGS__)
#define INNER_GROUP(group, entry, ...) (group)->entry((group)->head.self __VA_OPT__(, ) __VA_ARGS__)

template <class Table>
Table& ours(Shim& s);
template <class Table>
const Table& inners(const Shim& s);
template <>
inline bp_driver& ours(Shim& s) {
  return s.table;
}
template <>
inline const bp_driver& inners(const Shim& s) {
  return s.in;
}
#define BP_TABLES(group, GROUP, about)             \
  template <>                                      \
  inline bp_##group& ours(Shim& s) {               \
    return s.group;                                \
  }                                                \
  template <>                                      \
  inline const bp_##group& inners(const Shim& s) { \
    return *s.in_##group;                          \
  }
BP_DRIVER_GROUPS(BP_TABLES)
#undef BP_TABLES

inline void* inner_self(const bp_driver& table) { return table.self; }
template <class Group>
void* inner_self(const Group& group) {
  return group.head.self;
}

template <auto Slot>
struct Entry;

template <class Table, class... Args, int32_t (*Table::*Slot)(void*, Args...)>
struct Entry<Slot> {
  template <auto Body>
  static void instead(Shim& shim) {
    ours<Table>(shim).*Slot = [](void* self, Args... args) -> int32_t { return Body(of(self), args...); };
  }
  template <auto Change>
  static void after(Shim& shim) {
    ours<Table>(shim).*Slot = [](void* self, Args... args) -> int32_t {
      const Table& in = inners<Table>(of(self));
      return Change(of(self), (in.*Slot)(inner_self(in), args...), args...);
    };
  }
};

// Defects of one entry: Body(shim, arguments...) in its place, or Change(shim, the sound driver's status, arguments...) after it.
template <auto Slot, auto Body>
void instead(Shim& s) {
  Entry<Slot>::template instead<Body>(s);
}
template <auto Slot, auto Change>
void after(Shim& s) {
  Entry<Slot>::template after<Change>(s);
}

using Defect = void (*)(Shim&);
using Defects = std::map<std::string, Defect>;

// One family or a few a file.
void add_load_defects(Defects&);    // load, device, error, ext
void add_memory_defects(Defects&);  // memory, copy, pinned, fill, pointer
void add_work_defects(Defects&);    // stream, event, callback, wait, thread
void add_fault_defects(Defects&);   // fault, lost
void add_life_defects(Defects&);    // fork, life, and the ways to end a process
#define BP_FAMILY(group, GROUP, about) void add_##group##_defects(Defects&);
BP_DRIVER_GROUPS(BP_FAMILY)
#undef BP_FAMILY
void add_dialect_defects(Defects&);  // dialect: the words of bp.compiler's prelude
void add_ttir_defects(Defects&);     // ttir: the languages of bp.compiler
void add_kinds(Defects&);            // no defects: what sound devices are like

inline bool between_devices(int32_t dst_device, int32_t src_device) {
  return dst_device != BP_HOST_DEVICE && src_device != BP_HOST_DEVICE && dst_device != src_device;
}

// A stream of the shim's own on device 0.
bp_stream* side_stream(Shim& shim);

}  // namespace broken
