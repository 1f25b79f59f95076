// drivers/sim/targets.cpp: what each level of a processor has, and which one this machine is.
#include "targets.h"

#include <array>
#include <cstdio>
#include <cstring>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::sim {
namespace {

#if defined(__x86_64__)
const std::vector<Target> kTargets = {
    Target{"x86-64-v4-bf16", "-march=x86-64-v4 -mavx512bf16", 64, 32},
    Target{"x86-64-v4", "-march=x86-64-v4", 64, 32},
    Target{"x86-64-v3", "-march=x86-64-v3", 32, 16},
    Target{"x86-64-v2", "-march=x86-64-v2", 16, 16},
    Target{"x86-64", "-march=x86-64", 16, 16},
};

bool runs(size_t level) {
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool bf16 = v4 && __builtin_cpu_supports("avx512bf16");
  return std::array{bf16, v4, v3, v2, true}[level];
}
#else
#if defined(__aarch64__)
const std::vector<Target> kTargets = {Target{"aarch64", nullptr, 16, 32}};
#elif defined(__riscv)
const std::vector<Target> kTargets = {Target{"riscv", nullptr, 16, 32}};
#else
const std::vector<Target> kTargets = {Target{"host", nullptr, 16, 16}};
#endif

bool runs(size_t) { return true; }
#endif

}  // namespace

const std::vector<Target>& all_targets() { return kTargets; }

const Target& own_target(const std::string& name) {
  size_t level = 0;
  while (!runs(level)) ++level;
  std::string known;
  for (; level < kTargets.size(); ++level) {
    if (name.empty() || name == kTargets[level].name) return kTargets[level];
    known += (known.empty() ? "" : ", ") + std::string(kTargets[level].name);
  }
  throw Error(BP_INVALID_ARGUMENT, "options: target is one that this machine runs, " + known + ", not '" + name + "'");
}

const Target* find_target(const char* name) {
  for (const Target& target : kTargets) {
    if (name && std::strcmp(name, target.name) == 0) return &target;
  }
  return nullptr;
}

bp_target_properties properties_of(const Target& target, uint32_t items, bool float64, uint64_t languages) {
  auto out = sized<bp_target_properties>();
  std::snprintf(out.target, sizeof out.target, "%s", target.name);
  out.dtypes = out.fast_dtypes = BP_DTYPE_INT8 | BP_DTYPE_UINT8 | BP_DTYPE_INT16 | BP_DTYPE_INT32 | BP_DTYPE_INT64 | BP_DTYPE_BOOL |
                                 BP_DTYPE_FLOAT32 | (float64 ? BP_DTYPE_FLOAT64 : 0);
  out.group_size = out.max_group_size = items;
  out.vector_bytes = items == 1 ? target.vector_bytes : 16;
  out.local_bytes = local_bytes(items);
  out.registers = items == 1 ? target.registers * target.vector_bytes / 4 : 64;
  for (uint64_t& groups : out.max_grid) groups = kMaxGrid;
  out.parameter_bytes = kParameterBytes;
  out.atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32 | BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  out.languages = languages;
  return out;
}

}  // namespace backplane::driver::sim
