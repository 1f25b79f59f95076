// runtime/visible_devices.cpp: asks the driver for its devices and applies the visibility list.
#include "runtime/visible_devices.h"

#include <c10/util/Exception.h>
#include <backplane/driver/cxx/table.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "runtime/count_in_child.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/options.h"
#include "runtime/text.h"

namespace backplane {
namespace inventory_impl {
namespace {

void must(int32_t status, const char* call, c10::DeviceIndex device, const bp_driver& table) {
  if (status != BP_OK) throw_status(status, call, device, readable(driver::last_error_text(table)));
}

std::vector<VisibleDevice> ask(const bp_driver& table) {
  int32_t count = 0;
  must(table.device_count(table.self, &count), "device_count", -1, table);
  TORCH_CHECK(count >= 0 && count <= kMaxDevices, "The driver reports ", count, " devices; between 0 and ", kMaxDevices, " are supported.");
  std::vector<VisibleDevice> devices;
  for (int32_t i = 0; i < count; ++i) {
    VisibleDevice device{i, {}};
    device.properties.struct_size = sizeof(bp_device_properties);
    must(table.device_properties(table.self, i, &device.properties), "device_properties", static_cast<c10::DeviceIndex>(i), table);
    const auto& p = device.properties;
    TORCH_CHECK(p.alignment >= BP_MIN_ALIGNMENT && (p.alignment & (p.alignment - 1)) == 0, "The driver reports an alignment of ",
                p.alignment, " bytes for device ", i, "; a power of two of at least ", BP_MIN_ALIGNMENT, " is required.");
    TORCH_CHECK((p.copy_alignment & (p.copy_alignment - 1)) == 0 && p.copy_alignment <= p.alignment,
                "The driver reports a copy_alignment of ", p.copy_alignment, " bytes for device ", i,
                "; 0 or a power of two of at most the alignment of alloc, ", p.alignment, ", is required.");
    TORCH_CHECK(int64_t{p.priority_least} - p.priority_greatest < INT32_MAX, "The driver's priority range of device ", i, ", ",
                p.priority_least, " to ", p.priority_greatest, ", is too wide: more priorities than an int32 counts.");
    TORCH_CHECK(p.priority_greatest <= 0 && p.priority_least >= 0, "The driver's priority range of device ", i, ", ", p.priority_least,
                " to ", p.priority_greatest, ", does not include 0, the default.");
    devices.push_back(device);
  }
  return devices;
}

std::string hex_digits(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c != '-') digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return digits;
}

// Position of the one device whose uuid starts with `text`, or -1.
int by_uuid(std::string text, const std::vector<VisibleDevice>& all) {
  for (const std::string& prefix : {std::string("GPU-"), std::string(device_name()) + "-"}) {
    if (text.rfind(prefix, 0) == 0) text = text.substr(prefix.size());
  }
  const std::string wanted = hex_digits(text);
  int found = -1;
  for (size_t i = 0; i < all.size() && !wanted.empty(); ++i) {
    if (hex_digits(uuid_text(all[i].properties)).rfind(wanted, 0) != 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace
}  // namespace inventory_impl

std::string uuid_text(const bp_device_properties& properties) {
  std::string text;
  for (size_t i = 0; i < sizeof(properties.uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char byte[3];
    std::snprintf(byte, sizeof(byte), "%02x", properties.uuid[i]);
    text += byte;
  }
  return text;
}

std::vector<VisibleDevice> all_devices(const bp_driver& table) {
  using namespace inventory_impl;
  return (table.flags & BP_DRIVER_COUNT_FORKS) != 0 ? count_in_child([&] { return ask(table); }) : ask(table);
}

std::optional<std::string> visible_list() {
  const char* list = secure_getenv(BACKPLANE_ENV_PREFIX "_VISIBLE_DEVICES");
  return list == nullptr ? std::nullopt : std::optional<std::string>(list);
}

std::vector<VisibleDevice> visible_devices(const std::vector<VisibleDevice>& all, const std::optional<std::string>& list) {
  if (!list) return all;
  std::set<int> chosen;
  std::vector<VisibleDevice> visible;
  std::stringstream stream(*list);
  for (std::string item; std::getline(stream, item, ',');) {
    item.erase(std::remove(item.begin(), item.end(), ' '), item.end());
    int index = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), index);
    if (error != std::errc() || end != item.data() + item.size()) index = inventory_impl::by_uuid(item, all);
    if (index < 0 || static_cast<size_t>(index) >= all.size()) break;
    if (!chosen.insert(index).second) return {};
    visible.push_back(all[static_cast<size_t>(index)]);
  }
  return visible;
}

}  // namespace backplane
