// runtime/file_permissions.cpp: modes of a file and of the folders above it.
#include "runtime/file_permissions.h"

#include <c10/util/Exception.h>
#include <sys/stat.h>

#include <filesystem>

namespace backplane {

void require_private(const std::string& path, const char* what) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path file = fs::canonical(path, failed);
  TORCH_CHECK(!failed, what, " '", path, "' cannot be found: ", failed.message(), ".");
  struct stat status{};
  TORCH_CHECK(stat(file.c_str(), &status) == 0, what, " '", path, "' cannot be examined.");
  TORCH_CHECK((status.st_mode & S_IWOTH) == 0, what, " '", path, "' is refused: everybody may write to ", file.string(),
              ", so anybody's code could be in it. chmod o-w it.");
  for (fs::path folder = file.parent_path();; folder = folder.parent_path()) {
    TORCH_CHECK(stat(folder.c_str(), &status) == 0, what, " '", path, "' is refused: its folder ", folder.string(), " cannot be examined.");
    TORCH_CHECK((status.st_mode & S_IWOTH) == 0 || (status.st_mode & S_ISVTX) != 0, what, " '", path,
                "' is refused: everybody may write to ", folder.string(),
                ", so anybody could have put it there. chmod o-w that folder, or move the file to one of your own.");
    if (folder == folder.parent_path()) return;
  }
}

}  // namespace backplane
