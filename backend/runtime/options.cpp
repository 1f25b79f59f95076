// runtime/options.cpp: reading and splitting the environment's settings.
#include "runtime/options.h"

#include <cstdlib>
#include <cstring>

namespace backplane {

const char* device_name() { return BACKPLANE_DEVICE_NAME; }

// These variables choose what code runs, so a process with more rights than its user (setuid, file capabilities) has none of them.
std::optional<std::string> env(const char* name) {
  const std::string variable = std::string(BACKPLANE_ENV_PREFIX "_") + name;
  const char* value = secure_getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::map<std::string, std::string> split_options(const std::string& text) {
  std::map<std::string, std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) continue;
    // A shim's name is what stands before a dot in the key; a dot in the value does not count.
    const size_t dot = item.substr(0, item.find('=')).find('.');
    const std::string shim = dot == std::string::npos ? "" : item.substr(0, dot);
    if (dot != std::string::npos) item = item.substr(dot + 1);
    std::string& part = parts[shim];
    part += (part.empty() ? "" : ",") + item;
  }
  return parts;
}

bool launch_blocking() {
  static const bool value = [] {
    const auto text = env("LAUNCH_BLOCKING");
    return text && *text != "0";
  }();
  return value;
}

}  // namespace backplane
