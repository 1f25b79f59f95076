// check_driver/checks_host_exec.cpp: family "host_exec": host functions in stream order, and where they reach device memory.
#include <string.h>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace host_exec_impl {

constexpr char enqueue_rule[] = "Queues fn(arg) on the stream";
constexpr char destroy_rule[] =
    "destroy(arg) runs exactly once when fn can no longer be called, on any thread, also if enqueue itself fails";
constexpr char map_rule[] =
    "Where fn reaches a device address. Valid inside fn only, and for the whole allocation the address lies in. "
    "errors: INVALID_ARGUMENT for an address that is not the device's";

// Adds to every byte of a range, through map.
struct AddWork {
  const bp_host_exec* exec;
  int32_t device;
  uint64_t address;
  uint64_t bytes;
  uint8_t value;
};

int32_t add(void* arg) {
  const auto* work = static_cast<AddWork*>(arg);
  void* memory = nullptr;
  const int32_t status = work->exec->map(work->exec->head.self, work->device, work->address, &memory);
  if (status != BP_OK) return status;
  auto* bytes = static_cast<uint8_t*>(memory);
  for (uint64_t i = 0; i < work->bytes; ++i) bytes[i] = static_cast<uint8_t>(bytes[i] + work->value);
  return BP_OK;
}

void drop_add(void* arg) { delete static_cast<AddWork*>(arg); }

