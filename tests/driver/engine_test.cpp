// tests/driver/engine_test.cpp: the stream engine and the drivers over it, in one program that sanitizers can see through.
//
// sim, emulate, the minimal driver and one with buffer handles are linked in (built with -Dbp_driver_get=<name>), and every case runs on
// each configuration below. Prints one line a case; the exit status is the number of failures.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/host_exec.h>
#include <backplane/driver/host_view.h>
#include <backplane/driver/peer.h>

#include "instance.h"

extern "C" {
int32_t bp_sim_get(const bp_host* host, const bp_driver** out);
int32_t bp_emulate_get(const bp_host* host, const bp_driver** out);
int32_t bp_minimal_get(const bp_host* host, const bp_driver** out);
int32_t bp_handle_get(const bp_host* host, const bp_driver** out);
}

namespace {

constexpr uint64_t kMs = 1000000;

/// A driver between emulate and another one: takes groups away, or asks for more care.
struct Filter {
  bp_driver table;
  const bp_driver* inner;
};

/// Holds a stream up until it is opened. The work runs on a thread of its own, since an inline stream runs it on the caller's.
class Gate {
 public:
  Gate(Instance& instance, bp_stream* stream, int32_t device = 0) {
    submitter_ = std::thread([state = state_, &instance, stream, device] {
      instance.call(
          stream,
          [state](int32_t) {
            std::unique_lock lock(state->mutex);
            state->entered = true;
            state->changed.notify_all();
            state->changed.wait(lock, [&] { return state->open; });
          },
          device);
    });
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->entered; });
  }
  ~Gate() {
    open();
    submitter_.join();
  }
  void open() {
    std::lock_guard lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool entered = false, open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // a worker may look at it when the gate is gone
  std::thread submitter_;
};

struct Configuration {
  const char* name;
  std::function<const bp_driver*()> make;
  bool discrete = false;
};

// ---- cases ------------------------------------------------------------------------------------------------------------------------------

void work_runs_in_order(Instance& i) {
  bp_stream* stream = i.stream();
  std::vector<int> seen;
  for (int n = 0; n < 2000; ++n) i.call(stream, [&seen, n](int32_t) { seen.push_back(n); });
  OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
  CHECK(seen.size() == 2000);
  for (int n = 0; n < 2000; ++n) CHECK(seen[static_cast<size_t>(n)] == n);
  OK(i.d->stream_query(i.self, 0, stream));
  OK(i.d->stream_destroy(i.self, 0, stream));
}

void a_stream_waits_for_another(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream();
  bp_event* event = i.event();
  std::atomic<int> steps{0};
  int seen = -1;
  {
    Gate gate(i, a);
    i.call(a, [&](int32_t) { steps = 1; });
    OK(i.d->event_record(i.self, 0, a, event));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { seen = steps; });
    CHECK(i.d->stream_query(i.self, 0, b) == BP_PENDING);
    CHECK(i.d->event_query(i.self, 0, event) == BP_PENDING);
    CHECK(i.d->stream_synchronize(i.self, 0, b, 2 * kMs) == BP_TIMEOUT);
    CHECK(!i.error().empty());
    CHECK(i.d->event_synchronize(i.self, 0, event, 0) == BP_TIMEOUT);
    CHECK(i.d->synchronize(i.self, 0, kMs) == BP_TIMEOUT);
    CHECK(i.d->stream_query(i.self, 0, nullptr) == BP_OK);  // others go on
    gate.open();
    OK(i.d->stream_synchronize(i.self, 0, b, BP_NO_TIMEOUT));
    CHECK(seen == 1);
    OK(i.d->event_query(i.self, 0, event));
    OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  }
  OK(i.d->event_destroy(i.self, 0, event));
  OK(i.d->stream_destroy(i.self, 0, a));
  OK(i.d->stream_destroy(i.self, 0, b));
}

