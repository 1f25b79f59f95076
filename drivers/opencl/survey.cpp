// drivers/opencl/survey.cpp: chooses a platform and its devices, and asks what they can do, in a child process.
#include "survey.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include <backplane/driver/cxx/code.hpp>

#include "../engine/in_child.h"

namespace backplane::driver::opencl {
namespace {

Error unsupported(const std::string& text) { return {BP_UNSUPPORTED, text}; }

// ---- one platform, one device

std::vector<cl_platform_id> platforms_of(const Api& api) {
  cl_uint count = 0;
  const cl_int code = api.clGetPlatformIDs(0, nullptr, &count);
  if (code == CL_PLATFORM_NOT_FOUND_KHR) return {};
  check(code, "clGetPlatformIDs");
  std::vector<cl_platform_id> out(count);
  if (count) check(api.clGetPlatformIDs(count, out.data(), nullptr), "clGetPlatformIDs");
  return out;
}

std::vector<cl_device_id> devices_of(const Api& api, cl_platform_id platform) {
  cl_uint count = 0;
  if (api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_device_id> out(count);
  if (count) check(api.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, out.data(), nullptr), "clGetDeviceIDs");
  return out;
}

std::string platform_text(const Api& api, cl_platform_id platform, cl_uint what) {
  return info_text([&](size_t bytes, void* out, size_t* needed) { return api.clGetPlatformInfo(platform, what, bytes, out, needed); });
}

/// What a device answers; zero where it does not know the question.
class Question {
 public:
  Question(const Api& api, cl_device_id device) : api_(api), device_(device) { extensions_ = " " + text(CL_DEVICE_EXTENSIONS) + " "; }

  template <class Value>
  Value value(cl_uint what) const {
    Value out{};
    if (api_.clGetDeviceInfo(device_, what, sizeof out, &out, nullptr) != CL_SUCCESS) return Value{};
    return out;
  }
  std::string text(cl_uint what) const {
    return info_text([&](size_t bytes, void* out, size_t* needed) { return api_.clGetDeviceInfo(device_, what, bytes, out, needed); });
  }
  bool has(const char* extension) const { return extensions_.find(" " + std::string(extension) + " ") != std::string::npos; }
  const std::string& extensions() const { return extensions_; }

