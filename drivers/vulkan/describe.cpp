// drivers/vulkan/describe.cpp: what a physical device is, which of its memory and queues are used, and the features that are switched on.
#include <algorithm>
#include <cctype>
#include <cstring>

#include <backplane/driver/cxx/code.hpp>

#include "survey.h"

namespace backplane::driver::vulkan {
namespace {

constexpr uint32_t kQueues = 8;  // more of them would not run at once

constexpr const char* kImport = "VK_EXT_external_memory_host";
constexpr const char* kAtomicFloat = "VK_EXT_shader_atomic_float";
constexpr const char* kBudget = "VK_EXT_memory_budget";
constexpr const char* kClock = "VK_EXT_calibrated_timestamps";
constexpr const char* kBus = "VK_EXT_pci_bus_info";
constexpr const char* kCooperative = "VK_KHR_cooperative_matrix";
constexpr const char* kPortability = "VK_KHR_portability_subset";

template <size_t size>
void put(char (&out)[size], const std::string& text) {
  std::memset(out, 0, size);
  std::memcpy(out, text.data(), std::min(text.size(), size - 1));
}

/// Feature structs in one chain. What a device does not know is left out of it, and stays 0.
struct Features {
  VkPhysicalDeviceFeatures2 core = vk<VkPhysicalDeviceFeatures2>();
  VkPhysicalDeviceVulkan11Features v11 = vk<VkPhysicalDeviceVulkan11Features>();
  VkPhysicalDeviceVulkan12Features v12 = vk<VkPhysicalDeviceVulkan12Features>();
  VkPhysicalDeviceVulkan13Features v13 = vk<VkPhysicalDeviceVulkan13Features>();
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomics = vk<VkPhysicalDeviceShaderAtomicFloatFeaturesEXT>();
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR cooperative = vk<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>();

  void link(bool has_13, bool has_atomics, bool has_cooperative) {
    core.pNext = &v11;
    v11.pNext = &v12;
    void** last = &v12.pNext;
    if (has_13) *last = &v13, last = &v13.pNext;
    if (has_atomics) *last = &atomics, last = &atomics.pNext;
    if (has_cooperative) *last = &cooperative, last = &cooperative.pNext;
  }
};

std::vector<VkExtensionProperties> extensions_of(const Session& session, VkPhysicalDevice device) {
  return listed<VkExtensionProperties>("vkEnumerateDeviceExtensionProperties", [&](uint32_t* count, auto* out) {
    return session.vkEnumerateDeviceExtensionProperties(device, nullptr, count, out);
  });
}

/// Of one that computes alone, whose work no picture waits for; else of any that computes.
void choose_queues(const Session& session, VkPhysicalDevice device, DeviceInfo& out) {
  uint32_t count = 0;
  session.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  session.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  int best = -1;
  for (uint32_t i = 0; i < count; ++i) {
    const VkQueueFamilyProperties& one = families[i];
    if (!(one.queueFlags & VK_QUEUE_COMPUTE_BIT) || one.queueCount == 0) continue;
    const int rank = (one.timestampValidBits ? 2 : 0) + (one.queueFlags & VK_QUEUE_GRAPHICS_BIT ? 0 : 1);
    if (rank <= best) continue;
    best = rank;
    out.family = i;
    out.queues = std::min(one.queueCount, kQueues);
    out.timestamp_bits = one.timestampValidBits;
  }
  if (best < 0) throw Error(BP_UNSUPPORTED, std::string(out.name) + ": no queue family that computes");
}

void choose_memory(const VkPhysicalDeviceMemoryProperties& memory, MemoryKind wanted, DeviceInfo& out) {
  constexpr VkFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const auto heap_of = [&](uint32_t type) { return memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size; };
  // The type with these properties in the largest heap.
  const auto find = [&](VkFlags properties, uint32_t* type) {
    bool found = false;
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      if ((memory.memoryTypes[i].propertyFlags & properties) != properties || (found && heap_of(i) <= heap_of(*type))) continue;
      *type = i;
      found = true;
    }
    return found;
  };
  const auto need = [&](bool found, const char* what) {
    if (!found) throw Error(BP_UNSUPPORTED, std::string(out.name) + ": no " + what);
  };
  need(find(local, &out.memory_type), "device-local memory");
  const uint64_t whole = heap_of(out.memory_type);
  need(find(host | cached, &out.host_type) || find(host, &out.host_type), "memory that the host and the device both reach");
  if (!find(local | host, &out.arguments_type)) out.arguments_type = out.host_type;
  uint32_t shared = 0;
  const bool can = find(local | host | cached, &shared) && heap_of(shared) >= whole / 2;
  if (wanted == MemoryKind::unified && !can) {
    throw Error(BP_UNSUPPORTED, std::string("memory=unified: the device ") + out.name + " has no memory of that kind; take memory=staged");
  }
  const bool unified =
      can && (wanted == MemoryKind::unified || (wanted == MemoryKind::any && out.type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU));
  out.memory_kind = unified ? MemoryKind::unified : MemoryKind::staged;
  if (unified) out.memory_type = shared;
  out.memory = heap_of(out.memory_type);
}

void need_features(const DeviceInfo& info, const VkPhysicalDeviceVulkan12Features& has) {
  std::string missing;
  if (!has.bufferDeviceAddress) missing = "bufferDeviceAddress";
  if (!has.timelineSemaphore) missing += std::string(missing.empty() ? "" : " and ") + "timelineSemaphore";
  if (!missing.empty()) {
    throw Error(BP_UNSUPPORTED,
                std::string(info.name) + ": the device does not have " + missing + " of Vulkan 1.2, which this driver needs");
  }
}

/// All that generated code depends on but the compiler.
std::string target_name(const DeviceInfo& info) {
  const uint32_t facts[] = {info.max_group,
                            info.local_bytes,
                            info.push_bytes,
                            info.warp,
                            info.storage_8,
                            info.storage_16,
                            info.int8,
                            info.int16,
                            info.int64,
                            info.float16,
                            info.float64,
                            info.atomics_64,
                            info.atomic_add_f32,
                            info.memory_model,
                            info.shuffle,
                            info.denorm_preserve,
                            info.signed_zero_inf_nan,
                            info.round_to_nearest,
                            info.float64_controls,
                            info.is_mesa,
                            info.is_lavapipe,
                            info.api_version};
  const uint64_t sum = checksum({reinterpret_cast<const char*>(facts), sizeof facts});
  std::string readable = info.name;
  for (char& c : readable) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return readable.substr(0, 40) + format("-%08x", static_cast<uint32_t>(sum ^ sum >> 32));
}

}  // namespace

