// drivers/vulkan/library.cpp: the loader and its instance, and the names of Vulkan's results.
#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace backplane::driver::vulkan {
namespace {

std::atomic<pid_t> opened_by{0};

}  // namespace

const Loader& open_loader(const std::string& place) {
  static auto* const mutex = new std::mutex;
  static auto* const open = new std::map<std::string, std::unique_ptr<Loader>>;
  std::lock_guard lock(*mutex);
  if (const auto known = open->find(place); known != open->end()) {
    opened_by = ::getpid();
    return *known->second;
  }
  void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    throw without_device(std::string("no Vulkan library can be opened: ") + (why ? why : place.c_str()));
  }
  auto loader = std::make_unique<Loader>();
  loader->vkGetInstanceProcAddr = reinterpret_cast<decltype(loader->vkGetInstanceProcAddr)>(::dlsym(library, "vkGetInstanceProcAddr"));
  if (!loader->vkGetInstanceProcAddr) throw Error(BP_UNSUPPORTED, place + ": not a Vulkan library: it has no vkGetInstanceProcAddr");
#define BP_FIND(result, name, parameters)                                                                 \
  loader->name = reinterpret_cast<decltype(loader->name)>(loader->vkGetInstanceProcAddr(nullptr, #name)); \
  if (!loader->name) throw Error(BP_UNSUPPORTED, place + ": not a library of Vulkan 1.2: it has no " #name);
  BP_VULKAN_GLOBAL(BP_FIND)
#undef BP_FIND
  opened_by = ::getpid();
  return *open->emplace(place, std::move(loader)).first->second;
}

bool loader_is_open() { return opened_by == ::getpid(); }

Session::Session(const std::string& library) {
  const Loader& loader = open_loader(library);
  uint32_t version = 0;
  check(loader.vkEnumerateInstanceVersion(&version), "vkEnumerateInstanceVersion");
  if (version < make_version(1, 2)) {
    throw Error(BP_UNSUPPORTED,
                format("%s: a loader of Vulkan %u.%u; 1.2 or newer is needed", library.c_str(), major_of(version), minor_of(version)));
  }
  auto about = vk<VkApplicationInfo>();
  about.pApplicationName = about.pEngineName = "Backplane";
  about.apiVersion = std::min(version, make_version(1, 3));
  auto info = vk<VkInstanceCreateInfo>();
  info.pApplicationInfo = &about;
  const auto extensions = listed<VkExtensionProperties>("vkEnumerateInstanceExtensionProperties", [&](uint32_t* count, auto* out) {
    return loader.vkEnumerateInstanceExtensionProperties(nullptr, count, out);
  });
  // Drivers over another interface, such as MoltenVK, are listed only for who asks for them.
  static constexpr const char* kPortability = "VK_KHR_portability_enumeration";
  if (has_extension(extensions, kPortability)) {
    info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &kPortability;
  }
  const VkResult code = loader.vkCreateInstance(&info, nullptr, &instance_);
  if (code == VK_ERROR_INCOMPATIBLE_DRIVER) throw without_device("Vulkan has no driver of a device (vkCreateInstance)");
  check(code, "vkCreateInstance");
#define BP_FIND(result, name, parameters) name = reinterpret_cast<decltype(name)>(loader.vkGetInstanceProcAddr(instance_, #name));
  BP_VULKAN_INSTANCE(BP_FIND)
#undef BP_FIND
  try {
#define BP_REQUIRE(result, name, parameters) \
  if (!name) throw Error(BP_UNSUPPORTED, library + ": not a library of Vulkan 1.2: it has no " #name);
    BP_VULKAN_INSTANCE(BP_REQUIRE)
#undef BP_REQUIRE
    physical_ = listed<VkPhysicalDevice>("vkEnumeratePhysicalDevices",
                                         [&](uint32_t* count, auto* out) { return vkEnumeratePhysicalDevices(instance_, count, out); });
  } catch (...) {
    if (vkDestroyInstance) vkDestroyInstance(instance_, nullptr);
    throw;
  }
}

Session::~Session() { vkDestroyInstance(instance_, nullptr); }

DeviceCalls::DeviceCalls(const Session& session, VkDevice device) {
#define BP_FIND(result, name, parameters) name = reinterpret_cast<decltype(name)>(session.vkGetDeviceProcAddr(device, #name));
#define BP_REQUIRE(result, name, parameters) \
  BP_FIND(result, name, parameters)          \
  if (!name) throw Error(BP_UNSUPPORTED, "the driver of the Vulkan device has no " #name);
  BP_VULKAN_DEVICE(BP_REQUIRE)
  BP_VULKAN_DEVICE_OPTIONAL(BP_FIND)
#undef BP_REQUIRE
#undef BP_FIND
}

Error without_device(const std::string& why) {
  return {BP_UNSUPPORTED,
          why +
              "\nInstall the loader and a driver (apt install libvulkan1, and the GPU's driver, or mesa-vulkan-drivers, which "
              "makes a device of the CPU as well), or name another loader by the option library=/path/libvulkan.so.1"};
}

std::string code_name(VkResult code) {
  static constexpr struct {
    VkResult code;
    const char* name;
  } kNames[] = {
      {VK_NOT_READY, "VK_NOT_READY"},
      {VK_TIMEOUT, "VK_TIMEOUT"},
      {VK_INCOMPLETE, "VK_INCOMPLETE"},
      {VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"},
      {VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"},
      {VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"},
      {VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST"},
      {VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"},
      {VK_ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT"},
      {VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT"},
      {VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT"},
      {VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"},
      {VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"},
      {VK_ERROR_FRAGMENTED_POOL, "VK_ERROR_FRAGMENTED_POOL"},
      {VK_ERROR_UNKNOWN, "VK_ERROR_UNKNOWN"},
      {VK_ERROR_OUT_OF_POOL_MEMORY, "VK_ERROR_OUT_OF_POOL_MEMORY"},
      {VK_ERROR_INVALID_EXTERNAL_HANDLE, "VK_ERROR_INVALID_EXTERNAL_HANDLE"},
      {VK_ERROR_FRAGMENTATION, "VK_ERROR_FRAGMENTATION"},
  };
  for (const auto& known : kNames) {
    if (known.code == code) return std::string(known.name) + " (" + std::to_string(code) + ")";
  }
  return "VkResult " + std::to_string(code);
}

Error failure(VkResult code, const char* call) {
  const std::string text = std::string(call) + ": " + code_name(code);
  switch (code) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_MEMORY_MAP_FAILED:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_FRAGMENTATION:
      return {BP_OUT_OF_MEMORY, text};
    case VK_ERROR_DEVICE_LOST:
      return {BP_DEVICE_LOST, text};
    case VK_ERROR_INITIALIZATION_FAILED:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_LAYER_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return {BP_UNSUPPORTED, text};
    default:
      return {BP_INTERNAL, text};
  }
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const auto& one) { return std::strcmp(one.extensionName, name) == 0; });
}

}  // namespace backplane::driver::vulkan
