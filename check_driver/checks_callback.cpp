// check_driver/checks_callback.cpp: family "callback": host callbacks in stream order.
#include <string.h>

#include <mutex>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace callback_impl {

constexpr char rule[] = "Queues a host callback after the stream's work; work queued later waits for it";
constexpr char once_rule[] = "Runs exactly once when the stream reaches it, on any thread";

struct Log {
  std::mutex mutex;
  std::vector<int> ran;
  std::vector<int32_t> statuses;
};

struct Entry {
  Log* log;
  int index;
};

void note(void* arg, int32_t status) {
  const auto* entry = static_cast<Entry*>(arg);
  std::lock_guard lock(entry->log->mutex);
  entry->log->ran.push_back(entry->index);
  entry->log->statuses.push_back(status);
}

void once(Context& c) {
  constexpr int count = 200;
  Log log;
  std::vector<Entry> entries(count);
  for (bp_stream* s : {c.stream(0), static_cast<bp_stream*>(nullptr)}) {
    log.ran.clear();
    log.statuses.clear();
    for (int i = 0; i < count; ++i) {
      entries[static_cast<size_t>(i)] = {&log, i};
      c.expect(CALL(c, stream_callback, 0, s, note, &entries[static_cast<size_t>(i)]), BP_OK, rule);
    }
    c.synchronize(0, s);
    // A second run of one would come after the synchronize at the latest with the device's.
    c.synchronize(0);
    std::lock_guard lock(log.mutex);
    c.require(log.ran.size() == count, once_rule, "%d callbacks were queued and %zu ran by the time stream_synchronize returned", count,
              log.ran.size());
    for (int i = 0; i < count; ++i) {
      c.require(log.ran[static_cast<size_t>(i)] == i, rules::stream_order, "callback %d ran in place %d", log.ran[static_cast<size_t>(i)],
                i);
      c.require(log.statuses[static_cast<size_t>(i)] == BP_OK, once_rule, "callback %d got status %s, expected BP_OK", i,
                status_text(log.statuses[static_cast<size_t>(i)]).c_str());
    }
  }
}

struct Exchange {
  uint8_t* read;   // what the copy before the callback brought
  uint8_t* write;  // what the copy behind it takes
  uint64_t bytes;
  uint8_t seen;
};

void exchange(void* arg, int32_t) {
  auto* e = static_cast<Exchange*>(arg);
  e->seen = e->read[e->bytes - 1];
  memset(e->write, e->seen + 1, e->bytes);
}

// The callback sees the bytes of the copy before it, and the copy behind it takes the bytes of the callback.
void order(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  uint8_t *sent = c.pinned(bytes), *read = c.pinned(bytes), *write = c.pinned(bytes);
  const uint64_t a = c.alloc(0, bytes);
  HostBuffer want(bytes);
  for (uint8_t round = 0; round < 30; ++round) {
    const auto value = static_cast<uint8_t>(round * 3);
    memset(sent, value, bytes);
    memset(read, 0xff, bytes);
    memset(write, 0xff, bytes);
    memset(want.data(), value + 1, bytes);
    Exchange e{read, write, bytes, 0xff};
    c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(sent), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
    c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(read), BP_HOST_DEVICE, a, 0, bytes, 0u), BP_OK, rule);
    c.expect(CALL(c, stream_callback, 0, stream, exchange, &e), BP_OK, rule);
    c.expect(CALL(c, copy_async, 0, stream, a, 0, reinterpret_cast<uint64_t>(write), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
    c.synchronize(0, stream);
    c.require(e.seen == value, rule, "the callback saw byte 0x%02x, expected 0x%02x of the copy before it", e.seen, value);
    c.holds(0, a, want.data(), bytes, rule, "what the copy behind the callback took", stream);
  }
}

void pending(Context& c) {
  bp_stream* stream = c.stream(0);
  Log log;
  Entry entry{&log, 0};
  const auto ran = [&] {
    std::lock_guard lock(log.mutex);
    return log.ran.size();
  };
  BusyStream hold(c, 0, stream);
  c.expect(CALL(c, stream_callback, 0, stream, note, &entry), BP_OK, rule);
  hold.not_waited_for(rule);
  stays_unrun(c, hold, "Runs exactly once when the stream reaches it", "the callback", ran);
  hold.release();
  c.synchronize(0, stream);
  c.require(ran() == 1, once_rule, "the callback ran %zu times", ran());
}

}  // namespace callback_impl

Checks callback_checks() {
  using namespace callback_impl;
  return {
      {"callback.once", "each runs exactly once, in order", needs_streams | needs_stream_callback, once},
      {"callback.order", "between the copies around it", needs_streams | needs_pinned | needs_stream_callback, order},
      {"callback.pending", "not before the work ahead of it", needs_streams | needs_stream_callback, pending},
  };
}

}  // namespace backplane::check
