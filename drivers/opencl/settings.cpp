// drivers/opencl/settings.cpp: the driver's options.
#include "survey.h"

namespace backplane::driver::opencl {

const char* memory_name(MemoryKind kind) {
  constexpr const char* kNames[] = {"auto", "fine", "coarse", "usm", "buffers"};
  return kNames[static_cast<int32_t>(kind)];
}

Settings::Settings(const char* config) {
  Options options(config);
  library = options.text("library", "", "<path>");
  platform = options.text("platform", "", "<part of its name, or number>");
  type = options.choice("device_type", cl_bitfield{0},
                        {{"auto", 0},
                         {"gpu", CL_DEVICE_TYPE_GPU},
                         {"cpu", CL_DEVICE_TYPE_CPU},
                         {"accelerator", CL_DEVICE_TYPE_ACCELERATOR},
                         {"all", CL_DEVICE_TYPE_ALL}});
  sub_devices = static_cast<uint32_t>(options.integer("sub_devices", 1, 1, 64));
  memory = options.choice("memory", MemoryKind::any,
                          {{"auto", MemoryKind::any},
                           {"fine", MemoryKind::fine},
                           {"coarse", MemoryKind::coarse},
                           {"usm", MemoryKind::usm},
                           {"buffers", MemoryKind::buffers}});
  language = options.choice("language", Language::c, {{"c", Language::c}, {"spirv", Language::spirv}});
  items = options.choice("items", 0u,
                         {{"auto", 0u}, {"1", 1u}, {"16", 16u}, {"32", 32u}, {"64", 64u}, {"128", 128u}, {"256", 256u}, {"512", 512u}});
  throttle =
      options.choice("throttle", cl_properties{0},
                     {{"none", 0}, {"low", CL_QUEUE_HINT_LOW_KHR}, {"med", CL_QUEUE_HINT_MED_KHR}, {"high", CL_QUEUE_HINT_HIGH_KHR}});
  options.finish();
}

}  // namespace backplane::driver::opencl
