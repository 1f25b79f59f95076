// drivers/sim/child.h: runs a program to its end and reads its output, for the compiler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace backplane::driver::sim {

/// A folder of this process's own below $TMPDIR, which goes with all that is in it.
class PrivateFolder {
 public:
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Ended {
  int status = 0;       // of the exit; -1: killed, or unknown because the process does not wait for its children itself
  int signal = 0;       // that killed it
  int start_error = 0;  // errno: it could not be started, and the rest says nothing
  std::string output;   // stdout and stderr
};

/// Runs words[0], a path, with `input` on its stdin, in a process group of its own, so that a Ctrl-C is not for it; its locale is C and its
/// TMPDIR is `folder`. blocks: until it has ended.
Ended run_child(const std::vector<std::string>& words, const std::string& input, const std::string& folder);

/// What stands between the spaces.
std::vector<std::string> words_of(std::string_view text);

/// The path of an executable file by that name: as it is if it has a slash, else from PATH; "" if there is none.
std::string find_program(const std::string& name);

/// All of a file; "" if it cannot be read.
std::string read_file(const std::string& path);

}  // namespace backplane::driver::sim
