// drivers/opencl/survey.h: the driver's options, and what devices there are.
//
// Asking an OpenCL runtime for its devices starts threads in some runtimes and is not undone by a fork. So the survey is taken in a child
// process, which ends with it: bp_driver_get, device_count, device_properties and query_ext leave nothing behind in this one.
#pragma once

#include <string>
#include <vector>

#include <backplane/driver/cxx/options.hpp>
#include <backplane/driver/cxx/wait.hpp>

#include "library.h"

namespace backplane::driver::opencl {

/// How device memory is made: bp.host_view needs shared memory of a fine grain; buffers need no OpenCL 2.0.
enum class MemoryKind : int32_t { any, fine, coarse, usm, buffers };
const char* memory_name(MemoryKind kind);

/// What the runtime compiles kernels from: OpenCL C, or SPIR-V that drivers/spirv makes (OpenCL 2.1 or cl_khr_il_program).
enum class Language : int32_t { c, spirv };

struct Settings {
  std::string library;   // a path; "": looked for
  std::string platform;  // a part of its name, or its number; "": any
  cl_bitfield type;      // CL_DEVICE_TYPE_*; 0: the best kind there is
  MemoryKind memory;
  Language language;
  uint32_t sub_devices;    // of each device; 1: the device itself
  uint32_t items;          // of a group, for kernels; 0: one on a CPU, 256 elsewhere
  cl_properties throttle;  // CL_QUEUE_HINT_*; 0: the runtime's

  /// Throws Error for what is no option.
  explicit Settings(const char* config);
};

/// A device, as plain bytes. Where sub-devices are asked for, each of them has one.
struct DeviceInfo {
  char name[128], vendor[64], version[64], driver_version[64], platform[128], platform_version[64];
  char target[64];  // bp_target_properties.target
  char bus_id[32];
  uint8_t uuid[16];
  cl_bitfield type;
  uint64_t memory, max_allocation, local_memory, max_parameter_bytes;
  uint32_t units, clock_mhz, max_group, vector_bytes, warp;
  int32_t version_major, version_minor;
  MemoryKind memory_kind;                 // as chosen
  uint32_t spirv;                         // with language=spirv, the version as in a module's header; else 0
  uint32_t platform_index, device_index;  // as the library lists them, of all types
  uint32_t part, parts;                   // of a device that is partitioned; else 0 of 1
  bool host_unified, has_f64, has_compiler, exact_division, exact_fma, exact_fma64, has_atomics_64, has_shuffle, has_priorities,
      has_throttle;
  bool cpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
};

struct Survey {
  std::string library;  // which one has them
  std::vector<DeviceInfo> devices;
};

/// Takes the survey. Throws Error(BP_UNSUPPORTED): no library, no platform or no device of that name or kind, or one that cannot do what
/// the settings ask for.
Survey take_survey(const Settings& settings);

/// The device of the library that a DeviceInfo describes, before partition.
cl_device_id find_device(const Api& api, const DeviceInfo& info, cl_platform_id* platform);

}  // namespace backplane::driver::opencl
