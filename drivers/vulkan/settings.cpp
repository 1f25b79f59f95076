// drivers/vulkan/settings.cpp: the driver's options.
#include <sys/stat.h>
#include <unistd.h>

#include "survey.h"

namespace backplane::driver::vulkan {

const char* memory_name(MemoryKind kind) {
  constexpr const char* kNames[] = {"auto", "unified", "staged"};
  return kNames[static_cast<int32_t>(kind)];
}

Settings::Settings(const char* config) {
  Options options(config);
  library = options.text("library", "libvulkan.so.1", "<path>");
  device = options.text("device", "", "<part of its name, or number>");
  type = options.choice("device_type", -1,
                        {{"auto", -1},
                         {"discrete", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU},
                         {"integrated", VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU},
                         {"virtual", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU},
                         {"cpu", VK_PHYSICAL_DEVICE_TYPE_CPU},
                         {"all", -2}});
  sub_devices = static_cast<uint32_t>(options.integer("sub_devices", 1, 1, 16));
  memory = options.choice("memory", MemoryKind::any,
                          {{"auto", MemoryKind::any}, {"unified", MemoryKind::unified}, {"staged", MemoryKind::staged}});
  items = options.choice("items", 0u,
                         {{"auto", 0u}, {"1", 1u}, {"16", 16u}, {"32", 32u}, {"64", 64u}, {"128", 128u}, {"256", 256u}, {"512", 512u}});
  cache = options.text("cache", "", "<folder>");
  options.finish();
  if (!cache.empty() && ::mkdir(cache.c_str(), 0777) != 0 && ::access(cache.c_str(), W_OK) != 0) {
    throw Error(BP_INVALID_ARGUMENT, "options: cache=" + cache + ": the folder cannot be made or written");
  }
}

}  // namespace backplane::driver::vulkan