void a_second_record_replaces_the_first(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream(), *c = i.stream();
  bp_event* event = i.event();
  std::atomic<bool> ran{false};
  {
    Gate gate(i, a);
    OK(i.d->event_record(i.self, 0, a, event));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { ran = true; });
    OK(i.d->event_record(i.self, 0, c, event));  // c is idle
    OK(i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT));
    CHECK(!ran && i.d->stream_query(i.self, 0, b) == BP_PENDING);
    OK(i.d->stream_wait(i.self, 0, c, event));
    OK(i.d->stream_synchronize(i.self, 0, c, BP_NO_TIMEOUT));
    OK(i.d->event_destroy(i.self, 0, event));  // b still waits for its first record
  }
  OK(i.d->stream_synchronize(i.self, 0, b, BP_NO_TIMEOUT));
  CHECK(ran);
}

void an_unrecorded_event_is_complete(Instance& i) {
  bp_event *timed = i.event(BP_EVENT_TIMING), *other = i.event(BP_EVENT_TIMING), *plain = i.event();
  int64_t ns = 77;
  OK(i.d->event_query(i.self, 0, timed));
  OK(i.d->event_synchronize(i.self, 0, timed, BP_NO_TIMEOUT));
  OK(i.d->stream_wait(i.self, 0, nullptr, timed));
  CHECK(i.d->event_elapsed(i.self, 0, timed, other, &ns) == BP_INVALID_ARGUMENT && ns == 77);
  OK(i.d->event_record(i.self, 0, nullptr, timed));
  OK(i.d->event_record(i.self, 0, nullptr, plain));
  CHECK(i.d->event_elapsed(i.self, 0, timed, plain, &ns) == BP_INVALID_ARGUMENT && ns == 77);
  bp_stream* stream = i.stream();
  {
    Gate gate(i, stream);
    OK(i.d->event_record(i.self, 0, stream, other));
    CHECK(i.d->event_elapsed(i.self, 0, timed, other, &ns) == BP_PENDING && ns == 77);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  OK(i.d->event_synchronize(i.self, 0, other, BP_NO_TIMEOUT));
  OK(i.d->event_elapsed(i.self, 0, timed, other, &ns));
  CHECK(ns >= 3000000);
  OK(i.d->event_elapsed(i.self, 0, other, timed, &ns));
  CHECK(ns <= -3000000);
}

void many_threads_wait_for_one_event(Instance& i) {
  bp_stream* stream = i.stream();
  for (uint32_t flags : {0u, BP_EVENT_BLOCKING}) {
    bp_event* event = i.event(flags);
    std::atomic<int> woken{0};
    std::vector<std::thread> threads;
    {
      Gate gate(i, stream);
      OK(i.d->event_record(i.self, 0, stream, event));
      for (int n = 0; n < 4; ++n) {
        threads.emplace_back([&, n] {
          if (n % 2) {
            if (i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT) == BP_OK) ++woken;
          } else if (i.d->stream_synchronize(i.self, 0, stream, 60000 * kMs) == BP_OK) {
            ++woken;
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      CHECK(woken == 0);
    }
    for (auto& thread : threads) thread.join();
    CHECK(woken == 4);
    OK(i.d->event_destroy(i.self, 0, event));
  }
}

void destroying_a_stream_completes_its_work(Instance& i) {
  bp_stream* stream = i.stream();
  std::atomic<int> ran{0};
  auto gate = std::make_unique<Gate>(i, stream);
  for (int n = 0; n < 100; ++n) i.call(stream, [&](int32_t) { ++ran; });
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    gate->open();
  });
  OK(i.d->stream_destroy(i.self, 0, stream));
  CHECK(ran == 100);
  opener.join();
}

void closing_completes_what_is_queued(Instance& i) {
  bp_stream *a = i.stream(), *b = i.stream();
  bp_event* event = i.event();
  std::atomic<int> ran{0};
  i.alloc(1000);
  for (int n = 0; n < 50; ++n) {
    i.call(a, [&](int32_t) { std::this_thread::sleep_for(std::chrono::microseconds(20)); });
    OK(i.d->event_record(i.self, 0, a, event));
    OK(i.d->stream_wait(i.self, 0, b, event));
    i.call(b, [&](int32_t) { ++ran; });
  }
  i.close();
  CHECK(ran == 50);
}

void threads_share_streams(Instance& i) {
  std::vector<bp_stream*> streams{nullptr, i.stream(), i.stream()};
  std::vector<uint64_t> counts(streams.size(), 0);  // each written by its stream's work alone
  uint64_t total = 0;                               // written by the last stream, behind the others' events
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      bp_event* event = i.event(BP_EVENT_TIMING);
      unsigned seed = t + 1;
      for (int n = 0; n < 400; ++n) {
        seed = seed * 1103515245 + 12345;
        const size_t at = seed / 65536 % streams.size();
        i.call(streams[at], [&counts, at](int32_t) { ++counts[at]; });
        if (n % 3 == 0) {
          OK(i.d->event_record(i.self, 0, streams[at], event));
          OK(i.d->stream_wait(i.self, 0, streams[2], event));
          i.call(streams[2], [&](int32_t) { ++total; });
        }
        if (n % 50 == 0) OK(i.d->stream_synchronize(i.self, 0, streams[at], BP_NO_TIMEOUT));
        if (n % 70 == 0) OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
        if (n % 20 == 0) OK(i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT));
      }
      OK(i.d->event_destroy(i.self, 0, event));
    });
  }
  for (auto& thread : threads) thread.join();
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  CHECK(std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == 1600);
  CHECK(total == 4 * 134);
}

