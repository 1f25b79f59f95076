// runtime/loader.h: from a path, shims and options to a checked driver table. Calls only bp_driver_get and query_ext of the driver.
#pragma once

#include <string>
#include <vector>

#include "runtime/driver.h"

namespace backplane {

struct LoadRequest {
  std::string driver;              // absolute path
  std::vector<std::string> shims;  // outermost first: SDK names or absolute paths
  std::string options;             // in the format of <PREFIX>_OPTIONS
};

// Throws c10::Error that says what was found, what is required and what to do. `shims` becomes the list that was loaded, including emulate
// if the driver requires it. The libraries stay loaded for the life of the process.
Driver load(LoadRequest& request);

// The folder of lib<device>.so, which contains the package's own driver and shims.
std::string library_folder();

}  // namespace backplane
