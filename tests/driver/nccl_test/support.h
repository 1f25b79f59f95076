// tests/driver/nccl_test/support.h: what the cases of nccl_test.cpp share: the fake libnccl.so.2, and instances with communicators.
#pragma once

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include <backplane/driver/collective.h>

#include "../../../drivers/cuda/nccl_api.h"
#include "../cuda_test.h"

namespace {

std::string nccl_path;
constexpr uint64_t kSecond = 1'000'000'000;

struct FakeNccl {
  FakeNccl() : library(dlopen(nccl_path.c_str(), RTLD_NOW)) {
    if (!library) throw std::runtime_error(dlerror());
  }
  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  void* library;
  void (*record)() = get<void()>("fake_nccl_record");
  const char* (*calls)() = get<const char*()>("fake_nccl_calls");
  void (*fail)(const char*, int) = get<void(const char*, int)>("fake_nccl_fail");
  void (*break_)(int, const char*) = get<void(int, const char*)>("fake_nccl_break");
  void (*hold)(int, int) = get<void(int, int)>("fake_nccl_hold");
};
const FakeNccl& nccl() {
  static const FakeNccl one;
  return one;
}

const bp_collective* collective_of(const bp_driver* driver) {
  const bp_ext* group = nullptr;
  const int32_t status = driver->query_ext(driver->self, BP_COLLECTIVE_ID, BP_COLLECTIVE_VERSION, &group);
  CHECK(status == (group ? BP_OK : BP_UNSUPPORTED));
  return reinterpret_cast<const bp_collective*>(group);
}

/// An opened instance with communicators.
struct Ranks : Gpus {
  Ranks() : Gpus("nccl=" + nccl_path), g(*collective_of(d)) {}

  bp_comm_config config(int32_t rank, int32_t size, uint64_t timeout_ns = 5 * kSecond) const {
    bp_comm_config made{};
    made.struct_size = sizeof made;
    made.id = id;
    made.name = "the test's";
    made.timeout_ns = timeout_ns;
    made.rank = rank;
    made.size = size;
    return made;
  }
  /// As rank of size, on the device of that number.
  bp_comm* join(int32_t rank = 0, int32_t size = 1, uint64_t timeout_ns = 5 * kSecond) {
    if (rank == 0 && size == 1) make_id();
    const bp_comm_config made = config(rank, size, timeout_ns);
    bp_comm* comm = nullptr;
    OK(g.create(g.head.self, rank, &made, &comm));
    return comm;
  }
  /// Two ranks, which join from a thread each.
  void join_both(bp_comm* out[2], uint64_t timeout_ns = 5 * kSecond) {
    make_id();
    auto other = std::async(std::launch::async, [&] { return join(1, 2, timeout_ns); });
    out[0] = join(0, 2, timeout_ns);
    out[1] = other.get();
  }
  void make_id() { OK(g.make_id(g.head.self, 0, id)); }
  int32_t sum(bp_comm* comm, uint64_t at, uint64_t count = 1, bp_stream* stream = nullptr) {
    return g.all_reduce(g.head.self, comm, stream, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_SUM);
  }
  int32_t state(bp_comm* comm, std::string* why = nullptr) {
    char text[200] = "";
    int32_t status = -1;
    OK(g.status(g.head.self, comm, &status, text, sizeof text));
    if (why) *why = text;
    return status;
  }
  int32_t destroy(bp_comm* comm, uint64_t timeout_ns = 5 * kSecond) { return g.destroy(g.head.self, comm, timeout_ns); }
  uint64_t number(float value, int32_t device = 0) {
    const uint64_t at = alloc(512, device);
    put(at, &value, sizeof value, device);
    return at;
  }
  float number_at(uint64_t at, int32_t device = 0) {
    float value = 0;
    std::memcpy(&value, take(at, sizeof value, device).data(), sizeof value);
    return value;
  }

  const bp_collective g;
  char id[128] = {};
};

/// What NCCL was asked since the record began, without the addresses of streams.
std::string calls() {
  std::string text = nccl().calls();
  for (size_t at = text.find(" stream "); at != std::string::npos; at = text.find(" stream ", at)) text.erase(at, text.find('\n', at) - at);
  return text;
}
void eventually(const std::string& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!has(nccl().calls(), call) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  HAS(std::string(nccl().calls()), call);
}

#define SAME(text, want)                                                                                                         \
  do {                                                                                                                           \
    const std::string text_ = text;                                                                                              \
    if (text_ != (want)) throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": it is\n" + text_); \
  } while (0)

}  // namespace