void copies_of_every_kind(Instance& i) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{513}, uint64_t{1} << 21}) {
    std::vector<unsigned char> host(bytes);
    for (uint64_t n = 0; n < bytes; ++n) host[n] = static_cast<unsigned char>(n * 7 + bytes);
    const uint64_t a = i.alloc(bytes), b = i.alloc(bytes), other = i.alloc(bytes, 1);
    CHECK(a && b && a != b && other != a && a % BP_MIN_ALIGNMENT == 0);
    i.put(a, host.data(), bytes);
    OK(i.d->copy(i.self, 0, nullptr, BP_COPY_DEVICE_TO_DEVICE, b, 0, a, 0, bytes));
    OK(i.d->copy(i.self, 0, nullptr, BP_COPY_DEVICE_TO_DEVICE, other, 1, b, 0, bytes));
    CHECK(i.take(other, bytes, 1) == host);
    void *from = nullptr, *to = nullptr;
    OK(i.d->host_alloc(i.self, bytes, 0, &from));
    OK(i.d->host_alloc(i.self, bytes, 0, &to));
    CHECK(from && to && reinterpret_cast<uint64_t>(from) % 64 == 0);
    for (uint64_t n = 0; n < bytes; ++n) static_cast<unsigned char*>(from)[n] = static_cast<unsigned char>(host[n] + 1);
    bp_stream* stream = i.stream();
    OK(i.d->copy_async(i.self, 0, stream, BP_COPY_HOST_TO_DEVICE, a, 0, reinterpret_cast<uint64_t>(from), BP_HOST_DEVICE, bytes));
    OK(i.d->copy_async(i.self, 0, stream, BP_COPY_DEVICE_TO_DEVICE, b, 0, a, 0, bytes));
    OK(i.d->copy_async(i.self, 0, stream, BP_COPY_DEVICE_TO_HOST, reinterpret_cast<uint64_t>(to), BP_HOST_DEVICE, b, 0, bytes));
    OK(i.d->stream_synchronize(i.self, 0, stream, BP_NO_TIMEOUT));
    CHECK(bytes == 0 || std::memcmp(from, to, bytes) == 0);
    if (bytes) {  // pageable memory is refused
      CHECK(i.d->copy_async(i.self, 0, stream, BP_COPY_HOST_TO_DEVICE, a, 0, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE,
                            bytes) == BP_INVALID_ARGUMENT);
      CHECK(i.error().find("pinned") != std::string::npos);
      OK(i.d->host_register(i.self, host.data(), bytes));
      OK(i.d->copy_async(i.self, 0, stream, BP_COPY_HOST_TO_DEVICE, a, 0, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, bytes));
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
      OK(i.d->fill(i.self, 0, nullptr, a + 24, pattern, size, count));
      OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
      const auto seen = i.take(a, room);
      for (uint64_t n = 0; n < room; ++n) CHECK(seen[n] == (n < 24 || n >= 24 + bytes ? 0xaa : pattern[(n - 24) % size]));
      OK(i.d->free(i.self, 0, a));
    }
  }
  CHECK(i.d->fill(i.self, 0, nullptr, 0, pattern, 3, 1) == BP_INVALID_ARGUMENT);
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

