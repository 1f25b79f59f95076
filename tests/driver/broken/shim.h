// tests/driver/broken/shim.h: a shim that hands every call on, save where one named defect replaces an entry.
//
// Its option "defect=<name>" takes the name of the check that must find it, or of a kind of sound device; "<name>+<kind>" both.
#pragma once

#include <atomic>
#include <backplane/driver/cxx/groups.hpp>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace broken {

struct Shim {
  bp_driver table{};  // what the checker sees
  bp_driver in{};     // the sound driver below
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

// Calls the sound driver's entry.
#define INNER(shim, entry, ...) (shim).in.entry((shim).in.self __VA_OPT__(, ) __VA_ARGS__)
#define INNER_GROUP(group, entry, ...) (group)->entry((group)->head.self __VA_OPT__(, ) __VA_ARGS__)

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
void add_kinds(Defects&);            // no defects: what sound devices are like

inline bool between_devices(int32_t dst_device, int32_t src_device) {
  return dst_device != BP_HOST_DEVICE && src_device != BP_HOST_DEVICE && dst_device != src_device;
}

// A stream of the shim's own on device 0.
bp_stream* side_stream(Shim& shim);

}  // namespace broken
