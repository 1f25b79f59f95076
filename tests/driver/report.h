// tests/driver/report.h: a line for each case of a test program, and how many failed. Words of its command line, for those that take them:
// "[--only <text>] [--programs <n>] [--seed <n>]".
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

inline int failures = 0;
inline std::string only;  // the cases with this text in their name run
inline uint32_t programs = 0, seed = 1;

inline void choose(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "--only") only = argv[i + 1];
    if (word == "--programs") programs = static_cast<uint32_t>(std::atoi(argv[i + 1]));
    if (word == "--seed") seed = static_cast<uint32_t>(std::atoi(argv[i + 1]));
  }
}

inline void report(const std::string& name, const std::function<void()>& body) {
  if (name.find(only) == std::string::npos) return;
  try {
    body();
    std::printf("ok   %s\n", name.c_str());
  } catch (const std::exception& error) {
    ++failures;
    std::printf("FAIL %s: %s\n", name.c_str(), error.what());
  }
  std::fflush(stdout);
}

/// A case of a random program, for each seed.
inline void report_seeds(const std::string& name, void (*program)(uint32_t seed)) {
  for (uint32_t i = seed; i < seed + programs; ++i) report(name + ", seed " + std::to_string(i), [program, i] { program(i); });
}

#define CASE(name) report(#name, name)
