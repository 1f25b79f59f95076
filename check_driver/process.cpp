// check_driver/process.cpp: fork, waitpid with a limit, and /proc.
#include "process.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "check.h"

namespace backplane::check {
namespace process_impl {

std::string signal_name(int number) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
  if (const char* name = sigabbrev_np(number)) return std::string("SIG") + name;
#endif
  return "signal " + std::to_string(number);
}

std::string seconds(double s) {
  char text[32];
  snprintf(text, sizeof text, "%g s", s);
  return text;
}

}  // namespace process_impl

std::string wait_for_child(pid_t child, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(limit_s);
  for (;;) {
    int status = 0;
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) {
      if (WIFSIGNALED(status)) return "crashed: " + process_impl::signal_name(WTERMSIG(status));
      if (WEXITSTATUS(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
      return "";
    }
    if (done < 0) return "is lost";
    if (Clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "hung after " + process_impl::seconds(limit_s);
    }
    poll(nullptr, 0, 1);
  }
}

std::string in_child(const std::function<void()>& body, bool run_destructors, double limit_s) {
  const pid_t child = fork();
  if (child < 0) return "could not be forked";
  if (child == 0) {
    int code = 0;
    try {
      body();
    } catch (const Failure& failure) {
      fprintf(stderr, "%s\n", failure.text.c_str());
      code = 3;
    } catch (...) {
      code = 3;
    }
    if (run_destructors) exit(code);
    _exit(code);
  }
  return wait_for_child(child, limit_s);
}

int count_proc(const char* folder) {
  DIR* dir = opendir((std::string("/proc/self/") + folder).c_str());
  if (!dir) return -1;
  int count = 0;
  while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

long long address_space() {
  FILE* file = fopen("/proc/self/maps", "r");  // not statm: under QEMU that has the emulator's own tables, which grow with each mapping
  if (!file) return -1;
  long long bytes = 0;
  char line[256];
  bool begins = true;  // a path may be longer than a piece of its line
  while (fgets(line, sizeof line, file)) {
    unsigned long long from = 0, to = 0;
    if (begins && sscanf(line, "%llx-%llx ", &from, &to) == 2) bytes += to - from;
    begins = strchr(line, '\n') != nullptr;
  }
  fclose(file);
  return bytes;
}

}  // namespace backplane::check
