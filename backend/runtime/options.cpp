// runtime/options.cpp: reads and splits the environment's settings.
#include "runtime/options.h"

#include <cstdlib>
#include <cstring>

namespace backplane {

const char* device_name() { return BACKPLANE_DEVICE_NAME; }

// These variables choose what code runs, so a process with more rights than its user (setuid, file capabilities) ignores them.
std::optional<std::string> env(const char* name) {
  const std::string variable = std::string(BACKPLANE_ENV_PREFIX "_") + name;
  const char* value = secure_getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool launch_blocking() {
  static const bool value = [] {
    const auto text = env("LAUNCH_BLOCKING");
    return text && *text != "0";
  }();
  return value;
}

}  // namespace backplane
