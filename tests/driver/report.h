// tests/driver/report.h: a line for each case of a test program, and how many failed.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <string>

inline int failures = 0;

inline void report(const std::string& name, const std::function<void()>& body) {
  try {
    body();
    std::printf("ok   %s\n", name.c_str());
  } catch (const std::exception& error) {
    ++failures;
    std::printf("FAIL %s: %s\n", name.c_str(), error.what());
  }
  std::fflush(stdout);
}
