// check_driver/checks_life.cpp: family "life": open, close, and what is left afterwards.
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <chrono>
#include <optional>
#include <thread>

#include "busy_stream.h"
#include "context.h"
#include "loader.h"
#include "process.h"

namespace backplane::check {
namespace life_impl {

constexpr char close_rule[] = "Explicit shutdown: ends the instance's threads, releases everything, including the table";

void nothing(void*, int32_t) {}

// Uses all that the driver has, and leaves it unreleased.
void use(Context& c) {
  const bp_driver& t = c.table();
  for (int32_t d = 0; d < c.devices(); ++d) {
    c.smoke(d, close_rule);
    c.alloc(d, 1 << 16);
    if (!t.stream_create) continue;
    for (bp_stream* s : {c.stream(d), static_cast<bp_stream*>(nullptr)}) {
      if (t.stream_callback)
        c.expect(CALL(c, stream_callback, d, s, nothing, nullptr), BP_OK, "Queues a host callback after the stream's work");
      if (t.event_create) c.expect(CALL(c, event_record, d, s, c.event(d, BP_EVENT_TIMING), 0u), BP_OK, "owner: the caller");
    }
    if (t.host_alloc) c.pinned(1 << 16);
  }
}

void cycle(Context& c) {
  c.load();
  c.open();
  use(c);
  c.close();
}

void unopened(Context& c) {
  const char* rule = "Also releases an instance that was never opened";
  c.expect(CALL(c, close), BP_OK, rule);
  c.load();
  c.devices();
  c.expect(CALL(c, close), BP_OK, rule);
}

void fresh(Context& c) {
  const char* rule = "Each call gives a new instance, whose table lives until its close()";
  for (int round = 0; round < 3; ++round) cycle(c);
  c.load();
  c.open();
  for (int32_t d = 0; d < c.devices(); ++d) c.smoke(d, rule);
}

void two(Context& c) {
  const char* rule = "Each call gives a new instance, whose table lives until its close()";
  Context second(c.options());
  second.load();
  c.open();
  second.open();
  const uint64_t bytes = c.some_bytes(0);
  HostBuffer want(bytes, 8);
  const uint64_t a = second.alloc(0, bytes);
  second.upload(0, a, want.data(), bytes);
  c.smoke(0, rule);
  use(c);
  c.close();
  second.holds(0, a, want.data(), bytes, rule, "memory of one instance after another one was closed");
  second.smoke(0, rule);
  second.close();
}

// close with work pending, and nothing given back.
void busy(Context& c) {
  use(c);
  bp_stream* stream = c.stream(0);
  Calls function, callback;
  const std::optional<bp_host_exec> exec = c.group<bp_host_exec>();
  BusyStream hold(c, 0, stream);
  if (exec) c.expect(CALL_GROUP(*exec, enqueue, 0, stream, Calls::run, &function, Calls::destroy), BP_OK, "Queues fn(arg) on the stream");
  const bool calls_back = c.table().stream_callback != nullptr;
  if (calls_back)
    c.expect(CALL(c, stream_callback, 0, stream, Calls::callback, &callback), BP_OK, "Queues a host callback after the stream's work");
  hold.release_later();
  c.close();
  if (exec) {
    c.require(function.destroyed == 1, "destroy(arg) runs exactly once when fn can no longer be called",
              "a function was pending at close; its destroy ran %d times", function.destroyed.load());
  }
  c.require(!calls_back || callback.ran == 1, "Runs exactly once", "a callback was pending at close; it ran %d times", callback.ran.load());
}

// Entries of /proc vanish a moment after a thread is joined.
int settled(const char* folder, int want) {
  int now = count_proc(folder);
  for (int i = 0; i < 500 && now > want; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    now = count_proc(folder);
  }
  return now;
}

// A runtime's own pool, which the first open makes, belongs to the process: what each open leaves behind is wrong.
void threads(Context& c) {
  if (count_proc("task") < 0) throw NotOffered{"this system has no /proc/self/task"};
  const int before = count_proc("task");
  cycle(c);
  const int first = settled("task", before);
  for (int round = 2; round <= 3; ++round) {
    cycle(c);
    const int after = settled("task", first);
    c.require(after <= first, close_rule, "%d threads after a first open and close, %d after the %s", first, after,
              round == 2 ? "second" : "third");
  }
}

void files(Context& c) {
  cycle(c);  // what is opened once for the process may stay
  const int before = count_proc("fd");
  if (before < 0) throw NotOffered{"this system has no /proc/self/fd"};
  for (int round = 0; round < 3; ++round) cycle(c);
  const int after = settled("fd", before);
  c.require(after <= before, close_rule, "%d open files before three instances, %d after their close", before, after);
}

// Address space that grows with every instance is never given back.
void address_space_stays(Context& c) {
  constexpr long long piece = 16 << 20;
  constexpr int rounds = 16;
#if defined(__GLIBC__)
  // Large blocks of a driver that uses malloc have mappings of their own: what is freed is seen, and holes in the heap do not count.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
  const auto round = [&] {
    c.load();
    c.open();
    const bp_device_properties& p = c.properties(0);
    if ((p.max_allocation && p.max_allocation < piece) || (p.total_memory && p.total_memory < 2 * piece)) {
      throw NotOffered{"the device gives less than 16 MiB"};
    }
    use(c);
    c.alloc(0, piece);
    c.close();
  };
  for (int i = 0; i < 4; ++i) round();
  const long long before = address_space();
  if (before < 0) throw NotOffered{"this system has no /proc/self/maps"};
  for (int i = 0; i < rounds; ++i) round();
  const long long grown = address_space() - before;
  c.require(grown < piece * rounds / 2, close_rule, "the process grew by %lld MiB over %d instances with 16 MiB each", grown >> 20, rounds);
}

void device_memory(Context& c) {
  const auto free_bytes = [&] {
    uint64_t free_now = 0, total = 0;
    c.smoke(0, close_rule);  // whatever a first use takes is taken
    c.expect(CALL(c, memory_info, 0, &free_now, &total), BP_OK, "Free and total bytes of the device");
    return free_now;
  };
  const uint64_t before = free_bytes();
  uint64_t bytes = before / 4;
  if (const uint64_t limit = c.properties(0).max_allocation) bytes = std::min(bytes, limit);
  c.alloc(0, bytes);
  c.close();
  c.load();
  c.open();
  const uint64_t after = free_bytes();
  c.require(after + bytes / 2 > before, close_rule,
            "free bytes were %llu in an instance that left %llu allocated, and are %llu in the next one", wide(before), wide(bytes),
            wide(after));
}

void nothing_early(Context& c) {
  const char* rule = "bp_driver_get, device_count and device_properties create no device context and no thread";
  const int before = count_proc("task");
  if (before < 0) throw NotOffered{"this system has no /proc/self/task"};
  c.load();
  if (!(c.table().flags & BP_DRIVER_COUNT_FORKS)) {
    for (int32_t d = 0; d < c.devices(); ++d) c.properties(d);
  }
  const int after = count_proc("task");
  c.require(after == before, rule, "%d threads before bp_driver_get, %d after count and properties", before, after);
  c.open();
}

void exit_open(Context& c) {
  const char* rule = "close is never called at interpreter exit: the process may end with an open instance";
  const auto leave_open = [&] {
    c.load();
    c.open();
    use(c);
  };
  c.in_child(rule, "a process that ended with an open instance", leave_open, true);
}

}  // namespace life_impl

Checks life_checks() {
  using namespace life_impl;
  return {
      {"life.nothing_early", "no thread before open", needs_no_device | starts_unloaded, nothing_early},
      {"life.unopened", "close of an instance that was never opened", needs_no_device | starts_closed, unopened},
      {"life.fresh", "a fresh instance after close works", needs_no_device | starts_unloaded, fresh},
      {"life.two", "two instances at once do not touch each other", starts_closed, two},
      {"life.busy", "close with pending work ends it properly", needs_streams, busy},
      {"life.threads", "no thread more is left after each close", needs_no_device | starts_unloaded, threads},
      {"life.files", "no open file is left after close", needs_no_device | starts_unloaded, files},
      {"life.address_space", "no address space is left after close", starts_closed, address_space_stays},
      {"life.device_memory", "no device memory is left after close", needs_memory_info, device_memory},
      {"life.exit_open", "a process may end with an open instance", needs_no_device | starts_unloaded, exit_open},
  };
}

}  // namespace backplane::check
