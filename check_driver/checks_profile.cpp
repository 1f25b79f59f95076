// check_driver/checks_profile.cpp: family "profile": a record for each piece of work, with its time, its caller's id and its place.
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "busy_stream.h"
#include "context.h"

namespace backplane::check {
namespace profile_impl {

constexpr uint64_t all_kinds = (1u << BP_ACTIVITY_COUNT) - 1;
constexpr int64_t clock_error_ns = 5'000'000;  // of a driver that converts from a clock of its own

constexpr char start_rule[] = "Starts recording the work of all devices";
constexpr char stop_rule[] = "all records have been delivered and the callback is not called again";
constexpr char each_rule[] = "the driver keeps a record of each piece of queued work";
constexpr char clock_rule[] = "All times use one clock: the host's CLOCK_REALTIME in nanoseconds, to which the driver converts";
constexpr char overlap_rule[] = "Records of one stream do not overlap";
constexpr char tag_rule[] = "What the calling thread queues from now on belongs to `correlation`; 0: to nothing";
constexpr char pending_rule[] = "Never waits for work: incomplete work has a record without an end";
constexpr char launch_rule[] = "The record, of a kernel, spans what the stream does between them";
constexpr char range_rule[] = "range_push, range_pop and mark reach the vendor's own tools; without it they return UNSUPPORTED";

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Record {
  bp_activity activity;
  std::string name;
};

// One recording: what its callback has been given.
class Recording {
 public:
  Recording(Context& c, uint64_t kinds = all_kinds) : c_(c), profile_(*c.group<bp_profile>()) {
    began_ns_ = now_ns();
    c.expect(CALL_GROUP(profile_, start, kinds, &Recording::take, this), BP_OK, start_rule);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void tag(uint64_t correlation) const { c_.expect(CALL_GROUP(profile_, tag, correlation), BP_OK, tag_rule); }

  // Ends it; the records by the time they were queued at, of equal ones by their begin.
  std::vector<Record> stop() {
    uint64_t dropped = 77;
    c_.expect(CALL_GROUP(profile_, stop, &dropped), BP_OK, stop_rule);
    ended_ns_ = now_ns();
    c_.require(dropped == 0, stop_rule, "a handful of records, and %llu were lost", wide(dropped));
    std::lock_guard lock(mutex_);
    std::vector<Record> records = records_;
    std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
      return std::pair(a.activity.queued_ns, a.activity.begin_ns) < std::pair(b.activity.queued_ns, b.activity.begin_ns);
    });
    return records;
  }
  size_t taken() const {
    std::lock_guard lock(mutex_);
    return records_.size();
  }

  // It ran within the recording, and not backwards.
  void in_time(const Record& record) const {
    const bp_activity& a = record.activity;
    c_.require(a.begin_ns > 0 && a.end_ns >= a.begin_ns, clock_rule, "a record begins at %lld and ends at %lld", wide(a.begin_ns),
               wide(a.end_ns));
    for (const int64_t at : {a.queued_ns, a.begin_ns, a.end_ns}) {
      c_.require(at >= began_ns_ - clock_error_ns && at <= ended_ns_ + clock_error_ns, clock_rule,
                 "a record says %lld, recording went from %lld to %lld", wide(at), wide(began_ns_), wide(ended_ns_));
    }
  }

 private:
  static void take(void* arg, const bp_activity* const* records, uint64_t count) {
    auto& self = *static_cast<Recording*>(arg);
    std::lock_guard lock(self.mutex_);
    for (uint64_t i = 0; i < count; ++i) {
      Record record{};
      memcpy(static_cast<void*>(&record.activity), records[i], std::min<uint64_t>(records[i]->struct_size, sizeof(bp_activity)));
      if (records[i]->name) record.name = records[i]->name;
      self.records_.push_back(record);
    }
  }

