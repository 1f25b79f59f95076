// drivers/engine/packages.h: where pip has put a vendor's libraries: the folders of Python packages, and the files in them.
#pragma once

#include <glob.h>
#include <link.h>

#include <algorithm>
#include <string>
#include <vector>

namespace backplane::driver {

inline std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// The folders of Python packages that something in this process was loaded from, such as torch or this driver.
inline std::vector<std::string> package_folders_in_use() {
  std::vector<std::string> found;
  const auto note = [](dl_phdr_info* info, size_t, void* arg) {
    auto& known = *static_cast<std::vector<std::string>*>(arg);
    for (std::string folder = info->dlpi_name ? info->dlpi_name : ""; !folder.empty(); folder = parent_of(folder)) {
      const std::string name = folder.substr(folder.rfind('/') + 1);
      if (name != "site-packages" && name != "dist-packages") continue;
      if (std::find(known.begin(), known.end(), folder) == known.end()) known.push_back(folder);
    }
    return 0;
  };
  dl_iterate_phdr(note, &found);
  return found;
}

/// Files that match a pattern of glob, the highest version first.
inline std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace backplane::driver
