// vulkan_wrap.cpp: a Vulkan loader over libvulkan.so.1 whose devices have less than lavapipe, or more, or fail.
//
// VULKAN_WRAP lists what is different, in words: "no-timeline,lost=12". A number counts calls: from that one on they fail.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../../drivers/vulkan/vk_functions.h"

using namespace backplane::driver::vulkan;

namespace {

using Find = VkVoidFunction (*)(VkInstance, const char*);
using FindOfDevice = VkVoidFunction (*)(VkDevice, const char*);

Find find() {
  static const auto found = reinterpret_cast<Find>(dlsym(dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL), "vkGetInstanceProcAddr"));
  return found;
}

/// What follows the word in VULKAN_WRAP: "" for a word without a number; NULL: it is not there.
const char* wrap(const char* word) {
  const char* all = std::getenv("VULKAN_WRAP");
  const size_t length = std::strlen(word);
  for (const char* at = all; at && *at; at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr) {
    if (std::strncmp(at, word, length) == 0 && (!at[length] || at[length] == ',' || at[length] == '=')) return at + length;
  }
  return nullptr;
}
bool fails(const char* word, std::atomic<long>& calls) {
  const char* from = wrap(word);
  return from && ++calls >= std::atol(from + 1);
}

template <class Struct>
Struct* in_chain(void* first) {
  struct Head {
    int32_t type;
    Head* next;
  };
  for (auto* at = static_cast<Head*>(first); at; at = at->next) {
    if (at->type == Struct::kType) return reinterpret_cast<Struct*>(at);
  }
  return nullptr;
}

/// The real functions of the newest instance and the newest device: what they are found by goes, and the loader ends a driver with its last
/// instance.
std::mutex mutex;
std::map<std::string, VkVoidFunction> found;
template <class Function>
Function real_one(const char* name) {
  std::lock_guard lock(mutex);
  return reinterpret_cast<Function>(found.at(name));
}
void keep(const char* name, VkVoidFunction function) {
  std::lock_guard lock(mutex);
  found[name] = function;
}

VkResult create_instance(const VkInstanceCreateInfo* info, VkAllocator* allocator, VkInstance* out) {
  if (wrap("no-driver")) return VK_ERROR_INCOMPATIBLE_DRIVER;
  using Create = VkResult (*)(const VkInstanceCreateInfo*, VkAllocator*, VkInstance*);
  const VkResult code = reinterpret_cast<Create>(find()(nullptr, "vkCreateInstance"))(info, allocator, out);
  if (code != VK_SUCCESS) return code;
  for (const char* name : {"vkEnumeratePhysicalDevices", "vkGetPhysicalDeviceProperties2", "vkGetPhysicalDeviceFeatures2",
                           "vkEnumerateDeviceExtensionProperties", "vkGetPhysicalDeviceMemoryProperties2",
                           "vkGetPhysicalDeviceQueueFamilyProperties", "vkCreateDevice", "vkGetDeviceProcAddr"}) {
    keep(name, find()(*out, name));
  }
  return code;
}

VkResult enumerate(VkInstance instance, uint32_t* count, VkPhysicalDevice* out) {
  if (wrap("no-device")) return *count = 0, VK_SUCCESS;
  const auto real = real_one<VkResult (*)(VkInstance, uint32_t*, VkPhysicalDevice*)>("vkEnumeratePhysicalDevices");
  return real(instance, count, out);
}

void properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2* out) {
  const auto real = real_one<void (*)(VkPhysicalDevice, VkPhysicalDeviceProperties2*)>("vkGetPhysicalDeviceProperties2");
  real(device, out);
  if (wrap("discrete")) out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  if (wrap("old")) out->properties.apiVersion = make_version(1, 1);
  if (wrap("vulkan-1.2")) out->properties.apiVersion = make_version(1, 2);
}

void features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2* out) {
  const auto real = real_one<void (*)(VkPhysicalDevice, VkPhysicalDeviceFeatures2*)>("vkGetPhysicalDeviceFeatures2");
  real(device, out);
  auto* const v12 = in_chain<VkPhysicalDeviceVulkan12Features>(out);
  if (wrap("no-address")) v12->bufferDeviceAddress = 0;
  if (wrap("no-timeline")) v12->timelineSemaphore = 0;
  if (wrap("no-int64")) out->features.shaderInt64 = 0;
  if (wrap("no-float64")) out->features.shaderFloat64 = 0;
  if (wrap("no-small-types")) {
    v12->storageBuffer8BitAccess = v12->shaderInt8 = 0;
    in_chain<VkPhysicalDeviceVulkan11Features>(out)->storageBuffer16BitAccess = out->features.shaderInt16 = 0;
  }
}