  Context& c_;
  const bp_profile profile_;
  int64_t began_ns_ = 0, ended_ns_ = 0;
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

void upload_async(Context& c, bp_stream* stream, uint64_t to, const uint8_t* from, uint64_t bytes) {
  c.expect(CALL(c, copy_async, 0, stream, to, 0, reinterpret_cast<uint64_t>(from), BP_HOST_DEVICE, bytes, 0u), BP_OK, rules::copy_async);
}

int32_t nothing(void*) { return BP_OK; }

void expect_count(Context& c, const std::vector<Record>& records, size_t count, const char* rule) {
  c.require(records.size() == count, rule, "%zu pieces of work have %zu records", count, records.size());
}

// One of each kind that the driver can queue, and what its record must say.
void records(Context& c) {
  const uint64_t bytes = c.some_bytes(0);
  bp_stream* stream = c.stream(0);
  const uint64_t a = c.alloc(0, bytes), b = c.alloc(0, bytes);
  uint8_t* host = c.pinned(bytes);
  HostBuffer pageable(bytes, 3);
  c.smoke(0, rules::ok);
  Recording recording(c);
  struct Expected {
    int32_t kind;
    bp_stream* stream;
    uint64_t bytes;
    int32_t src, dst;
  };
  std::vector<Expected> expected;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(50)); };  // so that queued_ns differs
  c.upload(0, a, pageable.data(), bytes);
  expected.push_back({BP_ACTIVITY_COPY, nullptr, bytes, BP_HOST_DEVICE, 0});
  pause();
  upload_async(c, stream, b, host, bytes);
  expected.push_back({BP_ACTIVITY_COPY, stream, bytes, BP_HOST_DEVICE, 0});
  pause();
  c.expect(CALL(c, copy_async, 0, stream, b, 0, a, 0, bytes, 0u), BP_OK, rules::copy_async);
  expected.push_back({BP_ACTIVITY_COPY, stream, bytes, 0, 0});
  pause();
  const uint8_t pattern = 9;
  c.expect(CALL(c, fill, 0, stream, b, &pattern, 1u, bytes, 0u), BP_OK, "Queues: write `count` patterns");
  expected.push_back({BP_ACTIVITY_FILL, stream, bytes, 0, 0});
  pause();
  if (const auto exec = c.group<bp_host_exec>()) {
    c.expect(CALL_GROUP(*exec, enqueue, 0, stream, nothing, nullptr, nullptr), BP_OK, "Queues fn(arg) on the stream");
    expected.push_back({BP_ACTIVITY_KERNEL, stream, 0, 0, 0});
    pause();
  }
  c.expect(CALL(c, copy_async, 0, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, b, 0, bytes, 0u), BP_OK, rules::copy_async);
  expected.push_back({BP_ACTIVITY_COPY, stream, bytes, 0, BP_HOST_DEVICE});
  c.synchronize(0);
  const std::vector<Record> got = recording.stop();
  expect_count(c, got, expected.size(), each_rule);
  for (size_t i = 0; i < got.size(); ++i) {
    const bp_activity& is = got[i].activity;
    const Expected& want = expected[i];
    c.require(is.kind == want.kind && is.device == 0 && is.bytes == want.bytes, each_rule,
              "record %zu is of kind %d, device %d, %llu bytes; queued was kind %d, device 0, %llu bytes", i, is.kind, is.device,
              wide(is.bytes), want.kind, wide(want.bytes));
    c.require(is.stream == reinterpret_cast<uint64_t>(want.stream), each_rule, "record %zu names another stream", i);
    c.require(is.src_device == want.src && is.dst_device == want.dst, "of copies: where it reads, BP_HOST_DEVICE for the host",
              "record %zu goes from device %d to %d; queued was from %d to %d", i, is.src_device, is.dst_device, want.src, want.dst);
    c.require(is.thread == static_cast<int32_t>(syscall(SYS_gettid)), "the system's id of the thread that queued it",
              "record %zu names thread %d", i, is.thread);
    recording.in_time(got[i]);
  }
}