void the_stream_limit_is_kept(Instance& i) {
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  OK(i.d->device_properties(i.self, 0, &properties));
  std::vector<bp_stream*> streams;
  for (int32_t n = 0; n < properties.stream_limit; ++n) streams.push_back(i.stream());
  bp_stream* more = nullptr;
  CHECK(i.d->stream_create(i.self, 0, 0, 0, &more) == BP_UNSUPPORTED && !more);
  OK(i.d->stream_destroy(i.self, 0, streams.back()));
  OK(i.d->stream_create(i.self, 0, properties.priority_greatest, 0, &more));
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
    OK(i.d->event_record(i.self, 0, stream, event));
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

const std::vector<std::pair<const char*, void (*)(Instance&)>> kCases = {
#define CASE(name) {#name, name}
    CASE(work_runs_in_order),
    CASE(a_stream_waits_for_another),
    CASE(a_second_record_replaces_the_first),
    CASE(an_unrecorded_event_is_complete),
    CASE(many_threads_wait_for_one_event),
    CASE(destroying_a_stream_completes_its_work),
    CASE(closing_completes_what_is_queued),
    CASE(threads_share_streams),
    CASE(copies_of_every_kind),
    CASE(fills_of_every_pattern),
    CASE(wrong_arguments_are_named),
    CASE(the_stream_limit_is_kept),
    CASE(a_fault_is_sticky),
    CASE(device_work_reaches_memory),
#undef CASE
};

// ---- drivers below emulate
// -----------------------------------------------------------------------------------------------------------------

/// The sim without its events: emulate then brings streams and events of its own, over the sim's host_exec.
const bp_driver* sim_without_events() {
  const bp_driver* sim = get(bp_sim_get, "stream=async,memory=64MiB");
  static Filter filter;
  filter = {normalised(*sim), sim};
  for (const Slot& slot : slots()) {
    if (slot.group == Group::events) std::memset(reinterpret_cast<char*>(&filter.table) + slot.offset, 0, sizeof(void*));
  }
  return get(bp_emulate_get, "", &filter.table);
}

/// The sim as a driver that takes one call at a time, and counts the calls that overlap.
std::atomic<int> calls_inside{0}, overlaps{0};
const bp_driver* serialized_sim() {
  const bp_driver* sim = get(bp_sim_get, "stream=async,memory=64MiB");
  static bp_driver below;
  static bp_driver table;
  below = normalised(*sim);
  table = below;
  table.flags = BP_DRIVER_SERIALIZE;
  struct Count {
    Count() { overlaps += calls_inside++ != 0; }
    ~Count() { --calls_inside; }
  };
  table.event_record = [](void* self, int32_t device, bp_stream* stream, bp_event* event) {
    Count count;
    return below.event_record(self, device, stream, event);
  };
  table.stream_wait = [](void* self, int32_t device, bp_stream* stream, bp_event* event) {
    Count count;
    return below.stream_wait(self, device, stream, event);
  };
  table.stream_synchronize = [](void* self, int32_t device, bp_stream* stream, uint64_t timeout) {
    Count count;
    CHECK(timeout == 0);
    return below.stream_synchronize(self, device, stream, timeout);
  };
  return get(bp_emulate_get, "", &table);
}

/// A driver whose copies need whole units of 64 bytes and which cannot copy between its devices.
const bp_driver* awkward_minimal() {
  const bp_driver* minimal = get(bp_minimal_get, "devices=2");
  static bp_driver below;
  static bp_driver table;
  below = normalised(*minimal);
  table = below;
  table.device_properties = [](void* self, int32_t device, bp_device_properties* out) {
    const int32_t status = below.device_properties(self, device, out);
    if (out->struct_size >= sizeof *out) out->copy_alignment = 64;
    return status;
  };
  table.copy = [](void* self, int32_t device, bp_stream* stream, int32_t kind, uint64_t dst, int32_t dst_device, uint64_t src,
                  int32_t src_device, uint64_t bytes) -> int32_t {
    if (kind == BP_COPY_DEVICE_TO_DEVICE) return BP_UNSUPPORTED;
    const uint64_t address = kind == BP_COPY_HOST_TO_DEVICE ? dst : src;
    if (address % 64 != 0 || bytes % 64 != 0) return BP_INVALID_ARGUMENT;
    return below.copy(self, device, stream, kind, dst, dst_device, src, src_device, bytes);
  };
  return get(bp_emulate_get, "", &table);
}

/// copy_alignment 64: fill must read the units that it writes in part, and a pair of devices goes through the host.
void awkward_driver() {
  Instance i(awkward_minimal());
  const uint64_t a = i.alloc(4096), b = i.alloc(4096, 1);
  i.put(a, std::vector<unsigned char>(4096, 0xaa).data(), 4096);
  const uint32_t pattern = 0x04030201;
  OK(i.d->fill(i.self, 0, nullptr, a + 20, &pattern, 4, 300));
  OK(i.d->copy_async(i.self, 0, nullptr, BP_COPY_DEVICE_TO_DEVICE, b, 1, a, 0, 4096));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  const auto seen = i.take(b, 4096, 1);
  for (uint64_t n = 0; n < 4096; ++n) CHECK(seen[n] == (n < 20 || n >= 1220 ? 0xaa : (n - 20) % 4 + 1));
}

// ---- cases of one configuration
// ------------------------------------------------------------------------------------------------------------

size_t threads_of_process() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) count += !task.path().empty();
  return count;
}