VkResult extensions(VkPhysicalDevice device, const char* layer, uint32_t* count, VkExtensionProperties* out) {
  const auto real =
      real_one<VkResult (*)(VkPhysicalDevice, const char*, uint32_t*, VkExtensionProperties*)>("vkEnumerateDeviceExtensionProperties");
  uint32_t all = 0;
  real(device, layer, &all, nullptr);
  std::vector<VkExtensionProperties> list(all);
  real(device, layer, &all, list.data());
  for (const auto& [word, name] : {std::pair{"no-import", "VK_EXT_external_memory_host"},
                                   {"no-clock", "VK_EXT_calibrated_timestamps"},
                                   {"no-float-atomics", "VK_EXT_shader_atomic_float"}}) {
    const char* const left_out = name;
    const auto is = [&](const auto& one) { return std::strcmp(one.extensionName, left_out) == 0; };
    if (wrap(word)) list.erase(std::remove_if(list.begin(), list.end(), is), list.end());
  }
  if (wrap("budget")) list.push_back({"VK_EXT_memory_budget", 1});
  if (out) std::copy_n(list.begin(), std::min<size_t>(*count, list.size()), out);
  *count = static_cast<uint32_t>(list.size());
  return VK_SUCCESS;
}

std::map<VkDeviceMemory, uint64_t> allocated;  // under the mutex
uint64_t bytes_in_use() {
  std::lock_guard lock(mutex);
  uint64_t bytes = 0;
  for (const auto& one : allocated) bytes += one.second;
  return bytes;
}

void memory(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2* out) {
  const auto real = real_one<void (*)(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2*)>("vkGetPhysicalDeviceMemoryProperties2");
  real(device, out);
  if (wrap("not-cached")) out->memoryProperties.memoryTypes[0].propertyFlags &= ~VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  if (auto* budget = in_chain<VkPhysicalDeviceMemoryBudgetPropertiesEXT>(out)) {
    budget->heapBudget[0] = out->memoryProperties.memoryHeaps[0].size;
    budget->heapUsage[0] = bytes_in_use();
  }
}

constexpr uint32_t kQueues = 4;
void families(VkPhysicalDevice device, uint32_t* count, VkQueueFamilyProperties* out) {
  const auto real = real_one<void (*)(VkPhysicalDevice, uint32_t*, VkQueueFamilyProperties*)>("vkGetPhysicalDeviceQueueFamilyProperties");
  real(device, count, out);
  if (!out) return;
  if (wrap("queues")) out[0].queueCount = kQueues;
  if (wrap("no-timestamps")) out[0].timestampValidBits = 0;
}

VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info, VkAllocator* allocator, VkDevice* out) {
  VkDeviceQueueCreateInfo queue = *info->pQueueCreateInfos;
  VkDeviceCreateInfo changed = *info;
  changed.pQueueCreateInfos = &queue;
  queue.queueCount = 1;  // lavapipe's
  std::vector<const char*> names(info->ppEnabledExtensionNames, info->ppEnabledExtensionNames + info->enabledExtensionCount);
  const auto is_ours = [](const char* name) { return std::strcmp(name, "VK_EXT_memory_budget") == 0; };
  names.erase(std::remove_if(names.begin(), names.end(), is_ours), names.end());
  changed.enabledExtensionCount = static_cast<uint32_t>(names.size());
  changed.ppEnabledExtensionNames = names.data();
  const auto real = real_one<VkResult (*)(VkPhysicalDevice, const VkDeviceCreateInfo*, VkAllocator*, VkDevice*)>("vkCreateDevice");
  const VkResult code = real(physical, &changed, allocator, out);
  if (code != VK_SUCCESS) return code;
  for (const char* name : {"vkGetDeviceQueue", "vkQueueSubmit", "vkDeviceWaitIdle", "vkWaitSemaphores", "vkAllocateMemory", "vkFreeMemory",
                           "vkGetBufferDeviceAddress"}) {
    keep(name, real_one<FindOfDevice>("vkGetDeviceProcAddr")(*out, name));
  }
  return code;
}

std::map<VkQueue, VkDevice> device_of;  // under the mutex
std::atomic<VkDevice> lost{nullptr};
void get_queue(VkDevice device, uint32_t family, uint32_t, VkQueue* out) {
  real_one<void (*)(VkDevice, uint32_t, uint32_t, VkQueue*)>("vkGetDeviceQueue")(device, family, 0, out);
  std::lock_guard lock(mutex);
  device_of[*out] = device;
}

VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo* what, VkFence fence) {
  static std::atomic<long> calls{0}, full_calls{0};
  static std::mutex one_queue;
  VkDevice device = nullptr;
  {
    std::lock_guard lock(mutex);
    device = device_of[queue];
  }
  if (!lost && fails("lost", calls)) {
    real_one<VkResult (*)(VkDevice)>("vkDeviceWaitIdle")(device);  // nothing of it runs any more
    lost = device;
  }
  if (lost == device) return VK_ERROR_DEVICE_LOST;
  if (fails("full", full_calls)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  const auto real = real_one<VkResult (*)(VkQueue, uint32_t, const VkSubmitInfo*, VkFence)>("vkQueueSubmit");
  std::lock_guard lock(one_queue);
  return real(queue, count, what, fence);
}

VkResult wait(VkDevice device, const VkSemaphoreWaitInfo* what, uint64_t timeout) {
  if (lost == device) return VK_ERROR_DEVICE_LOST;
  return real_one<VkResult (*)(VkDevice, const VkSemaphoreWaitInfo*, uint64_t)>("vkWaitSemaphores")(device, what, timeout);
}

VkResult allocate(VkDevice device, const VkMemoryAllocateInfo* what, VkAllocator* allocator, VkDeviceMemory* out) {
  static std::atomic<long> calls{0};
  if (fails("memory", calls)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  const auto real = real_one<VkResult (*)(VkDevice, const VkMemoryAllocateInfo*, VkAllocator*, VkDeviceMemory*)>("vkAllocateMemory");
  const VkResult code = real(device, what, allocator, out);
  std::lock_guard lock(mutex);
  if (code == VK_SUCCESS) allocated[*out] = what->allocationSize;
  return code;
}

void free_memory(VkDevice device, VkDeviceMemory memory, VkAllocator* allocator) {
  {
    std::lock_guard lock(mutex);
    allocated.erase(memory);
  }
  real_one<void (*)(VkDevice, VkDeviceMemory, VkAllocator*)>("vkFreeMemory")(device, memory, allocator);
}

uint64_t address(VkDevice device, const VkBufferDeviceAddressInfo* of) {
  const auto real = real_one<uint64_t (*)(VkDevice, const VkBufferDeviceAddressInfo*)>("vkGetBufferDeviceAddress");
  const uint64_t found = real(device, of);
  return wrap("elsewhere") ? found + (uint64_t{1} << 50) : found;
}

VkVoidFunction find_of_device(VkDevice device, const char* name) {
  static constexpr struct {
    const char* name;
    VkVoidFunction (*mine)();
  } kMine[] = {
      {"vkGetDeviceQueue", [] { return reinterpret_cast<VkVoidFunction>(get_queue); }},
      {"vkQueueSubmit", [] { return reinterpret_cast<VkVoidFunction>(submit); }},
      {"vkWaitSemaphores", [] { return reinterpret_cast<VkVoidFunction>(wait); }},
      {"vkAllocateMemory", [] { return reinterpret_cast<VkVoidFunction>(allocate); }},
      {"vkFreeMemory", [] { return reinterpret_cast<VkVoidFunction>(free_memory); }},
      {"vkGetBufferDeviceAddress", [] { return reinterpret_cast<VkVoidFunction>(address); }},
  };
  for (const auto& one : kMine) {
    if (std::strcmp(one.name, name) == 0) return one.mine();
  }
  return real_one<FindOfDevice>("vkGetDeviceProcAddr")(device, name);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) VkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  static constexpr struct {
    const char* name;
    VkVoidFunction (*mine)();
  } kMine[] = {
      {"vkCreateInstance", [] { return reinterpret_cast<VkVoidFunction>(create_instance); }},
      {"vkEnumeratePhysicalDevices", [] { return reinterpret_cast<VkVoidFunction>(enumerate); }},
      {"vkGetPhysicalDeviceProperties2", [] { return reinterpret_cast<VkVoidFunction>(properties); }},
      {"vkGetPhysicalDeviceFeatures2", [] { return reinterpret_cast<VkVoidFunction>(features); }},
      {"vkEnumerateDeviceExtensionProperties", [] { return reinterpret_cast<VkVoidFunction>(extensions); }},
      {"vkGetPhysicalDeviceMemoryProperties2", [] { return reinterpret_cast<VkVoidFunction>(memory); }},
      {"vkGetPhysicalDeviceQueueFamilyProperties", [] { return reinterpret_cast<VkVoidFunction>(families); }},
      {"vkCreateDevice", [] { return reinterpret_cast<VkVoidFunction>(create_device); }},
      {"vkGetDeviceProcAddr", [] { return reinterpret_cast<VkVoidFunction>(find_of_device); }},
  };
  for (const auto& one : kMine) {
    if (std::strcmp(one.name, name) == 0) return one.mine();
  }
  return find()(instance, name);
}
