// drivers/sim/child.cpp: posix_spawn with files in memory: no pipe that fills up, and no signal if the program does not read its input.
#include "child.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <backplane/driver/cxx/error.hpp>

extern char** environ;

namespace backplane::driver::sim {
namespace {

class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : number_(memfd_create(name, MFD_CLOEXEC)) {
    if (number_ < 0) throw Error(BP_OUT_OF_MEMORY, std::string("compiler: cannot make a file in memory: ") + std::strerror(errno));
  }
  ~MemoryFile() { ::close(number_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw Error(BP_OUT_OF_MEMORY, std::string("compiler: cannot hand the source on: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  ::lseek(file, 0, SEEK_SET);
}

std::string read_all(int file) {
  std::string out;
  char block[65536];
  for (;;) {
    const ssize_t got = ::pread(file, block, sizeof block, static_cast<off_t>(out.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return out;
    out.append(block, static_cast<size_t>(got));
  }
}

void remove_folder(const std::string& path) {
  if (DIR* folder = ::opendir(path.c_str())) {
    while (const dirent* entry = ::readdir(folder)) {
      if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
      const std::string inner = path + "/" + entry->d_name;
      if (::unlink(inner.c_str()) != 0) remove_folder(inner);
    }
    ::closedir(folder);
  }
  ::rmdir(path.c_str());
}

/// The caller's environment, but for what is not meant for a compiler: what was preloaded into this process, and its language.
std::vector<std::string> environment_of(const std::string& folder) {
  std::vector<std::string> out = {"TMPDIR=" + folder, "LC_ALL=C"};
  for (char** one = environ; one && *one; ++one) {
    const std::string_view variable(*one);
    const auto is = [&](std::string_view name) { return variable.substr(0, name.size()) == name; };
    if (!is("TMPDIR=") && !is("LC_ALL=") && !is("LANGUAGE=") && !is("LD_PRELOAD=")) out.emplace_back(variable);
  }
  return out;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

PrivateFolder::PrivateFolder() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base && *base ? base : "/tmp") + "/backplane-sim-XXXXXX";
  if (!::mkdtemp(path_.data())) {
    throw Error(BP_INTERNAL,
                "compiler: cannot make a folder " + path_ + ": " + std::strerror(errno) + "; set TMPDIR to a folder with room");
  }
}

PrivateFolder::~PrivateFolder() { remove_folder(path_); }

Ended run_child(const std::vector<std::string>& words, const std::string& input, const std::string& folder) {
  const MemoryFile in("backplane-source"), out("backplane-log");
  write_all(in.number(), input);
  std::vector<std::string> arguments = words, variables = environment_of(folder);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.number(), 0);
  posix_spawn_file_actions_adddup2(&files, out.number(), 1);
  posix_spawn_file_actions_adddup2(&files, out.number(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  Ended ended;
  pid_t child = 0;
  ended.start_error =
      ::posix_spawn(&child, words[0].c_str(), &files, &attributes, pointers_of(arguments).data(), pointers_of(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (ended.start_error != 0) return ended;

  int status = 0;
  pid_t got = 0;
  do {
    got = ::waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  // Where SIGCHLD is ignored, the system has reaped it: only its output is known then.
  ended.status = got == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (got == child && WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.output = read_all(out.number());
  return ended;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = text.find_first_not_of(" \t\n", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::string find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    struct stat status{};
    return ::access(path.c_str(), X_OK) == 0 && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  };
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  const char* folders = std::getenv("PATH");
  const std::string_view list = folders ? folders : "/usr/local/bin:/usr/bin:/bin";
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    const std::string folder(list.substr(at, end - at));
    at = end + 1;
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (runs(path)) return path;
  }
  return "";
}

std::string read_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string bytes = read_all(file);
  ::close(file);
  return bytes;
}

}  // namespace backplane::driver::sim