DeviceInfo describe(const Session& session, uint32_t index, const Settings& settings) {
  const VkPhysicalDevice device = session.physical()[index];
  DeviceInfo out{};
  out.index = index;
  out.parts = 1;
  const auto extensions = extensions_of(session, device);
  auto properties = vk<VkPhysicalDeviceProperties2>();
  session.vkGetPhysicalDeviceProperties2(device, &properties);
  put(out.name, properties.properties.deviceName);
  out.type = properties.properties.deviceType;
  out.api_version = properties.properties.apiVersion;
  if (out.api_version < make_version(1, 2)) {
    throw Error(BP_UNSUPPORTED, format("%s: a device of Vulkan %u.%u; 1.2 or newer is needed", out.name, major_of(out.api_version),
                                       minor_of(out.api_version)));
  }
  const bool has_13 = out.api_version >= make_version(1, 3);
  auto v11 = vk<VkPhysicalDeviceVulkan11Properties>();
  auto v12 = vk<VkPhysicalDeviceVulkan12Properties>(&v11);
  auto v13 = vk<VkPhysicalDeviceVulkan13Properties>(&v12);
  auto import = vk<VkPhysicalDeviceExternalMemoryHostPropertiesEXT>(has_13 ? static_cast<void*>(&v13) : &v12);
  auto bus = vk<VkPhysicalDevicePCIBusInfoPropertiesEXT>();
  properties.pNext = import.pNext;
  if (has_extension(extensions, kImport)) properties.pNext = &import;
  if (has_extension(extensions, kBus)) bus.pNext = properties.pNext, properties.pNext = &bus;
  session.vkGetPhysicalDeviceProperties2(device, &properties);
  Features has;
  has.link(has_13, has_extension(extensions, kAtomicFloat), has_extension(extensions, kCooperative));
  session.vkGetPhysicalDeviceFeatures2(device, &has.core);
  need_features(out, has.v12);

  put(out.vendor, v12.driverName);
  put(out.driver_version, v12.driverInfo[0] ? v12.driverInfo : format("%u", properties.properties.driverVersion));
  std::memcpy(out.uuid, v11.deviceUUID, sizeof out.uuid);
  if (has_extension(extensions, kBus)) {
    put(out.bus_id, format("%04x:%02x:%02x.%x", bus.pciDomain, bus.pciBus, bus.pciDevice, bus.pciFunction));
  }
  choose_queues(session, device, out);
  out.timestamp_ns = properties.properties.limits.timestampPeriod;
  out.has_clock = out.timestamp_bits != 0 && has_extension(extensions, kClock);
  auto memory = vk<VkPhysicalDeviceMemoryProperties2>();
  session.vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  choose_memory(memory.memoryProperties, settings.memory, out);
  out.max_allocation = std::min(out.memory, v11.maxMemoryAllocationSize);
  if (has_13) out.max_allocation = std::min(out.max_allocation, v13.maxBufferSize);
  out.max_allocation -= std::min<uint64_t>(out.max_allocation, BP_MIN_ALIGNMENT);  // a buffer is that much longer
  out.import_alignment = import.minImportedHostPointerAlignment;
  out.has_budget = has_extension(extensions, kBudget);

  const VkPhysicalDeviceLimits& limits = properties.properties.limits;
  out.max_group = std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
  std::copy_n(limits.maxComputeWorkGroupCount, 3, out.max_grid);
  out.local_bytes = limits.maxComputeSharedMemorySize;
  out.push_bytes = limits.maxPushConstantsSize;
  out.warp = v11.subgroupSize;
  const VkPhysicalDeviceFeatures& core = has.core.features;
  out.storage_8 = has.v12.storageBuffer8BitAccess;
  out.storage_16 = has.v11.storageBuffer16BitAccess;
  out.int8 = has.v12.shaderInt8;
  out.int16 = core.shaderInt16;
  out.int64 = core.shaderInt64;
  out.float16 = has.v12.shaderFloat16;
  out.float64 = core.shaderFloat64;
  out.atomics_64 = core.shaderInt64 && has.v12.shaderBufferInt64Atomics;
  out.atomic_add_f32 = has.atomics.shaderBufferFloat32AtomicAdd;
  out.memory_model = has.v12.vulkanMemoryModel && has.v12.vulkanMemoryModelDeviceScope;
  // A subgroup of one size, and whole ones alone: else nobody knows which items shuffle.
  out.shuffle = has_13 && v13.minSubgroupSize == v13.maxSubgroupSize && v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  out.integer_dot = has.v13.shaderIntegerDotProduct;
  out.cooperative_matrix = has.cooperative.cooperativeMatrix;
  out.denorm_preserve = v12.shaderDenormPreserveFloat32;
  out.signed_zero_inf_nan = v12.shaderSignedZeroInfNanPreserveFloat32;
  out.round_to_nearest = v12.shaderRoundingModeRTEFloat32;
  out.float64_controls = out.denorm_preserve == (v12.shaderDenormPreserveFloat64 != 0) &&
                         out.signed_zero_inf_nan == (v12.shaderSignedZeroInfNanPreserveFloat64 != 0) &&
                         out.round_to_nearest == (v12.shaderRoundingModeRTEFloat64 != 0);
  out.is_mesa = std::strncmp(v12.driverInfo, "Mesa ", 5) == 0;
  out.is_lavapipe = std::strcmp(v12.driverName, "llvmpipe") == 0;
  put(out.target, target_name(out));
  return out;
}

