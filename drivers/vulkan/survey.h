// drivers/vulkan/survey.h: the driver's options, and what devices there are.
//
// Asking a Vulkan driver for its devices may start threads (lavapipe does), and no fork undoes that. So the survey is taken in a child
// process, which ends with it: bp_driver_get, device_count, device_properties and query_ext leave nothing behind in this one.
#pragma once

#include <string>
#include <vector>

#include <backplane/driver/cxx/options.hpp>

#include "library.h"

namespace backplane::driver::vulkan {

/// unified: the host reaches device memory, by its own caches. staged: copies go through a buffer that the host reaches.
enum class MemoryKind : int32_t { any, unified, staged };
const char* memory_name(MemoryKind kind);

struct Settings {
  std::string library;   // a path
  std::string device;    // a part of its name, or its number; "": any
  int32_t type;          // VK_PHYSICAL_DEVICE_TYPE_*; -1: the best kind there is, -2: all
  uint32_t sub_devices;  // made of each device
  MemoryKind memory;
  uint32_t items;     // of a group, for kernels; 0: by the device
  std::string cache;  // a folder for pipelines; "": none

  /// Throws Error for what is no option.
  explicit Settings(const char* config);
};

/// A device, as plain bytes.
struct DeviceInfo {
  char name[128], vendor[64], driver_version[64];
  char target[64];  // bp_target_properties.target
  char bus_id[32];
  uint8_t uuid[16];
  uint32_t index;        // as Vulkan lists them
  uint32_t part, parts;  // of a device that several were made of; else 0 of 1
  int32_t type;
  uint32_t api_version;

  // Queues and times.
  uint32_t family, queues, timestamp_bits;
  float timestamp_ns;  // of a tick
  bool has_clock;      // that the host can read

  // Memory.
  MemoryKind memory_kind;  // as chosen
  bool same_address;       // of unified memory: the host's addresses are the device's
  bool tagged;             // device addresses may be those of another device as well: the driver marks them
  uint32_t memory_type, host_type, arguments_type;
  uint64_t memory, max_allocation;
  uint64_t import_alignment;  // of memory of the host that the device can use in place; 0: it cannot
  bool has_budget;

  // Kernels.
  uint32_t max_group, max_grid[3], local_bytes, push_bytes, warp;
  bool storage_8, storage_16, int8, int16, int64, float16, float64, atomics_64, atomic_add_f32, memory_model, shuffle;
  bool integer_dot, cooperative_matrix;
  bool denorm_preserve, signed_zero_inf_nan, round_to_nearest, float64_controls;
  bool is_mesa, is_lavapipe;

  bool cpu() const { return type == VK_PHYSICAL_DEVICE_TYPE_CPU; }
};

struct Survey {
  std::vector<DeviceInfo> devices;
};

/// Takes the survey. Throws Error(BP_UNSUPPORTED): no library, no device of that name or kind, or one that cannot do what is needed.
Survey take_survey(const Settings& settings);

/// What a physical device is and has. Throws Error(BP_UNSUPPORTED), naming what it does not have.
DeviceInfo describe(const Session& session, uint32_t index, const Settings& settings);

/// A VkDevice with the features that the description names.
VkDevice make_device(const Session& session, const DeviceInfo& info);

}  // namespace backplane::driver::vulkan