void opening_starts_no_thread() {
  const size_t before = threads_of_process();
  Instance i(get(bp_sim_get, "stream=async"));
  int32_t count = 0;
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  OK(i.d->device_count(i.self, &count));
  OK(i.d->device_properties(i.self, 1, &properties));
  void* pinned = nullptr;
  OK(i.d->host_alloc(i.self, 100, 0, &pinned));
  CHECK(threads_of_process() == before);
  i.alloc(8);
  CHECK(threads_of_process() == before + 1);
  // Signals belong to the host's threads. (The worker has started once it has run something.)
  i.call(nullptr, [](int32_t) {});
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  size_t workers = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool worker = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) worker = line.find("sim") != std::string::npos;
      if (!worker || !line.starts_with("SigBlk:")) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM}) CHECK(blocked >> (number - 1) & 1);
      CHECK(!(blocked >> (SIGSEGV - 1) & 1));
      ++workers;
    }
  }
  CHECK(workers == 1);
}

void memory_has_a_limit() {
  Instance i(get(bp_sim_get, "memory=1MiB,stream=inline"));
  uint64_t free_bytes = 0, total = 0, more = 0;
  const uint64_t a = i.alloc(1 << 20);
  OK(i.d->memory_info(i.self, 0, &free_bytes, &total));
  CHECK(free_bytes == 0 && total == 1 << 20);
  CHECK(i.d->alloc(i.self, 0, 1, 0, &more) == BP_OUT_OF_MEMORY && more == 0);
  i.alloc(1 << 20, 1);
  OK(i.d->free(i.self, 0, a));
  OK(i.d->memory_info(i.self, 0, &free_bytes, &total));
  CHECK(free_bytes == 1 << 20);
  const uint64_t zero = i.alloc(0), zero2 = i.alloc(0);
  CHECK(zero && zero2 && zero != zero2);
  // A copy beyond an allocation is refused, also where the next one begins.
  const uint64_t b = i.alloc(512), c = i.alloc(512);
  std::vector<char> host(1024);
  CHECK(c == b + 512 || b == c + 512);
  const int32_t status = i.d->copy(i.self, 0, nullptr, BP_COPY_HOST_TO_DEVICE, std::min(b, c), 0, reinterpret_cast<uint64_t>(host.data()),
                                   BP_HOST_DEVICE, 513);
  CHECK(status == BP_INVALID_ARGUMENT && i.error().find("not inside one allocation") != std::string::npos);
  bp_pointer_info info{};
  info.struct_size = sizeof info;
  OK(i.d->pointer_info(i.self, b + 511, &info));
  CHECK(info.device == 0 && info.base == b && info.bytes == 512 && info.pinned == 0);
  CHECK(i.d->pointer_info(i.self, reinterpret_cast<uint64_t>(host.data()), &info) == BP_INVALID_ARGUMENT);
}

