// tests/driver/fake_cuda/state.cpp: the process's fake, its settings, and what tests ask of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

int device_count() { return static_cast<int>(setting("FAKE_CUDA_DEVICES", 2)); }
uint64_t device_bytes() { return setting("FAKE_CUDA_MEMORY", uint64_t{4} << 30); }
int capability() { return static_cast<int>(setting("FAKE_CUDA_CAPABILITY", 90)); }

State& state() {
  static State* const one = [] {
    auto* made = new State;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) made->contexts.push_back(std::make_unique<ContextObject>(ordinal));
    made->used.resize(made->contexts.size());
    std::string text = std::getenv("FAKE_CUDA_FAIL") ? std::getenv("FAKE_CUDA_FAIL") : "";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(',', at), text.size()), equals = text.find('=', at);
      made->failures[text.substr(at, equals - at)] = {std::atoi(text.c_str() + equals + 1), 0, -1};
      at = end + 1;
    }
    return made;
  }();
  return *one;
}

void record(const std::string& line) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.recording) s.calls += line + "\n";
}

CUresult enter(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.recording) s.calls += std::string(name) + "\n";
  if (const auto found = s.failures.find(name); found != s.failures.end()) {
    State::Failure& failure = found->second;
    if (failure.after > 0) {
      --failure.after;
    } else if (failure.times != 0) {
      if (failure.times > 0) --failure.times;
      return failure.result;
    }
  }
  if (std::strcmp(name, "cuInit") == 0) {
    if (s.started_in != 0 && s.started_in != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    if (s.contexts.empty()) return CUDA_ERROR_NO_DEVICE;
    s.started_in = getpid();
    return CUDA_SUCCESS;
  }
  return s.started_in == getpid() ? refuse_unsafe(name) : CUDA_ERROR_NOT_INITIALIZED;
}

void* map_file(int* file, uint64_t bytes) {
  if (*file < 0) {
    *file = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (*file < 0 || ftruncate(*file, static_cast<off_t>(bytes)) != 0) return nullptr;
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *file, 0);
  return at == MAP_FAILED ? nullptr : at;
}

int open_file_of(pid_t process, int file) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

FAKE(cuInit, unsigned flags) {
  ENTER();
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuDriverGetVersion, int* version) {
  *version = 12080;
  return CUDA_SUCCESS;
}

FAKE(cuGetErrorName, CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuGetErrorString, CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- for tests

/// Records a line for each call from now on, and forgets those before.
extern "C" BP_EXPORT void fake_cuda_record() {
  const std::lock_guard lock(state().mutex);
  state().recording = true;
  state().calls.clear();
}

/// The lines since then.
extern "C" BP_EXPORT const char* fake_cuda_calls() {
  static thread_local std::string text;
  const std::lock_guard lock(state().mutex);
  text = state().calls;
  return text.c_str();
}

/// Lets calls of a function fail: after so many that do not, so many times; -1: from then on, 0: no more.
extern "C" BP_EXPORT void fake_cuda_fail(const char* name, int result, int after, int times) {
  const std::lock_guard lock(state().mutex);
  state().failures[name] = {result, after, times};
}

/// Breaks the context of a device, as a kernel that fails does.
extern "C" BP_EXPORT void fake_cuda_break(int ordinal, int result) { state().contexts.at(static_cast<size_t>(ordinal))->error = result; }

}  // namespace backplane::driver::cuda
