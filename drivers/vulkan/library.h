// drivers/vulkan/library.h: opens the Vulkan loader, makes an instance of it, and turns its results into errors of the driver.
#pragma once

#include <string>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "vk_functions.h"

namespace backplane::driver::vulkan {

/// The functions of a loader. It stays open for the life of the process.
struct Loader {
  VkVoidFunction (*vkGetInstanceProcAddr)(VkInstance, const char*) = nullptr;
#define BP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  BP_VULKAN_GLOBAL(BP_POINTER)
#undef BP_POINTER
};

/// Opens a loader, or gives what was opened before. Throws Error(BP_UNSUPPORTED): there is none, or it is no Vulkan 1.2.
const Loader& open_loader(const std::string& place);

/// True if this process, and not a parent before a fork, has opened one: its threads and locks are then as they should be.
bool loader_is_open();

/// A VkInstance, its functions and its physical devices.
class Session {
 public:
  explicit Session(const std::string& library);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

#define BP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  BP_VULKAN_INSTANCE(BP_POINTER)
#undef BP_POINTER
  const std::vector<VkPhysicalDevice>& physical() const { return physical_; }

 private:
  VkInstance instance_ = nullptr;
  std::vector<VkPhysicalDevice> physical_;
};

/// The functions of a device.
struct DeviceCalls {
#define BP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  BP_VULKAN_DEVICE(BP_POINTER)
  BP_VULKAN_DEVICE_OPTIONAL(BP_POINTER)
#undef BP_POINTER
  DeviceCalls(const Session& session, VkDevice device);
};

/// With what to install.
Error without_device(const std::string& why);

/// "vkQueueSubmit: VK_ERROR_DEVICE_LOST (-4)" as an error: OUT_OF_MEMORY, DEVICE_LOST, UNSUPPORTED or INTERNAL.
Error failure(VkResult code, const char* call);
std::string code_name(VkResult code);

inline void check(VkResult code, const char* call) {
  if (code != VK_SUCCESS) [[unlikely]]
    throw failure(code, call);
}

/// What one of Vulkan's functions lists: `list(&count, out)`.
template <class Item, class List>
std::vector<Item> listed(const char* call, List&& list) {
  for (;;) {
    uint32_t count = 0;
    check(list(&count, static_cast<Item*>(nullptr)), call);
    std::vector<Item> out(count);
    const VkResult code = count ? list(&count, out.data()) : VK_SUCCESS;
    if (code == VK_INCOMPLETE) continue;
    check(code, call);
    out.resize(count);
    return out;
  }
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name);

}  // namespace backplane::driver::vulkan