void a_stray_host_access_faults(const char* options, bool faults) {
  Instance i(get(bp_sim_get, options));
  const uint64_t a = i.alloc(4096);
  i.put(a, "x", 1);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*reinterpret_cast<volatile char*>(a) == 'x' ? 42 : 43);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(faults ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : WIFEXITED(status) && WEXITSTATUS(status) == 42);
  const auto view = find_group<bp_host_view>(normalised(*i.d), BP_HOST_VIEW_ID, BP_HOST_VIEW_VERSION);
  CHECK(view.has_value() != faults);
}

void options_list_what_is_known() {
  for (const char* wrong : {"devicse=3", "devices=65", "memory=2XB", "kind=odd", "stream", "devices=1,devices=2"}) {
    refusal.clear();
    CHECK(!get(bp_sim_get, wrong));
    CHECK(refusal.find("known: devices=<0..64>, memory=<size>, kind=unified|discrete, stream=async|inline") != std::string::npos);
  }
  const bp_driver* none = get(bp_sim_get, "devices=0");
  int32_t count = 5;
  OK(none->device_count(none->self, &count));
  CHECK(count == 0);
  OK(none->close(none->self));  // never opened
  for (const char* wrong : {"memory=1GiB", "devices=17", "devices=0", "devices=2,", "devices=", "dev"}) CHECK(!get(bp_minimal_get, wrong));
  CHECK(!get(bp_emulate_get, ""));
}

void peers_can_be_switched() {
  Instance i(get(bp_sim_get, "stream=inline,kind=discrete"));
  const bp_driver table = normalised(*i.d);
  const auto peer = find_group<bp_peer>(table, BP_PEER_ID, BP_PEER_VERSION);
  const auto exec = find_group<bp_host_exec>(table, BP_HOST_EXEC_ID, BP_HOST_EXEC_VERSION);
  const uint64_t other = i.alloc(8, 1);
  void* at = nullptr;
  CHECK(exec->map(exec->head.self, 0, other, &at) == BP_INVALID_ARGUMENT);
  OK(peer->enable(peer->head.self, 0, 1));
  OK(peer->enable(peer->head.self, 0, 1));
  OK(exec->map(exec->head.self, 0, other, &at));
  OK(peer->disable(peer->head.self, 0, 1));
  CHECK(exec->map(exec->head.self, 0, other, &at) == BP_INVALID_ARGUMENT);
}

void a_half_group_is_named() {
  bp_driver table = normalised(*get(bp_minimal_get, ""));
  table.stream_create = [](void*, int32_t, int32_t, uint32_t, bp_stream**) { return int32_t{BP_OK}; };
  CHECK(incomplete_group(table) == "group streams: slot stream_destroy is missing");
  refusal.clear();
  CHECK(!get(bp_emulate_get, "", &table));
  CHECK(refusal.find("stream_destroy") != std::string::npos);
  table.close(table.self);
  table.struct_size = offsetof(bp_driver, last_error) + 4;
  CHECK(incomplete_group(normalised(table)) == "group minimum: slot last_error is missing");
}

void what_is_thrown_has_a_status_and_a_text() {
  Instance i(get(bp_handle_get, ""));
  uint64_t a = 7, b = 7;
  CHECK(i.d->memory_info(i.self, 0, &a, &b) == BP_UNSUPPORTED && i.error() == "UNSUPPORTED");
  CHECK(i.d->memory_info(i.self, 1, &a, &b) == BP_INTERNAL && i.error().find("no std::exception") != std::string::npos);
  CHECK(i.d->free(i.self, 4, 0) == BP_INVALID_DEVICE && i.error() == "no device 4");
  CHECK(!i.d->stream_create && !i.d->fill && i.d->query_ext);
}

