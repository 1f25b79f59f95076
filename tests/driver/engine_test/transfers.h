// tests/driver/engine_test/transfers.h: cases of engine_test.cpp: copies, fills, device work, wrong arguments, faults.
#pragma once

#include "support.h"

namespace {

void copies_of_every_kind(Instance& i) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{513}, uint64_t{1} << 21}) {
    std::vector<unsigned char> host(bytes);
    for (uint64_t n = 0; n < bytes; ++n) host[n] = static_cast<unsigned char>(n * 7 + bytes);
    const uint64_t a = i.alloc(bytes), b = i.alloc(bytes), other = i.alloc(bytes, 1);
    CHECK(a && b && a != b && other != a && a % BP_MIN_ALIGNMENT == 0);
    i.put(a, host.data(), bytes);
    OK(i.d->copy(i.self, 0, nullptr, b, 0, a, 0, bytes, 0u));
    OK(i.d->copy(i.self, 0, nullptr, other, 1, b, 0, bytes, 0u));
    CHECK(i.take(other, bytes, 1) == host);
    void *from = nullptr, *to = nullptr;
    OK(i.d->host_alloc(i.self, bytes, 0, &from));
    OK(i.d->host_alloc(i.self, bytes, 0, &to));
    CHECK(from && to && reinterpret_cast<uint64_t>(from) % 64 == 0);
    for (uint64_t n = 0; n < bytes; ++n) static_cast<unsigned char*>(from)[n] = static_cast<unsigned char>(host[n] + 1);
    bp_stream* stream = i.stream();
    OK(i.d->copy_async(i.self, 0, stream, a, 0, reinterpret_cast<uint64_t>(from), BP_HOST_DEVICE, bytes, 0u));
    OK(i.d->copy_async(i.self, 0, stream, b, 0, a, 0, bytes, 0u));
    OK(i.d->copy_async(i.self, 0, stream, reinterpret_cast<uint64_t>(to), BP_HOST_DEVICE, b, 0, bytes, 0u));
    OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
    CHECK(bytes == 0 || std::memcmp(from, to, bytes) == 0);
    if (bytes) {  // pageable memory is refused
      CHECK(i.d->copy_async(i.self, 0, stream, a, 0, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, bytes, 0u) ==
            BP_INVALID_ARGUMENT);
      CHECK(i.error().find("pinned") != std::string::npos);
      OK(i.d->host_register(i.self, host.data(), bytes));
      OK(i.d->copy_async(i.self, 0, stream, a, 0, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, bytes, 0u));
      OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
      OK(i.d->host_unregister(i.self, host.data()));
      CHECK(i.take(a, bytes) == host);
    }
    OK(i.d->stream_destroy(i.self, 0, stream));
    OK(i.d->host_free(i.self, from));
    OK(i.d->host_free(i.self, to));
    OK(i.d->free(i.self, 0, a));
    OK(i.d->free(i.self, 0, b));
    OK(i.d->free(i.self, 1, other));
    CHECK(i.d->free(i.self, 0, a) == BP_INVALID_ARGUMENT);
  }
}

void fills_of_every_pattern(Instance& i) {
  const unsigned char pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (uint32_t size : {1u, 2u, 4u, 8u}) {
    for (uint64_t count : {0, 1, 3, 1001, 300000}) {
      const uint64_t bytes = size * count, room = bytes + 64;
      const uint64_t a = i.alloc(room);
      i.put(a, std::vector<unsigned char>(room, 0xaa).data(), room);
      OK(i.d->fill(i.self, 0, nullptr, a + 24, pattern, size, count, 0u));
      OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
      const auto seen = i.take(a, room);
      for (uint64_t n = 0; n < room; ++n) CHECK(seen[n] == (n < 24 || n >= 24 + bytes ? 0xaa : pattern[(n - 24) % size]));
      OK(i.d->free(i.self, 0, a));
    }
  }
  CHECK(i.d->fill(i.self, 0, nullptr, 0, pattern, 3, 1, 0u) == BP_INVALID_ARGUMENT);
  const uint64_t a = i.alloc(64);
  CHECK(i.d->fill(i.self, 0, nullptr, a + 2, pattern, 4, 1, 0u) == BP_INVALID_ARGUMENT && i.error().find("multiple") != std::string::npos);
  OK(i.d->fill(i.self, 0, nullptr, a + 64, pattern, 8, 0, 0u));
}