 private:
  const Api& api_;
  const cl_device_id device_;
  std::string extensions_;
};

template <size_t size>
void put(char (&out)[size], const std::string& text) {
  std::memset(out, 0, size);
  std::memcpy(out, text.data(), std::min(text.size(), size - 1));
}

MemoryKind choose_memory(const Question& ask, const DeviceInfo& info, MemoryKind wanted) {
  // 1.2 has no such question, and a runtime of 1.2 may answer anything.
  const auto svm = info.version_major >= 2 ? ask.value<cl_bitfield>(CL_DEVICE_SVM_CAPABILITIES) : 0;
  const bool fine = svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER, coarse = svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
  const bool usm = ask.has("cl_intel_unified_shared_memory");
  switch (wanted) {
    case MemoryKind::any:  // of a fine grain where it costs nothing: elsewhere that is memory of the host
      return fine && info.host_unified ? MemoryKind::fine : usm ? MemoryKind::usm : coarse ? MemoryKind::coarse : MemoryKind::buffers;
    case MemoryKind::fine:
      if (fine) return wanted;
      break;
    case MemoryKind::coarse:
      if (coarse) return wanted;
      break;
    case MemoryKind::usm:
      if (usm) return wanted;
      break;
    case MemoryKind::buffers:
      return wanted;
  }
  throw unsupported(format("memory=%s: the device %s does not offer it; it has buffers%s%s%s", memory_name(wanted), info.name,
                           fine ? ", fine" : "", coarse ? ", coarse" : "", usm ? ", usm" : ""));
}

/// The newest of "SPIR-V_1.4 SPIR-V_1.3 ...", as in a module's header. cl_khr_il_program has the question of OpenCL 2.1.
uint32_t spirv_version(const Api& api, const Question& ask, const DeviceInfo& info) {
  const std::string versions = ask.text(CL_DEVICE_IL_VERSION);
  unsigned newest = 0, major = 0, minor = 0;
  for (size_t at = 0; (at = versions.find("SPIR-V_", at)) != std::string::npos; ++at) {
    if (std::sscanf(versions.c_str() + at, "SPIR-V_%u.%u", &major, &minor) == 2) newest = std::max(newest, major << 16 | minor << 8);
  }
  if (!newest || !api.clCreateProgramWithIL) {
    throw unsupported(std::string("language=spirv: the device ") + info.name + " takes no SPIR-V (CL_DEVICE_IL_VERSION); use language=c");
  }
  if (info.memory_kind == MemoryKind::buffers) {
    throw unsupported(std::string("language=spirv: of the device ") + info.name +
                      " kernels would need addresses, and its memory is buffers; use language=c");
  }
  return newest;
}

DeviceInfo describe(const Api& api, cl_platform_id platform, cl_device_id device, const Settings& settings) {
  const Question ask(api, device);
  DeviceInfo out{};
  put(out.name, ask.text(CL_DEVICE_NAME));
  put(out.vendor, ask.text(CL_DEVICE_VENDOR));
  put(out.version, ask.text(CL_DEVICE_VERSION));
  put(out.driver_version, ask.text(CL_DRIVER_VERSION));
  put(out.platform, platform_text(api, platform, CL_PLATFORM_NAME));
  put(out.platform_version, platform_text(api, platform, CL_PLATFORM_VERSION));
  std::sscanf(out.version, "OpenCL %d.%d", &out.version_major, &out.version_minor);
  out.type = ask.value<cl_bitfield>(CL_DEVICE_TYPE);
  out.memory = ask.value<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE);
  out.max_allocation = ask.value<cl_ulong>(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  out.local_memory = ask.value<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE);
  out.max_parameter_bytes = ask.value<size_t>(CL_DEVICE_MAX_PARAMETER_SIZE);
  out.units = ask.value<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS);
  out.clock_mhz = ask.value<cl_uint>(CL_DEVICE_MAX_CLOCK_FREQUENCY);
  out.max_group = static_cast<uint32_t>(std::max<size_t>(ask.value<size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE), 1));
  out.vector_bytes = 4 * ask.value<cl_uint>(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
  out.host_unified = ask.value<cl_bool>(CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  out.has_f64 = ask.value<cl_bitfield>(CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  out.has_compiler = ask.value<cl_bool>(CL_DEVICE_COMPILER_AVAILABLE) != 0;
  const auto floats = ask.value<cl_bitfield>(CL_DEVICE_SINGLE_FP_CONFIG);
  out.exact_division = floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  out.exact_fma = floats & CL_FP_FMA;
  out.exact_fma64 = ask.value<cl_bitfield>(CL_DEVICE_DOUBLE_FP_CONFIG) & CL_FP_FMA;
  out.has_atomics_64 = ask.has("cl_khr_int64_base_atomics");
  out.has_priorities = ask.has("cl_khr_priority_hints") && api.clCreateCommandQueueWithProperties;
  out.has_throttle = ask.has("cl_khr_throttle_hints") && api.clCreateCommandQueueWithProperties;
  // Items that run together: known where it is one number.
  out.warp = ask.has("cl_nv_device_attribute_query")    ? ask.value<cl_uint>(CL_DEVICE_WARP_SIZE_NV)
             : ask.has("cl_amd_device_attribute_query") ? ask.value<cl_uint>(CL_DEVICE_WAVEFRONT_WIDTH_AMD)
                                                        : 0;
  out.has_shuffle = out.warp != 0 && ask.has("cl_khr_subgroup_shuffle");
  if (ask.has("cl_khr_pci_bus_info")) {
    const auto bus = ask.value<cl_device_pci_bus_info_khr>(CL_DEVICE_PCI_BUS_INFO_KHR);
    put(out.bus_id, format("%04x:%02x:%02x.%x", bus.domain, bus.bus, bus.device, bus.function));
  }
  if (ask.has("cl_khr_device_uuid")) api.clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof out.uuid, out.uuid, nullptr);
  out.memory_kind = choose_memory(ask, out, settings.memory);
  if (settings.throttle && !out.has_throttle) {
    throw unsupported(std::string("throttle: the device ") + out.name + " does not offer cl_khr_throttle_hints; leave the option out");
  }
  if (settings.language == Language::spirv) out.spirv = spirv_version(api, ask, out);
  // All that code depends on: the compiler is the runtime's, and kernels on buffers take other arguments.
  const char* kind = out.memory_kind == MemoryKind::buffers ? "-buffers" : out.spirv ? "-spirv" : "";
  const uint64_t sum =
      checksum(std::string(out.platform) + out.platform_version + out.name + out.version + out.driver_version + ask.extensions());
  std::string readable = out.name;
  for (char& c : readable) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  put(out.target, readable.substr(0, 36) + format("-%08x", static_cast<uint32_t>(sum ^ sum >> 32)) + kind);
  return out;
}

// ---- the choice

bool is_named(const Settings& settings, const std::string& name, size_t index) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  return settings.platform.empty() || settings.platform == std::to_string(index) ||
         lower(name).find(lower(settings.platform)) != std::string::npos;
}