VkDevice make_device(const Session& session, const DeviceInfo& info) {
  const VkPhysicalDevice physical = session.physical()[info.index];
  const auto extensions = extensions_of(session, physical);
  const bool has_13 = info.api_version >= make_version(1, 3);
  std::vector<const char*> names;
  for (const auto& [name, wanted] : {std::pair{kImport, info.import_alignment != 0},
                                     {kAtomicFloat, info.atomic_add_f32},
                                     {kBudget, info.has_budget},
                                     {kClock, info.has_clock},
                                     {kPortability, has_extension(extensions, kPortability)}}) {
    if (wanted) names.push_back(name);
  }
  Features on;
  on.link(has_13, info.atomic_add_f32, false);
  VkPhysicalDeviceFeatures& core = on.core.features;
  on.v12.bufferDeviceAddress = on.v12.timelineSemaphore = 1;
  on.v12.storageBuffer8BitAccess = info.storage_8;
  on.v11.storageBuffer16BitAccess = info.storage_16;
  on.v12.shaderInt8 = info.int8;
  core.shaderInt16 = info.int16;
  core.shaderInt64 = info.int64;
  on.v12.shaderFloat16 = info.float16;
  core.shaderFloat64 = info.float64;
  on.v12.shaderBufferInt64Atomics = info.atomics_64;
  on.v12.vulkanMemoryModel = on.v12.vulkanMemoryModelDeviceScope = info.memory_model;
  on.v13.shaderIntegerDotProduct = info.integer_dot;
  on.atomics.shaderBufferFloat32Atomics = on.atomics.shaderBufferFloat32AtomicAdd = info.atomic_add_f32;
  // The last queue goes first where there are several.
  std::vector<float> priorities(info.queues, info.queues > 1 ? 0.5f : 1.0f);
  priorities.back() = 1.0f;
  auto queue = vk<VkDeviceQueueCreateInfo>();
  queue.queueFamilyIndex = info.family;
  queue.queueCount = info.queues;
  queue.pQueuePriorities = priorities.data();
  auto wanted = vk<VkDeviceCreateInfo>(&on.core);
  wanted.queueCreateInfoCount = 1;
  wanted.pQueueCreateInfos = &queue;
  wanted.enabledExtensionCount = static_cast<uint32_t>(names.size());
  wanted.ppEnabledExtensionNames = names.data();
  VkDevice device = nullptr;
  check(session.vkCreateDevice(physical, &wanted, nullptr, &device), "vkCreateDevice");
  return device;
}

}  // namespace backplane::driver::vulkan