// Functions between copies: each sees what was queued before it, and is seen by what comes after.
void order(Context& c) {
  const bp_host_exec exec = *c.group<bp_host_exec>();
  for (int32_t d = 0; d < c.devices(); ++d) {
    const uint64_t bytes = c.some_bytes(d);
    bp_stream* stream = c.stream(d);
    uint8_t *sent = c.pinned(bytes, 11), *back = c.pinned(bytes);
    const uint64_t a = c.alloc(d, bytes), b = c.alloc(d, bytes);
    HostBuffer want(bytes, 11 + 5 + 7);
    for (int round = 0; round < 20; ++round) {
      memset(back, 0, bytes);
      c.expect(CALL(c, copy_async, d, stream, a, d, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
      c.expect(CALL_GROUP(exec, enqueue, d, stream, add, new AddWork{&exec, d, a, bytes, 5}, drop_add), BP_OK, enqueue_rule);
      c.expect(CALL(c, copy_async, d, stream, b, d, a, d, bytes, 0u), BP_OK, rules::copy_async);
      c.expect(CALL_GROUP(exec, enqueue, d, stream, add, new AddWork{&exec, d, b, bytes, 7}, drop_add), BP_OK, enqueue_rule);
      c.expect(CALL(c, copy_async, d, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, b, d, bytes, 0u), BP_OK, rules::copy_async);
      c.synchronize(d, stream);
      c.same(back, want.data(), bytes, rules::stream_order, "copy, function, copy, function, copy");
    }
  }
}

void destroy(Context& c) {
  const bp_host_exec exec = *c.group<bp_host_exec>();
  std::vector<Calls> counts(100);
  for (Calls& count : counts) c.expect(CALL_GROUP(exec, enqueue, 0, nullptr, Calls::run, &count, Calls::destroy), BP_OK, enqueue_rule);
  Calls kept;
  c.expect(CALL_GROUP(exec, enqueue, 0, nullptr, Calls::run, &kept, nullptr), BP_OK, "it may be NULL");
  c.synchronize(0);
  for (const Calls& count : counts) c.require(count.ran == 1, enqueue_rule, "a function ran %d times, expected 1", count.ran.load());
  c.require(kept.ran == 1, enqueue_rule, "a function without destroy ran %d times, expected 1", kept.ran.load());
  Calls refused;
  const int32_t status = CALL_GROUP(exec, enqueue, c.devices(), nullptr, Calls::run, &refused, Calls::destroy);
  c.expect(status, BP_INVALID_DEVICE, rules::no_such_device);
  // destroy may run a moment after the work is complete; the end of the instance is the last time for it.
  c.close();
  for (const Calls& count : counts) {
    c.require(count.destroyed == 1, destroy_rule, "destroy ran %d times for a function that ran", count.destroyed.load());
    c.require(count.ran_after_destroy == 0, destroy_rule, "fn ran after destroy");
  }
  c.require(refused.destroyed == 1 && refused.ran == 0, destroy_rule, "enqueue failed; fn then ran %d times and destroy %d times",
            refused.ran.load(), refused.destroyed.load());
}

struct MapWork {
  const bp_host_exec* exec;
  uint64_t address;
  uint64_t bytes;
  int32_t host_status = -1, unknown_status = -1;
  int64_t interior = -1;  // of the middle, from the start
  uint8_t last = 0;
  int32_t status = -1;
};

int32_t map_work(void* arg) {
  auto* work = static_cast<MapWork*>(arg);
  const bp_host_exec& exec = *work->exec;
  void *start = nullptr, *inside = nullptr, *none = nullptr;
  work->status = exec.map(exec.head.self, 0, work->address, &start);
  if (work->status == BP_OK) work->status = exec.map(exec.head.self, 0, work->address + work->bytes / 2, &inside);
  if (work->status != BP_OK) return BP_OK;
  work->interior = static_cast<uint8_t*>(inside) - static_cast<uint8_t*>(start);
  work->last = static_cast<uint8_t*>(start)[work->bytes - 1];
  int on_host = 0;
  work->host_status = exec.map(exec.head.self, 0, reinterpret_cast<uint64_t>(&on_host), &none);
  work->unknown_status = exec.map(exec.head.self, 0, 0x10, &none);
  return BP_OK;
}

void map(Context& c) {
  const bp_host_exec exec = *c.group<bp_host_exec>();
  const uint64_t bytes = c.some_bytes(0);
  MapWork work{};
  work.exec = &exec;
  work.bytes = bytes;
  work.address = c.alloc(0, bytes);
  HostBuffer data(bytes, 0x42);
  c.upload(0, work.address, data.data(), bytes);
  c.expect(CALL_GROUP(exec, enqueue, 0, nullptr, map_work, &work, nullptr), BP_OK, enqueue_rule);
  c.synchronize(0);
  c.require(work.status == BP_OK, map_rule, "map inside fn gave %s, expected BP_OK", status_text(work.status).c_str());
  c.require(work.interior == static_cast<int64_t>(bytes / 2), map_rule, "map(address + %llu) lies %lld bytes behind map(address)",
            wide(bytes / 2), wide(work.interior));
  c.require(work.last == 0x42, map_rule, "the last byte of the allocation reads 0x%02x through map, expected 0x42", work.last);
  c.require(work.host_status == BP_INVALID_ARGUMENT, map_rule, "map of a host address gave %s, expected BP_INVALID_ARGUMENT",
            status_text(work.host_status).c_str());
  c.require(work.unknown_status == BP_INVALID_ARGUMENT, map_rule, "map of address 0x10 gave %s, expected BP_INVALID_ARGUMENT",
            status_text(work.unknown_status).c_str());
}

void pending(Context& c) {
  const bp_host_exec exec = *c.group<bp_host_exec>();
  Calls count;
  BusyStream hold(c, 0, nullptr);
  c.expect(CALL_GROUP(exec, enqueue, 0, nullptr, Calls::run, &count, Calls::destroy), BP_OK, enqueue_rule);
  hold.not_waited_for(enqueue_rule);
  stays_unrun(c, hold, rules::stream_order, "the function", [&] { return count.ran.load(); });
  hold.release();
  c.synchronize(0);
  c.require(count.ran == 1, enqueue_rule, "the function ran %d times", count.ran.load());
}

}  // namespace host_exec_impl

Checks host_exec_checks() {
  using namespace host_exec_impl;
  return {
      {"host_exec.order", "functions run in stream order", needs_host_exec | needs_streams | needs_pinned, order},
      {"host_exec.pending", "enqueue does not wait, fn does not run early", needs_host_exec, pending},
      {"host_exec.destroy", "destroy runs exactly once", needs_host_exec, destroy},
      {"host_exec.map", "fn reaches device memory through map", needs_host_exec, map},
  };
}

}  // namespace backplane::check
