// check_driver/checks_stream.cpp: family "stream": order, waits between streams, priorities, limits.
#include <string.h>

#include <algorithm>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace stream_impl {

// How many streams a check may have at once.
int32_t allowed(Context& c, int32_t device, int32_t wanted) {
  const int32_t limit = c.properties(device).stream_limit;
  return limit ? std::min(limit, wanted) : wanted;
}

int32_t copy_async(Context& c, bp_stream* stream, uint64_t to, uint64_t from, uint64_t bytes) {
  return CALL(c, copy_async, 0, stream, to, 0, from, 0, bytes, 0u);
}

// A chain of copies: each must see what the one before wrote. Round r ends with the bytes of its own seed in `d`.
void order(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* streams[] = {c.stream(0), nullptr};
  uint8_t *sent = c.pinned(bytes), *back = c.pinned(bytes);
  HostBuffer want(bytes);
  const uint64_t a = c.alloc(0, bytes), b = c.alloc(0, bytes), d = c.alloc(0, bytes);
  for (uint32_t round = 0; round < 40; ++round) {
    bp_stream* s = streams[round % 2];
    want.fill_pattern(round);
    memcpy(sent, want.data(), bytes);
    c.expect(CALL(c, copy_async, 0, s, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
    c.expect(copy_async(c, s, b, a, bytes), BP_OK, rules::copy_async);
    c.expect(copy_async(c, s, d, b, bytes), BP_OK, rules::copy_async);
    c.expect(CALL(c, copy_async, 0, s, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, d, 0, bytes, 0u), BP_OK, rules::copy_async);
    c.synchronize(0, s);
    c.same(back, want.data(), bytes, rules::stream_order, "the end of a chain of copy_async");
  }
}

void create(Context& c) {
  std::vector<bp_stream*> live;
  const int32_t count = allowed(c, 0, 32);
  for (int round = 0; round < 8; ++round) {
    for (int32_t i = 0; i < count; ++i) live.push_back(c.stream(0));
    std::vector<bp_stream*> sorted = live;
    std::sort(sorted.begin(), sorted.end());
    c.require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), rules::stream_order,
              "stream_create gave the same handle twice while it is live");
    for (bp_stream* s : live) c.expect(CALL(c, stream_destroy, 0, s), BP_OK, "Completes pending work first");
    live.clear();
  }
}

void priorities(Context& c) {
  const char* rule = "priority as in the properties: a smaller number is a higher priority; 0 is the default and lies in the range";
  const bp_device_properties& p = c.properties(0);
  for (int32_t priority : {p.priority_greatest, 0, p.priority_least}) {
    bp_stream* stream = nullptr;
    c.expect(CALL(c, stream_create, 0, priority, 0u, &stream), BP_OK, rule);
    c.synchronize(0, stream);
    c.expect(CALL(c, stream_destroy, 0, stream), BP_OK, rule);
  }
}

void limit(Context& c) {
  const char* rule = "errors: UNSUPPORTED when stream_limit is reached";
  const int32_t limit = c.properties(0).stream_limit;
  if (!limit) throw NotOffered{"stream_limit is 0: no limit"};
  if (limit > 1024) throw NotOffered{"stream_limit is above 1024"};
  std::vector<bp_stream*> live;
  for (int32_t i = 0; i < limit; ++i) {
    bp_stream* stream = nullptr;
    c.expect(CALL(c, stream_create, 0, 0, 0u, &stream), BP_OK, "stream_limit: streams that may exist at once besides the default one");
    live.push_back(stream);
  }
  bp_stream* stream = nullptr;
  c.expect(CALL(c, stream_create, 0, 0, 0u, &stream), BP_UNSUPPORTED, rule);
  c.expect(CALL(c, stream_destroy, 0, live.back()), BP_OK, rule);
  live.pop_back();
  live.push_back(c.stream(0));
  for (bp_stream* s : live) c.expect(CALL(c, stream_destroy, 0, s), BP_OK, rule);
}

void query(Context& c) {
  for (bp_stream* s : {c.stream(0), static_cast<bp_stream*>(nullptr)}) {
    c.expect(CALL(c, stream_query, 0, s), BP_OK, rules::query);
    BusyStream hold(c, 0, s);
    stays_pending(c, hold, rules::query, [&] { return CALL(c, stream_query, 0, s); });
    hold.release();
    c.synchronize(0, s);
    c.expect(CALL(c, stream_query, 0, s), BP_OK, rules::query);
  }
}

