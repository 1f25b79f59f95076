// runtime/loader.h: from a path, shims and options to a checked driver table. Calls nothing of the driver but bp_driver_get and query_ext.
#pragma once

#include <string>
#include <vector>

#include "runtime/driver.h"

namespace backplane {

struct LoadRequest {
  std::string driver;              // absolute path
  std::vector<std::string> shims;  // outermost first: SDK names or absolute paths
  std::string options;             // as <PREFIX>_OPTIONS
};

// Throws c10::Error that says what was found, what is needed and the cure. `shims` becomes what was loaded, emulate included when the
// driver needed it. The libraries stay loaded for the life of the process.
Driver load(LoadRequest& request);

// The folder of lib<device>.so, where the package's own driver and shims lie.
std::string library_folder();

}  // namespace backplane