void wrong_arguments_are_named(Instance& i) {
  uint64_t address = 5;
  CHECK(i.d->alloc(i.self, 9, 8, 0, &address) == BP_INVALID_DEVICE && address == 5 && !i.error().empty());
  CHECK(i.d->alloc(i.self, -1, 8, 0, &address) == BP_INVALID_DEVICE);
  CHECK(i.d->alloc(i.self, 0, uint64_t{1} << 60, 0, &address) == BP_OUT_OF_MEMORY && address == 5 && !i.error().empty());
  CHECK(i.d->free(i.self, 0, 4096) == BP_INVALID_ARGUMENT);
  bp_device_properties small{};
  small.struct_size = offsetof(bp_device_properties, vendor);
  small.total_memory = 12345;
  OK(i.d->device_properties(i.self, 0, &small));
  CHECK(small.name[0] && !small.vendor[0] && small.total_memory == 12345 && small.struct_size == offsetof(bp_device_properties, vendor));
  bp_stream* stream = i.stream();
  CHECK(i.d->stream_query(i.self, 1, stream) == BP_INVALID_ARGUMENT);  // of device 0
  char cut[4];
  CHECK(i.d->last_error(i.self, cut, sizeof cut) == BP_OK && std::strlen(cut) == 3);
  std::string elsewhere = "unset";
  std::thread([&] { elsewhere = i.error(); }).join();
  CHECK(elsewhere.empty());
}

void a_fault_is_sticky(Instance& i) {
  const auto exec = find_group<bp_host_exec>(normalised(*i.d), BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION);
  if (!exec) return;
  const uint64_t memory = i.alloc(64);
  bp_stream* stream = i.stream();
  bp_event* event = i.event();
  struct State {
    std::atomic<int> ran{0}, destroyed{0};
    int32_t result;
    bool throws;
  } state;
  state.result = BP_INVALID_ARGUMENT;
  state.throws = false;
  const auto fn = [](void* arg) -> int32_t {
    auto* s = static_cast<State*>(arg);
    ++s->ran;
    if (s->throws) throw std::runtime_error("device work went wrong");
    return s->result;
  };
  const auto destroy = [](void* arg) { ++static_cast<State*>(arg)->destroyed; };
  const auto enqueue = [&](int32_t device) { return exec->enqueue(exec->head.self, device, stream, fn, &state, destroy); };
  CHECK(exec->enqueue(exec->head.self, 9, nullptr, fn, &state, destroy) == BP_INVALID_DEVICE && state.destroyed == 1 && state.ran == 0);
  state.destroyed = 0;
  std::atomic<int32_t> told{-1};
  {
    Gate gate(i, stream);
    OK(enqueue(0));
    OK(enqueue(0));  // skipped after the first one fails
    i.call(stream, [&](int32_t status) { told = status; });
    OK(i.d->event_record(i.self, 0, stream, event, 0u));
  }
  CHECK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT) == BP_FAULT);
  CHECK(i.error().find("INVALID_ARGUMENT") != std::string::npos);
  CHECK(state.ran == 1 && state.destroyed == 2 && told == BP_FAULT);
  CHECK(enqueue(0) == BP_FAULT && state.ran == 1 && state.destroyed == 3);
  uint64_t address = 0;
  CHECK(i.d->alloc(i.self, 0, 8, 0, &address) == BP_FAULT && address == 0);
  CHECK(i.d->stream_query(i.self, 0, stream) == BP_FAULT && i.d->event_query(i.self, 0, event) == BP_FAULT);
  CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT && i.d->event_synchronize(i.self, 0, event, 0) == BP_FAULT);
  told = -1;
  i.call(stream, [&](int32_t status) { told = status; });
  i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT);
  CHECK(told == BP_FAULT);
  OK(i.d->free(i.self, 0, memory));
  OK(i.d->event_destroy(i.self, 0, event));
  OK(i.d->stream_destroy(i.self, 0, stream));
  // The other device is well, until its work throws.
  stream = nullptr;
  OK(i.d->synchronize(i.self, 1, BP_NO_TIMEOUT));
  state.result = BP_OK;
  OK(enqueue(1));
  OK(i.d->synchronize(i.self, 1, BP_NO_TIMEOUT));
  state.throws = true;
  OK(enqueue(1));
  CHECK(i.d->synchronize(i.self, 1, BP_NO_TIMEOUT) == BP_FAULT && i.error().find("went wrong") != std::string::npos);
}

void device_work_reaches_memory(Instance& i) {
  const auto exec = find_group<bp_host_exec>(normalised(*i.d), BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION);
  if (!exec) return;
  struct Work {
    const bp_host_exec* exec;
    uint64_t address;
    int32_t stray;
  } work{&*exec, i.alloc(4096), 0};
  bp_stream* stream = i.stream();
  const auto fn = [](void* arg) -> int32_t {
    auto* w = static_cast<Work*>(arg);
    void *at = nullptr, *none = nullptr;
    if (int32_t status = w->exec->map(w->exec->head.self, 0, w->address + 100, &at)) return status;
    std::memset(at, 42, 1000);
    w->stray = w->exec->map(w->exec->head.self, 0, reinterpret_cast<uint64_t>(&at), &none);
    return BP_OK;
  };
  for (int n = 0; n < 100; ++n) OK(exec->enqueue(exec->head.self, 0, stream, fn, &work, nullptr));
  OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
  CHECK(work.stray == BP_INVALID_ARGUMENT);
  const auto seen = i.take(work.address, 4096);
  CHECK(seen[100] == 42 && seen[1099] == 42);
}

}  // namespace