// Copies of many sizes on two streams: each stream's records follow each other, in the order in which they were queued.
void order(Context& c) {
  const uint64_t unit = c.unit(0), count = 20;
  bp_stream* streams[] = {c.stream(0), c.stream(0)};
  const uint64_t memory = c.alloc(0, 2 * unit * count);
  uint8_t* host = c.pinned(unit * count);
  Recording recording(c);
  for (uint64_t i = 1; i <= count; ++i) {
    for (const uint64_t side : {0, 1}) upload_async(c, streams[side], memory + side * unit * count, host, i * unit);
  }
  c.synchronize(0);
  std::vector<Record> got = recording.stop();
  expect_count(c, got, 2 * count, each_rule);
  std::stable_sort(got.begin(), got.end(), [](const Record& a, const Record& b) {
    return std::pair(a.activity.stream, a.activity.begin_ns) < std::pair(b.activity.stream, b.activity.begin_ns);
  });
  for (size_t i = 0; i < got.size(); ++i) {
    recording.in_time(got[i]);
    c.require(got[i].activity.bytes == (i % count + 1) * unit, rules::stream_order, "a stream's records are not in the order of its work");
    c.require(i % count == 0 || got[i].activity.begin_ns >= got[i - 1].activity.end_ns, overlap_rule,
              "a record begins %lld ns before the one before it ends", wide(got[i - 1].activity.end_ns - got[i].activity.begin_ns));
  }
}

void tags(Context& c) {
  const uint64_t bytes = c.unit(0);
  const uint64_t memory = c.alloc(0, bytes);
  uint8_t* host = c.pinned(bytes);
  bp_stream* stream = c.stream(0);
  for (int round = 0; round < 2; ++round) {  // the second finds none of the first's ids
    Recording recording(c);
    upload_async(c, stream, memory, host, bytes);
    recording.tag(41);
    std::thread other([&] {
      upload_async(c, stream, memory, host, bytes);
      recording.tag(42);
      upload_async(c, stream, memory, host, bytes);
    });
    other.join();
    upload_async(c, stream, memory, host, bytes);
    recording.tag(0);
    upload_async(c, stream, memory, host, bytes);
    recording.tag(43);
    c.synchronize(0);
    const std::vector<Record> got = recording.stop();
    expect_count(c, got, 5, each_rule);
    std::vector<uint64_t> seen;
    for (const Record& record : got) seen.push_back(record.activity.correlation);
    std::sort(seen.begin(), seen.end());
    c.require(seen == std::vector<uint64_t>{0, 0, 0, 41, 42}, tag_rule,
              "copies tagged 0, 0, 42, 41, 0 have records of %llu, %llu, %llu, %llu, %llu, by size", wide(seen[0]), wide(seen[1]),
              wide(seen[2]), wide(seen[3]), wide(seen[4]));
    for (const Record& record : got) {
      const bool own = record.activity.thread == static_cast<int32_t>(syscall(SYS_gettid));
      c.require(own || record.activity.correlation != 41, tag_rule, "the id of one thread is in the record of another's work");
    }
  }
}

void kinds(Context& c) {
  const uint64_t bytes = c.unit(0);
  const uint64_t memory = c.alloc(0, bytes);
  HostBuffer host(bytes, 1);
  const uint8_t pattern = 9;
  Recording recording(c, 1u << BP_ACTIVITY_FILL);
  c.upload(0, memory, host.data(), bytes);
  c.expect(CALL(c, fill, 0, nullptr, memory, &pattern, 1u, bytes, 0u), BP_OK, "Queues: write `count` patterns");
  c.synchronize(0);
  const std::vector<Record> got = recording.stop();
  c.require(got.size() == 1 && got[0].activity.kind == BP_ACTIVITY_FILL, "kinds: of the records that are requested",
            "fills were asked for; of a copy and a fill there are %zu records", got.size());
}

// Work that a stop finds on its way.
void unfinished(Context& c) {
  const uint64_t bytes = c.unit(0);
  const uint64_t memory = c.alloc(0, bytes);
  uint8_t* host = c.pinned(bytes);
  bp_stream* stream = c.stream(0);
  std::optional<Recording> recording;
  BusyStream hold(c, 0, stream);
  recording.emplace(c, 1u << BP_ACTIVITY_COPY);
  upload_async(c, stream, memory, host, bytes);
  const std::vector<Record> got = recording->stop();
  hold.not_waited_for(pending_rule);
  expect_count(c, got, 1, each_rule);
  if (!hold.held()) hold.still_held();
  c.require(got[0].activity.end_ns == 0, pending_rule, "a copy behind work that still runs has ended at %lld",
            wide(got[0].activity.end_ns));
  hold.release();
  c.synchronize(0);
  upload_async(c, stream, memory, host, bytes);
  c.synchronize(0);
  c.require(recording->taken() == 1, stop_rule, "a record came after stop had returned");
}

