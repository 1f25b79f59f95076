// tests/driver/instance.h: what the C++ tests of the drivers share: a check that names its line, and an opened instance with shorter names.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

extern "C" {
int32_t bp_sim_get(const bp_host* host, const bp_driver** out);
int32_t bp_minimal_get(const bp_host* host, const bp_driver** out);
int32_t bp_handle_get(const bp_host* host, const bp_driver** out);
int32_t bp_emulate_get(const bp_host* host, const bp_driver** out);
int32_t bp_fault_get(const bp_host* host, const bp_driver** out);
int32_t bp_trace_get(const bp_host* host, const bp_driver** out);
}

namespace {

using namespace backplane::driver;

#define CHECK(condition)                                                                                                  \
  do {                                                                                                                    \
    if (!(condition)) throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition); \
  } while (0)

#define OK(call) CHECK((call) == BP_OK)

std::string refusal;

/// Opens a driver; NULL if it refuses, and then `refusal` says why. Simulated devices are given 64 MiB of memory, not their 8 GiB: an
/// emulator of another processor keeps a record of each page of an address range, and never gives it back.
const bp_driver* get(bp_driver_get_fn entry, const char* config, const bp_driver* inner = nullptr) {
  auto* host = new bp_host{sizeof(bp_host), BP_ABI_MAJOR, BP_ABI_MINOR, nullptr, nullptr, nullptr, config, inner};
  host->set_error = [](void*, const char* text) { refusal = text ? text : ""; };
  const bp_driver* driver = nullptr;
  const int32_t status = entry(host, &driver);
  delete host;
  return status == BP_OK ? driver : nullptr;
}

/// One opened instance, and shorter names.
struct Instance {
  const bp_driver* d;
  void* self;

  explicit Instance(const bp_driver* driver) : d(driver), self(driver->self) {
    CHECK(!incomplete_group(normalised(*d)));
    OK(d->open(self));
  }
  ~Instance() {
    if (d) d->close(self);
  }
  void close() {
    OK(d->close(self));
    d = nullptr;
  }

  uint64_t alloc(uint64_t bytes, int32_t device = 0) {
    uint64_t address = 0;
    OK(d->alloc(self, device, bytes, 0, &address));
    return address;
  }
  bp_stream* stream(int32_t device = 0) {
    bp_stream* out = nullptr;
    OK(d->stream_create(self, device, 0, 0, &out));
    return out;
  }
  bp_event* event(uint32_t flags = 0, int32_t device = 0) {
    bp_event* out = nullptr;
    OK(d->event_create(self, device, flags, &out));
    return out;
  }
  void put(uint64_t dst, const void* src, uint64_t bytes, int32_t device = 0) {
    OK(d->copy(self, device, nullptr, dst, device, reinterpret_cast<uint64_t>(src), BP_HOST_DEVICE, bytes, 0u));
  }
  std::vector<unsigned char> take(uint64_t src, uint64_t bytes, int32_t device = 0) {
    std::vector<unsigned char> host(bytes, 0xee);
    OK(d->copy(self, device, nullptr, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, src, device, bytes, 0u));
    return host;
  }
  /// Work on a stream: any function.
  void call(bp_stream* stream, std::function<void(int32_t)> body, int32_t device = 0) {
    auto* kept = new std::function<void(int32_t)>(std::move(body));
    const auto run = [](void* arg, int32_t status) {
      auto* fn = static_cast<std::function<void(int32_t)>*>(arg);
      (*fn)(status);
      delete fn;
    };
    OK(d->stream_callback(self, device, stream, run, kept));
  }
  std::string error() { return last_error_text(*d); }
};

}  // namespace
