// tests/driver/fake_library.h: what the libraries in NVIDIA's place share: numbers in memory, a log, and the order of a stream.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace fake {

enum class Type { real32, real64, real16, brain16 };

inline int bytes_of(Type type) { return type == Type::real64 ? 8 : type == Type::real32 ? 4 : 2; }

inline double read(Type type, const void* at, int64_t i) {
  if (type == Type::real32) return static_cast<const float*>(at)[i];
  if (type == Type::real64) return static_cast<const double*>(at)[i];
  if (type == Type::real16) return static_cast<double>(static_cast<const _Float16*>(at)[i]);
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(at)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void write(Type type, void* at, int64_t i, double value) {
  if (type == Type::real32) {
    static_cast<float*>(at)[i] = static_cast<float>(value);
  } else if (type == Type::real64) {
    static_cast<double*>(at)[i] = value;
  } else if (type == Type::real16) {
    static_cast<_Float16*>(at)[i] = static_cast<_Float16>(value);
  } else {
    const float rounded = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    static_cast<uint16_t*>(at)[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/// A line for the file that a variable of the environment names, if it does.
template <typename... T>
void log(const char* variable, const char* format, T... values) {
  const char* path = std::getenv(variable);
  if (!path) return;
  FILE* file = std::fopen(path, "a");
  std::fprintf(file, format, values...);
  std::fclose(file);
}

/// A function of the libcuda.so.1 that FAKE_CUDA names.
template <typename Function>
Function* cuda(const char* name) {
  static void* const library = dlopen(std::getenv("FAKE_CUDA"), RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Runs work in the order of a stream, unless the stream has failed. A thread without a context gets that of device 0 first, as the CUDA
/// runtime within NVIDIA's libraries has it. The stream's status.
template <typename Work>
int queue(void* stream, Work work) {
  static const auto current = cuda<int(void**)>("cuCtxGetCurrent");
  static const auto retain = cuda<int(void**, int)>("cuDevicePrimaryCtxRetain");
  static const auto make_current = cuda<int(void*)>("cuCtxSetCurrent");
  static const auto add = cuda<int(void*, void (*)(void*, int, void*), void*, unsigned)>("cuStreamAddCallback");
  void* context = nullptr;
  if (current(&context) == 0 && !context && retain(&context, 0) == 0) make_current(context);
  const auto run = [](void*, int error, void* arg) {
    const std::unique_ptr<Work> owned(static_cast<Work*>(arg));
    if (error == 0) (*owned)();
  };
  return add(stream, run, new Work(std::move(work)), 0);
}

}  // namespace fake