// Work of one stream waits for an event of another: it neither starts early nor sees old bytes.
void wait(Context& c) {
  const char* rule = "Work queued later on the stream waits for the event's latest record at the time of the call";
  const uint64_t bytes = c.some_bytes(0);
  bp_stream *first = c.stream(0), *second = c.stream(0);
  bp_event *done = c.event(0), *copied = c.event(0);
  uint8_t* sent = c.pinned(bytes, 2);
  HostBuffer old_bytes(bytes, 1), want(bytes, 2);
  const uint64_t a = c.alloc(0, bytes), b = c.alloc(0, bytes);
  c.upload(0, a, old_bytes.data(), bytes);
  BusyStream hold(c, 0, first);
  c.expect(CALL(c, copy_async, 0, first, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, event_record, 0, first, done, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, second, done), BP_OK, rule);
  hold.not_waited_for("Does not block");
  c.expect(copy_async(c, second, b, a, bytes), BP_OK, rule);
  c.expect(CALL(c, event_record, 0, second, copied, 0u), BP_OK, rule);
  stays_pending(c, hold, rule, [&] { return CALL(c, event_query, 0, copied); });
  hold.release();
  c.synchronize(0, second);
  c.holds(0, b, want.data(), bytes, rule, "memory written on one stream, read on another after stream_wait", second);
}

void destroy_pending(Context& c) {
  const char* rule = "Completes pending work first";
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  uint8_t *sent = c.pinned(bytes, 7), *back = c.pinned(bytes);
  const uint64_t a = c.alloc(0, bytes);
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, a, 0, bytes, 0u), BP_OK, rule);
  hold.release_later();
  c.expect(CALL(c, stream_destroy, 0, stream), BP_OK, rule);
  c.same(back, sent, bytes, rule, "a pending copy after stream_destroy returned");
}

// synchronize is for all streams of the device, the default one included.
void device_synchronize(Context& c) {
  const char* rule = "Waits until all work of all streams of the device is complete";
  const uint64_t bytes = c.some_bytes(0);
  std::vector<bp_stream*> streams{c.stream(0), nullptr};
  if (allowed(c, 0, 2) == 2) streams.push_back(c.stream(0));
  const uint64_t a = c.alloc(0, bytes);
  HostBuffer want(bytes, 6);
  c.upload(0, a, want.data(), bytes);
  for (bp_stream* s : streams) {
    uint8_t* back = c.pinned(bytes);
    BusyStream hold(c, 0, s);
    c.expect(CALL(c, copy_async, 0, s, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, a, 0, bytes, 0u), BP_OK, rules::copy_async);
    hold.release_later();
    c.expect(CALL(c, synchronize, 0, BP_NO_TIMEOUT), BP_OK, rule);
    c.same(back, want.data(), bytes, rule, s ? "a pending copy of a stream" : "a pending copy of the default stream");
    c.expect(CALL(c, stream_query, 0, s), BP_OK, rule);
  }
}

void native(Context& c) {
  const char* rule = "The vendor's own stream object behind the handle, for its kernels";
  bp_stream* stream = c.stream(0);
  uint64_t native = 0, again = 0;
  c.expect(CALL(c, stream_native, 0, stream, &native), BP_OK, rule);
  c.expect(CALL(c, stream_native, 0, stream, &again), BP_OK, rule);
  c.require(native == again, rule, "two calls for the same stream gave 0x%llx and 0x%llx", wide(native), wide(again));
  c.expect(CALL(c, stream_native, 0, nullptr, &native), BP_OK, "A NULL stream is the device's default stream");
}

// From handle to native object and back. Where there is no stream_native the handle's value is the object.
void from_native(Context& c) {
  const char* rule = "For the native object of a stream of this instance returns that stream (NULL for the default one)";
  const auto native_of = [&](bp_stream* stream) {
    auto native = reinterpret_cast<uint64_t>(stream);
    if (c.table().stream_native) c.expect(CALL(c, stream_native, 0, stream, &native), BP_OK, rule);
    return native;
  };
  std::vector<bp_stream*> streams{c.stream(0)};
  if (c.table().stream_native) streams.push_back(nullptr);
  if (allowed(c, 0, 2) == 2) streams.push_back(c.stream(0));
  int mark = 0;
  for (bp_stream* s : streams) {
    for (int round = 0; round < 2; ++round) {
      auto* found = reinterpret_cast<bp_stream*>(&mark);
      c.expect(CALL(c, stream_from_native, 0, native_of(s), &found), BP_OK, rule);
      c.require(found == s, rule, "%s gave %p, expected %p", traced_call(), static_cast<void*>(found), static_cast<void*>(s));
    }
  }
}

}  // namespace stream_impl

Checks stream_checks() {
  using namespace stream_impl;
  return {
      {"stream.order", "work runs in the order of submission", needs_streams | needs_pinned, order},
      {"stream.create", "many streams, each its own handle", needs_streams, create},
      {"stream.priorities", "every priority of the range is taken", needs_streams, priorities},
      {"stream.limit", "one stream above the limit is UNSUPPORTED", needs_streams, limit},
      {"stream.query", "PENDING while work is pending, OK after it", needs_streams, query},
      {"stream.wait", "a stream waits for another one's event", needs_streams | needs_events | needs_pinned, wait},
      {"stream.destroy_pending", "destroy completes pending work", needs_streams | needs_pinned, destroy_pending},
      {"stream.device_synchronize", "synchronize waits for every stream", needs_streams | needs_pinned, device_synchronize},
      {"stream.native", "a steady native handle", needs_streams | needs_stream_native, native},
      {"stream.from_native", "a native handle gives its stream back", needs_streams | needs_stream_from_native, from_native},
  };
}

}  // namespace backplane::check
