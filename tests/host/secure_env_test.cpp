// tests/host/secure_env_test.cpp: the core's options in a process that the system runs in secure mode, for which this secure_getenv stands.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/options.h"

static bool secure = false;
extern "C" char* secure_getenv(const char* name) noexcept { return secure ? nullptr : std::getenv(name); }

int main(int argc, char**) {
  secure = argc > 1;
  for (const char* name : {"DRIVER", "SHIMS", "OPTIONS"}) {
    const auto value = backplane::env(name);
    std::printf("%s ", value ? value->c_str() : "unset");
  }
  std::printf("%d\n", backplane::launch_blocking());
}