struct Found {
  cl_platform_id platform;
  uint32_t platform_index;
  std::vector<std::pair<cl_device_id, uint32_t>> devices;  // with their numbers
};

/// The first platform that has a device of the kind. Nothing if none has.
Found find_kind(const Api& api, const Settings& settings, cl_bitfield type) {
  const auto platforms = platforms_of(api);
  for (uint32_t p = 0; p < platforms.size(); ++p) {
    if (!is_named(settings, platform_text(api, platforms[p], CL_PLATFORM_NAME), p)) continue;
    Found out{platforms[p], p, {}};
    const auto devices = devices_of(api, platforms[p]);
    for (uint32_t d = 0; d < devices.size(); ++d) {
      if (Question(api, devices[d]).value<cl_bitfield>(CL_DEVICE_TYPE) & type) out.devices.emplace_back(devices[d], d);
    }
    if (!out.devices.empty()) return out;
  }
  return {};
}

/// Device `info`, or its parts, of which each has its share of memory and units.
void add_parts(const Api& api, cl_device_id device, DeviceInfo info, const Settings& settings, std::vector<DeviceInfo>& out) {
  const uint32_t parts = settings.sub_devices;
  if (parts > 1) {
    cl_device_partition_property kinds[16] = {};
    size_t bytes = 0;
    api.clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes);
    const bool can = std::find(kinds, kinds + std::min<size_t>(bytes / sizeof *kinds, 16), CL_DEVICE_PARTITION_EQUALLY) !=
                     kinds + std::min<size_t>(bytes / sizeof *kinds, 16);
    if (!can || info.units < parts) {
      throw unsupported(
          format("sub_devices=%u: the device %s %s", parts, info.name,
                 can ? format("has %u compute units, and each part needs one", info.units).c_str() : "cannot be partitioned"));
    }
  }
  info.parts = parts;
  info.units /= parts;
  info.memory /= parts;
  info.max_allocation = std::min(info.max_allocation, info.memory);
  for (info.part = 0; info.part < parts; ++info.part) {
    DeviceInfo one = info;
    if (parts > 1) put(one.name, format("%s, part %u of %u", std::string(info.name).substr(0, 100).c_str(), info.part + 1, parts));
    if (std::all_of(one.uuid, one.uuid + sizeof one.uuid, [](uint8_t byte) { return byte == 0; })) {
      const uint64_t id[2] = {checksum(one.target), checksum(std::to_string(one.platform_index) + "." + std::to_string(one.device_index))};
      std::memcpy(one.uuid, id, sizeof one.uuid);
    }
    one.uuid[15] = static_cast<uint8_t>(one.uuid[15] + one.part);
    out.push_back(one);
  }
}

