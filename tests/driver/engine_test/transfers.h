// tests/driver/engine_test/transfers.h: cases of engine_test.cpp: copies and faults.
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

void a_fault_is_sticky(Instance& i) {
  const auto exec = find_group<bp_host_exec>(normalised(*i.d));
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
  std::atomic<int32_t> reported{-1};
  {
    Gate gate(i, stream);
    OK(enqueue(0));
    OK(enqueue(0));  // skipped after the first one fails
    i.call(stream, [&](int32_t status) { reported = status; });
    OK(i.d->event_record(i.self, 0, stream, event, 0u));
  }
  CHECK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT) == BP_FAULT);
  CHECK(i.error().find("INVALID_ARGUMENT") != std::string::npos);
  CHECK(state.ran == 1 && state.destroyed == 2 && reported == BP_FAULT);
  CHECK(enqueue(0) == BP_FAULT && state.ran == 1 && state.destroyed == 3);
  uint64_t address = 0;
  CHECK(i.d->alloc(i.self, 0, 8, 0, &address) == BP_FAULT && address == 0);
  CHECK(i.d->stream_query(i.self, 0, stream) == BP_FAULT && i.d->event_query(i.self, 0, event) == BP_FAULT);
  CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT && i.d->event_synchronize(i.self, 0, event, 0) == BP_FAULT);
  reported = -1;
  i.call(stream, [&](int32_t status) { reported = status; });
  i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT);
  CHECK(reported == BP_FAULT);
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

}  // namespace
