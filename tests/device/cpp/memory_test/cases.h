// tests/device/cpp/memory_test/cases.h: what the cases of memory_test.cpp share: the list of them, expectations, streams that are held up.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>

#include "memory/caching_allocator.h"
#include "memory/copy_bytes.h"
#include "memory/pinned_allocator.h"
#include "memory/storage.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/peer.h"
#include "runtime/stream.h"
#include "torch/compat.h"

using namespace backplane;

namespace {

std::map<std::string, void (*)()>& cases() {
  static std::map<std::string, void (*)()> all;
  return all;
}

// `CASE(name) { ... }` is a case: it fails by an exception.
#define CASE(name)                                                 \
  void name();                                                     \
  const bool name##_listed = cases().emplace(#name, &name).second; \
  void name()

constexpr size_t kMiB = size_t{1} << 20;

#define EXPECT(condition)                                                               \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      throw std::runtime_error("line " + std::to_string(__LINE__) + ": " + #condition); \
    }                                                                                   \
  } while (false)

#define EXPECT_EQUAL(a, b)                                                                        \
  do {                                                                                            \
    auto value_a = (a);                                                                           \
    auto value_b = (b);                                                                           \
    if (!(value_a == static_cast<decltype(value_a)>(value_b))) {                                  \
      std::ostringstream text;                                                                    \
      text << "line " << __LINE__ << ": " << #a << " is " << value_a << ", expected " << value_b; \
      throw std::runtime_error(text.str());                                                       \
    }                                                                                             \
  } while (false)

template <typename Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

c10::Allocator& allocator() { return *c10::GetAllocator(kDevice); }
CachingAllocator& caching() { return caching_allocator(); }

struct Stats {
  explicit Stats(c10::DeviceIndex device = 0) : all(caching().getDeviceStats(device)) {}
  int64_t allocated() const { return all.allocated_bytes[0].current; }
  int64_t active() const { return all.active_bytes[0].current; }
  int64_t reserved() const { return all.reserved_bytes[0].current; }
  DeviceStats all;
};

void write(void* device_ptr, const std::vector<char>& bytes) {
  const auto device = current_device();
  call<&bp_driver::copy>(device, current_stream_handle(device), reinterpret_cast<uint64_t>(device_ptr), driver_index(device),
                         reinterpret_cast<uint64_t>(bytes.data()), int32_t{BP_HOST_DEVICE}, uint64_t{bytes.size()}, 0u);
}

std::vector<char> read(const void* device_ptr, size_t bytes, c10::DeviceIndex device) {
  std::vector<char> host(bytes);
  call<&bp_driver::copy>(device, current_stream_handle(device), reinterpret_cast<uint64_t>(host.data()), int32_t{BP_HOST_DEVICE},
                         reinterpret_cast<uint64_t>(device_ptr), driver_index(device), uint64_t{bytes}, 0u);
  return host;
}

std::vector<char> pattern(size_t bytes, int seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  return data;
}

// A pool stream whose work does not go on until release(): stands for a long kernel.
class HeldStream {
 public:
  explicit HeldStream(c10::DeviceIndex device = 0) : stream(pool_stream(device)) {
    const bp_host_exec* exec = open_driver().host_exec;
    EXPECT(exec != nullptr);
    const auto wait = [](void* flag) -> int32_t {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
      return BP_OK;
    };
    EXPECT_EQUAL(exec->enqueue(exec->head.self, driver_index(device), stream_handle(stream), wait, &go_, nullptr), int32_t{BP_OK});
  }
  ~HeldStream() {
    release();
    synchronize_stream(stream);
  }
  void release() { go_.store(true); }
  c10::Stream stream;

 private:
  std::atomic<bool> go_{false};
};

struct OnStream {
  explicit OnStream(const c10::Stream& stream) : previous(exchange_stream(stream)) {}
  ~OnStream() { exchange_stream(previous); }
  c10::Stream previous;
};

}  // namespace