std::string list_of_platforms(const Api& api) {
  std::string out;
  uint32_t index = 0;
  for (cl_platform_id platform : platforms_of(api)) {
    out += format("%s%u (%s)", index ? ", " : "", index, platform_text(api, platform, CL_PLATFORM_NAME).c_str());
    ++index;
  }
  return out;
}

std::vector<DeviceInfo> look(const Api& api, const Settings& settings) {
  const auto platforms = list_of_platforms(api);
  if (platforms.empty()) throw unsupported("it knows no platform: no ICD is installed (apt install pocl-opencl-icd, or the GPU's driver)");
  Found found{};
  for (const cl_bitfield type : {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU}) {
    if (found.devices.empty() && (!settings.type || settings.type & type))
      found = find_kind(api, settings, settings.type ? settings.type : type);
  }
  if (found.devices.empty()) {
    const std::string wanted = settings.platform.empty() ? "" : " of platform=" + settings.platform;
    throw unsupported("no device" + wanted + (settings.type ? " of that device_type" : "") + "; the platforms are " + platforms);
  }
  std::vector<DeviceInfo> out;
  for (const auto& [device, index] : found.devices) {
    DeviceInfo info = describe(api, found.platform, device, settings);
    info.platform_index = found.platform_index;
    info.device_index = index;
    add_parts(api, device, info, settings, out);
  }
  // One context, one kind of memory: addresses are then good on each of its devices.
  for (const DeviceInfo& info : out) {
    if (info.memory_kind == out[0].memory_kind) continue;
    Settings common = settings;
    common.memory = MemoryKind::buffers;
    return look(api, common);
  }
  return out;
}

Survey look_everywhere(const Settings& settings) {
  std::string tried;
  bool opened = false;
  for (const std::string& place : library_places(settings.library)) {
    try {
      const Api& api = open_library(place);
      opened = true;
      return {place, look(api, settings)};
    } catch (const Error& error) {
      const std::string why = error.what();
      tried += "\n  " + (why.rfind(place, 0) == 0 ? why : place + ": " + why);
    }
  }
  throw unsupported(
      (opened ? std::string("no OpenCL device can be used:") : std::string("no OpenCL library can be opened:")) + tried +
      (opened || !settings.library.empty()
           ? ""
           : "\nInstall one (apt install ocl-icd-libopencl1 pocl-opencl-icd, or pip install pyopencl pocl-binary-distribution), or "
             "name one by the option library=/path/libOpenCL.so.1"));
}

// ---- the child's answer: the library's place, then the devices

std::string packed(const Survey& survey) {
  std::string out = survey.library + '\0';
  return out.append(reinterpret_cast<const char*>(survey.devices.data()), survey.devices.size() * sizeof(DeviceInfo));
}

Survey unpacked(const std::string& answer) {
  Survey survey{answer.c_str(), {}};
  const size_t begin = survey.library.size() + 1;
  survey.devices.resize((answer.size() - begin) / sizeof(DeviceInfo));
  std::memcpy(survey.devices.data(), answer.data() + begin, survey.devices.size() * sizeof(DeviceInfo));
  return survey;
}

}  // namespace

Survey take_survey(const Settings& settings) {
  if (library_is_open()) return look_everywhere(settings);  // there is nothing left to keep out of this process
  return unpacked(in_child("OpenCL", [&] { return packed(look_everywhere(settings)); }));
}

cl_device_id find_device(const Api& api, const DeviceInfo& info, cl_platform_id* platform) {
  const auto platforms = platforms_of(api);
  if (info.platform_index < platforms.size()) {
    const auto devices = devices_of(api, platforms[info.platform_index]);
    if (info.device_index < devices.size()) {
      *platform = platforms[info.platform_index];
      return devices[info.device_index];
    }
  }
  throw Error(BP_DEVICE_LOST, std::string("OpenCL no longer lists the device ") + info.name);
}

}  // namespace backplane::driver::opencl
