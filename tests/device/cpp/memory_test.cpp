// tests/device/cpp/memory_test.cpp: the memory of lib<device>.so from C++: one named case a contract, run by test_memory_cpp.py.
//
// Usage: memory_test [--without PREFIX]... [CASE...]. Each case runs in a process that is forked before the driver is opened. Cases
// named held_ need a stream that a host function can hold up: bp.host_exec, and streams that are not inline; two_devices_ need two.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "memory_test/basics.h"
#include "memory_test/caching.h"
#include "memory_test/expandable.h"
#include "memory_test/host.h"
#include "memory_test/limits.h"
#include "memory_test/pools.h"
#include "memory_test/threads.h"
#include "memory_test/uncached.h"

namespace {

int run(const std::string& name) {
  try {
    cases().at(name)();
    return 0;
  } catch (const std::exception& error) {
    std::cout << name << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  std::vector<std::string> without;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--without" && i + 1 < argc) {
      without.emplace_back(argv[++i]);
    } else {
      names.emplace_back(argv[i]);
    }
  }
  if (names.empty()) {
    for (const auto& entry : cases()) names.push_back(entry.first);
  }
  int ran = 0;
  int failed = 0;
  for (const auto& name : names) {
    if (std::any_of(without.begin(), without.end(), [&](const std::string& prefix) { return name.rfind(prefix, 0) == 0; })) continue;
    ++ran;
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      _exit(run(name));
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status == 0) continue;
    ++failed;
    std::cout << "FAILED " << name << (WIFSIGNALED(status) ? ", signal " + std::to_string(WTERMSIG(status)) : "") << std::endl;
  }
  std::cout << ran << " cases, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