void invalid(Context& c) {
  const bp_profile profile = *c.group<bp_profile>();
  const auto callback = [](void*, const bp_activity* const*, uint64_t) {};
  const char* rule = "INVALID_ARGUMENT: it is on already, unknown kinds, no callback";
  uint64_t dropped = 77;
  c.expect(CALL_GROUP(profile, stop, &dropped), BP_INVALID_ARGUMENT, "errors: INVALID_ARGUMENT: it is off");
  c.require(dropped == 77, rules::errors, "%s failed and yet set *dropped", traced_call());
  c.expect(CALL_GROUP(profile, start, uint64_t{1} << 63, callback, nullptr), BP_INVALID_ARGUMENT, rule);
  c.expect(CALL_GROUP(profile, start, all_kinds, nullptr, nullptr), BP_INVALID_ARGUMENT, rule);
  for (int again = 0; again < 2; ++again) {
    Recording recording(c);
    c.expect(CALL_GROUP(profile, start, all_kinds, callback, nullptr), BP_INVALID_ARGUMENT, rule);
    expect_count(c, recording.stop(), 0, each_rule);
  }
}

void launch(Context& c) {
  const bp_profile profile = *c.group<bp_profile>();
  bp_stream* stream = c.stream(0);
  const auto begin = [&] { return CALL_GROUP(profile, launch_begin, 0, stream); };
  const auto end = [&](const char* name) { return CALL_GROUP(profile, launch_end, 0, stream, name); };
  if (profile.head.flags & BP_PROFILE_NATIVE) {
    c.expect(begin(), BP_UNSUPPORTED, launch_rule);
    c.expect(end("none"), BP_UNSUPPORTED, launch_rule);
    return;
  }
  Recording recording(c);
  recording.tag(5);
  c.expect(begin(), BP_OK, launch_rule);
  c.expect(end("vendor_kernel"), BP_OK, launch_rule);
  c.expect(begin(), BP_OK, launch_rule);
  c.expect(end(nullptr), BP_OK, launch_rule);
  c.synchronize(0);
  const std::vector<Record> got = recording.stop();
  expect_count(c, got, 1, launch_rule);
  const bp_activity& is = got[0].activity;
  c.require(is.kind == BP_ACTIVITY_KERNEL && got[0].name == "vendor_kernel" && is.correlation == 5, launch_rule,
            "vendor_kernel, tagged 5, has the record of '%s', kind %d, tagged %llu", got[0].name.c_str(), is.kind, wide(is.correlation));
  recording.in_time(got[0]);
}

void ranges(Context& c) {
  const bp_profile profile = *c.group<bp_profile>();
  const int32_t want = profile.head.flags & BP_PROFILE_RANGES ? BP_OK : BP_UNSUPPORTED;
  for (const char* name : {"outer", "inner"}) c.expect(CALL_GROUP(profile, range_push, name), want, range_rule);
  c.expect(CALL_GROUP(profile, mark, "here"), want, range_rule);
  for (int i = 0; i < 2; ++i) c.expect(CALL_GROUP(profile, range_pop), want, range_rule);
  if (want == BP_OK) c.expect(CALL_GROUP(profile, range_pop), BP_INVALID_ARGUMENT, "errors: INVALID_ARGUMENT: a pop without a push");
}

}  // namespace profile_impl

Checks profile_checks() {
  using namespace profile_impl;
  constexpr uint64_t needs = needs_profile | needs_streams | needs_pinned;
  return {
      {"profile.records", "each piece of work has a record that is right", needs | needs_fill, records},
      {"profile.order", "a stream's records follow each other", needs, order},
      {"profile.tags", "records carry the queueing thread's id", needs | needs_threads, tags},
      {"profile.kinds", "only what was asked for is recorded", needs_profile | needs_fill, kinds},
      {"profile.unfinished", "stop waits for no work", needs, unfinished},
      {"profile.invalid", "wrong arguments are refused", needs_profile, invalid},
      {"profile.launch", "a vendor's own work has a record", needs_profile | needs_streams, launch},
      {"profile.ranges", "ranges and marks, if they are offered", needs_profile, ranges},
  };
}

}  // namespace backplane::check