void places_do_not_overlap() {
  AddressMap<int> map(1 << 20, 1 << 20);
  std::map<uint64_t, uint64_t> model;  // base -> bytes
  unsigned seed = 1;
  const auto random = [&](unsigned below) { return (seed = seed * 1103515245 + 12345) / 65536 % below; };
  int full = 0;
  for (int n = 0; n < 20000; ++n) {
    if (model.empty() || random(100) < 55) {
      const uint64_t bytes = random(4) ? random(2000) : random(60000), alignment = uint64_t{1} << random(13);
      try {
        const uint64_t at = map.place(bytes, alignment, n);
        CHECK(at % alignment == 0 && at >= map.base() && at + bytes <= map.base() + map.bytes());
        const auto next = model.lower_bound(at);
        CHECK(next == model.end() || at + std::max<uint64_t>(bytes, 1) <= next->first);
        CHECK(next == model.begin() || std::prev(next)->first + std::prev(next)->second <= at);
        model[at] = bytes;
        CHECK(map.find(at)->handle == n && map.contains(at, bytes) && !map.contains(at, bytes + 1));
      } catch (const Error& error) {
        CHECK(error.status() == BP_OUT_OF_MEMORY);
        ++full;
      }
    } else {
      const auto victim = std::next(model.begin(), random(static_cast<unsigned>(model.size())));
      CHECK(!map.remove(victim->first + 1) || victim->second == 0);
      CHECK(map.remove(victim->first)->bytes == victim->second && !map.find(victim->first));
      model.erase(victim);
    }
  }
  CHECK(full > 0);
  for (const auto& [base, bytes] : model) CHECK(map.remove(base));
  CHECK(map.place(1 << 20, 1, 0) == 1 << 20);  // the gaps have merged
}

void a_polling_wait_ends_in_time() {
  int asked = 0;
  CHECK(poll(0, [&] { return ++asked, BP_PENDING; }) == BP_TIMEOUT && asked == 1);
  CHECK(poll(BP_NO_TIMEOUT, [&] { return ++asked < 200 ? BP_PENDING : BP_OK; }) == BP_OK && asked == 200);
  CHECK(poll(UINT64_MAX - 1, [] { return BP_FAULT; }) == BP_FAULT);
  const auto start = std::chrono::steady_clock::now();
  CHECK(poll(2 * kMs, [] { return BP_TIMEOUT; }) == BP_TIMEOUT);
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(2));
}

int failures = 0;

void report(const std::string& name, const std::function<void()>& body) {
  try {
    body();
    std::printf("ok   %s\n", name.c_str());
  } catch (const std::exception& error) {
    ++failures;
    std::printf("FAIL %s: %s\n", name.c_str(), error.what());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const std::vector<Configuration> configurations = {
      {"sim inline", [] { return get(bp_sim_get, "stream=inline,memory=64MiB"); }},
      {"sim async", [] { return get(bp_sim_get, "stream=async,memory=64MiB"); }},
      {"sim inline discrete", [] { return get(bp_sim_get, "stream=inline,kind=discrete,memory=64MiB"); }},
      {"sim async discrete", [] { return get(bp_sim_get, "stream=async,kind=discrete,memory=64MiB"); }},
      {"minimal emulated inline", [] { return get(bp_emulate_get, "", get(bp_minimal_get, "devices=2")); }},
      {"minimal emulated async", [] { return get(bp_emulate_get, "stream=async", get(bp_minimal_get, "devices=2")); }},
      {"handles emulated", [] { return get(bp_emulate_get, "", get(bp_handle_get, "")); }},
      {"sim without events, emulated", sim_without_events},
      {"sim serialized, emulated", serialized_sim},
  };
  for (const Configuration& configuration : configurations) {
    for (const auto& [name, body] : kCases) {
      const std::string title = std::string(configuration.name) + ": " + name;
      if (title.find(only) == std::string::npos) continue;
      report(title, [&, run = body] {
        Instance instance(configuration.make());
        run(instance);
      });
    }
  }
  const std::vector<std::pair<const char*, std::function<void()>>> single = {
      {"the lock of emulate", [] { CHECK(overlaps == 0); }},
      {"awkward driver", awkward_driver},
      {"opening starts no thread", opening_starts_no_thread},
      {"memory has a limit", memory_has_a_limit},
      {"a stray host access faults", [] { a_stray_host_access_faults("stream=inline,kind=discrete", true); }},
      {"unified memory is the host's", [] { a_stray_host_access_faults("stream=inline,kind=unified", false); }},
      {"options list what is known", options_list_what_is_known},
      {"peers can be switched", peers_can_be_switched},
      {"a half group is named", a_half_group_is_named},
      {"what is thrown has a status and a text", what_is_thrown_has_a_status_and_a_text},
      {"places do not overlap", places_do_not_overlap},
      {"a polling wait ends in time", a_polling_wait_ends_in_time},
  };
  for (const auto& [name, body] : single) {
    if (std::string(name).find(only) != std::string::npos) report(name, body);
  }
  return failures;
}
