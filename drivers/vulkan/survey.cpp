// drivers/vulkan/survey.cpp: chooses the devices and describes them, in a child process.
#include "survey.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "../engine/in_child.h"
#include "buffer.h"

namespace backplane::driver::vulkan {
namespace {

bool is_named(const Settings& settings, const char* name, uint32_t index) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  return settings.device.empty() || settings.device == std::to_string(index) ||
         lower(name).find(lower(settings.device)) != std::string::npos;
}

const char* type_name(int32_t type) {
  constexpr const char* kNames[] = {"other", "integrated", "discrete", "virtual", "cpu"};
  return type >= 0 && type < 5 ? kNames[type] : "other";
}

/// Whether the device has the host's addresses, as a processor does that is the device itself.
bool has_addresses_of_host(const Session& session, const DeviceInfo& info) {
  const VkDevice device = make_device(session, info);
  const DeviceCalls calls(session, device);
  bool same = false;
  try {
    const Buffer one(calls, device, 4096, info.memory_type, Buffer::Mapped::yes);
    same = reinterpret_cast<uint64_t>(one.host()) == one.address();
  } catch (...) {
    calls.vkDestroyDevice(device, nullptr);
    throw;
  }
  calls.vkDestroyDevice(device, nullptr);
  return same;
}

/// Device `info`, or several of it, each with its share of the memory.
void add_parts(DeviceInfo info, const Settings& settings, std::vector<DeviceInfo>& out) {
  const std::string name = info.name;
  info.parts = settings.sub_devices;
  info.memory /= info.parts;
  info.max_allocation = std::min(info.max_allocation, info.memory);
  for (info.part = 0; info.part < info.parts; ++info.part) {
    if (info.parts > 1) {
      std::snprintf(info.name, sizeof info.name, "%.96s, part %u of %u", name.c_str(), info.part + 1, info.parts);
    }
    DeviceInfo one = info;
    one.uuid[15] = static_cast<uint8_t>(one.uuid[15] + one.part);
    out.push_back(one);
  }
}

std::vector<DeviceInfo> look(const Settings& settings) {
  std::string seen, refused;
  const Session session(settings.library);
  std::vector<DeviceInfo> usable;
  for (uint32_t i = 0; i < session.physical().size(); ++i) {
    auto properties = vk<VkPhysicalDeviceProperties2>();
    session.vkGetPhysicalDeviceProperties2(session.physical()[i], &properties);
    const char* name = properties.properties.deviceName;
    const int32_t type = properties.properties.deviceType;
    seen += format("%s%u (%s, %s)", seen.empty() ? "" : ", ", i, name, type_name(type));
    if (!is_named(settings, name, i) || (settings.type >= 0 && settings.type != type)) continue;
    try {
      usable.push_back(describe(session, i, settings));
    } catch (const Error& error) {
      refused += std::string("\n  ") + error.what();
    }
  }
  if (usable.empty()) {
    if (seen.empty()) throw without_device("Vulkan has no device");
    if (!refused.empty()) throw Error(BP_UNSUPPORTED, "no Vulkan device can be used:" + refused);
    throw Error(BP_UNSUPPORTED, "no Vulkan device" + (settings.device.empty() ? "" : " of device=" + settings.device) +
                                    (settings.type >= 0 ? std::string(" of device_type=") + type_name(settings.type) : "") +
                                    "; the devices are " + seen);
  }
  // The best kind, unless one was asked for: a processor's device is for want of a better one.
  if (settings.type == -1) {
    for (const int32_t type : {VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
                               VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, VK_PHYSICAL_DEVICE_TYPE_OTHER, VK_PHYSICAL_DEVICE_TYPE_CPU}) {
      const auto is = [&](const DeviceInfo& one) { return one.type == type; };
      if (std::none_of(usable.begin(), usable.end(), is)) continue;
      usable.erase(std::remove_if(usable.begin(), usable.end(), [&](const DeviceInfo& one) { return !is(one); }), usable.end());
      break;
    }
  }
  std::vector<DeviceInfo> out;
  for (DeviceInfo& info : usable) {
    info.same_address = info.memory_kind == MemoryKind::unified && has_addresses_of_host(session, info);
    add_parts(info, settings, out);
  }
  const bool unique = std::all_of(out.begin(), out.end(), [](const DeviceInfo& one) { return one.same_address; });
  for (size_t i = 1; i < out.size(); ++i) out[i].tagged = !unique;
  return out;
}

}  // namespace

Survey take_survey(const Settings& settings) {
  if (loader_is_open()) return Survey{look(settings)};  // there is nothing left to keep out of this process
  const std::string answer = in_child("Vulkan", [&] {
    const Survey found = Survey{look(settings)};
    return std::string(reinterpret_cast<const char*>(found.devices.data()), found.devices.size() * sizeof(DeviceInfo));
  });
  Survey survey{std::vector<DeviceInfo>(answer.size() / sizeof(DeviceInfo))};
  std::memcpy(survey.devices.data(), answer.data(), answer.size());
  return survey;
}

}  // namespace backplane::driver::vulkan
