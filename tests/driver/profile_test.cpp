// tests/driver/profile_test.cpp: bp.profile of the simulated device and of the shim emulate: threads that queue while recordings begin and
// end, devices in error, work that is dropped. The exit status is the number of failures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/graph.h>
#include <backplane/driver/host_exec.h>
#include <backplane/driver/profile.h>

#include "instance.h"
#include "report.h"

namespace {

constexpr uint64_t all = (1u << BP_ACTIVITY_COUNT) - 1;

/// How an instance is made: a driver with options, and emulate over it or not.
struct Kind {
  const char* name;
  bp_driver_get_fn driver;
  const char* options;
  const char* emulate;  // its options; NULL: none

  const bp_driver* make() const {
    const bp_driver* below = get(driver, options);
    return emulate ? get(bp_emulate_get, emulate, below) : below;
  }
};
const Kind kinds[] = {
    {"async", bp_sim_get, "memory=64MiB,stream=async", nullptr},
    {"inline", bp_sim_get, "memory=64MiB,stream=inline,kind=discrete", nullptr},
    {"by events", bp_sim_get, "memory=64MiB,profile=off", ""},
    {"by events, inline", bp_sim_get, "memory=64MiB,profile=off,stream=inline", ""},
    {"minimal", bp_minimal_get, "", "stream=async"},
    {"minimal, inline", bp_minimal_get, "", "stream=inline"},
};

struct Profiled : Instance {
  explicit Profiled(const Kind& kind) : Instance(kind.make()), group(*find_group<bp_profile>(*d)) {}

  void start() {
    records.clear();
    OK(group.start(group.head.self, all, &Profiled::take, this));
  }
  void stop() {
    uint64_t dropped = 9;
    OK(group.stop(group.head.self, &dropped));
    CHECK(dropped == 0);
  }
  void fill(uint64_t at, uint64_t bytes, bp_stream* stream) {
    const uint8_t pattern = 1;
    OK(d->fill(self, 0, stream, at, &pattern, 1, bytes, 0));
  }
  size_t count() {
    std::lock_guard lock(mutex);
    return records.size();
  }

  static void take(void* arg, const bp_activity* const* given, uint64_t count) {
    auto& me = *static_cast<Profiled*>(arg);
    std::lock_guard lock(me.mutex);
    for (uint64_t i = 0; i < count; ++i) me.records.push_back(*given[i]);
  }

  const bp_profile group;
  std::mutex mutex;
  std::vector<bp_activity> records;
};

/// Many more than are handed over at once, by four threads on two streams: nothing is lost, doubled or mixed up.
void threads_queue_at_once(const Kind& kind) {
  constexpr uint64_t each = 1500;
  Profiled i(kind);
  bp_stream* streams[] = {i.stream(), i.stream()};
  const uint64_t at = i.alloc(1 << 16);
  i.start();
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t n = 1; n <= each; ++n) {
        i.group.tag(i.group.head.self, t * 10000 + n);
        i.fill(at + 4096 * t, t, streams[t % 2]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  CHECK(i.records.size() == 4 * each);
  std::set<uint64_t> seen;
  std::map<uint64_t, std::vector<bp_activity>> rows;
  for (const bp_activity& is : i.records) {
    CHECK(is.correlation / 10000 == is.bytes && is.begin_ns <= is.end_ns);
    CHECK(is.stream == reinterpret_cast<uint64_t>(streams[is.bytes % 2]));
    seen.insert(is.correlation);
    rows[is.stream].push_back(is);
  }
  CHECK(seen.size() == 4 * each && rows.size() == 2);
  for (auto& [stream, row] : rows) {
    std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
    for (size_t n = 1; n < row.size(); ++n) CHECK(row[n].begin_ns >= row[n - 1].end_ns || row[n].begin_ns == row[n - 1].begin_ns);
  }
}

/// Recordings begin and end while threads queue, tag and launch; then all of it still works.
void recordings_come_and_go(const Kind& kind) {
  Profiled i(kind);
  bp_stream* stream = i.stream();
  const uint64_t at = i.alloc(4096);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!over) {
        i.group.tag(i.group.head.self, 7);
        i.fill(at, 64, stream);
        OK(i.group.launch_begin(i.group.head.self, 0, stream));
        OK(i.group.launch_end(i.group.head.self, 0, stream, over ? nullptr : "launch"));
      }
    });
  }
  for (int round = 0; round < 40; ++round) {
    i.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    i.stop();
    const size_t before = i.count();
    for (const bp_activity& is : i.records) CHECK(is.correlation == 0 || is.correlation == 7);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(i.count() == before);
  }
  over = true;
  for (auto& thread : threads) thread.join();
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.start();
  i.fill(at, 8, stream);
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  CHECK(i.records.size() == 1 && i.records[0].bytes == 8 && i.records[0].correlation == 0);
}

void a_launch_outlives_its_recording(const Kind& kind) {
  Profiled i(kind);
  bp_stream* stream = i.stream();
  i.start();
  OK(i.group.launch_begin(i.group.head.self, 0, stream));
  i.stop();
  i.start();
  OK(i.group.launch_end(i.group.head.self, 0, stream, "late"));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  CHECK(i.records.empty());
}

/// A refused call has no record; closing while a recording is on leaves nothing behind (the sanitizers see to it).
void what_is_refused_has_no_record(const Kind& kind) {
  Profiled i(kind);
  const uint64_t at = i.alloc(64);
  const uint8_t pattern = 1;
  i.start();
  CHECK(i.d->fill(i.self, 0, nullptr, at, &pattern, 3, 1, 0) == BP_INVALID_ARGUMENT);
  OK(i.d->fill(i.self, 0, nullptr, at, &pattern, 1, 0, 0));
  i.fill(at, 64, nullptr);
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  CHECK(i.records.size() == 1 && i.records[0].stream == 0 && i.records[0].bytes == 64);
  i.start();
  i.fill(at, 32, nullptr);
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
}

/// The device fails: what did not run has a record without an end, and the recording ends as always.
void a_device_in_error() {
  Profiled i(kinds[0]);
  const bp_host_exec exec = *find_group<bp_host_exec>(*i.d);
  i.start();
  const auto fails = [](void*) -> int32_t { return BP_INTERNAL; };
  OK(exec.enqueue(exec.head.self, 0, nullptr, [](void*) -> int32_t { return BP_OK; }, nullptr, nullptr));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  OK(exec.enqueue(exec.head.self, 0, nullptr, fails, nullptr, nullptr));
  CHECK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT) == BP_FAULT);
  i.stop();
  CHECK(i.records.size() == 2);
  const auto ended = std::count_if(i.records.begin(), i.records.end(), [](const auto& is) { return is.end_ns != 0; });
  CHECK(ended == 1);
}

/// A capture has no records; a run has one of each piece of work, in the order of its stream, or one of all where the records are
/// emulate's.
void a_graph_records_its_runs(const Kind& kind) {
  Profiled i(kind);
  const bp_graph graph = *find_group<bp_graph>(*i.d);
  const bp_host_exec exec = *find_group<bp_host_exec>(*i.d);
  uint64_t at = 0;
  bp_stream* stream = nullptr;
  bp_recording* recording = nullptr;
  bp_graph_exec* made = nullptr;
  OK(i.d->alloc(i.self, 0, 256, 0, &at));
  OK(i.d->stream_create(i.self, 0, 0, 0, &stream));
  i.start();
  OK(graph.capture_begin(graph.head.self, 0, stream, BP_CAPTURE_GLOBAL, nullptr));
  i.fill(at, 64, stream);
  OK(exec.enqueue(exec.head.self, 0, stream, [](void*) -> int32_t { return BP_OK; }, nullptr, nullptr));
  OK(i.d->copy_async(i.self, 0, stream, at + 128, 0, at, 0, 32, 0));
  i.fill(at, 16, nullptr);  // which the capture does not hold
  OK(graph.capture_end(graph.head.self, 0, stream, &recording));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  CHECK(i.records.size() == 1 && i.records[0].bytes == 16);
  OK(graph.instantiate(graph.head.self, 0, recording, 0, &made));
  i.start();
  OK(i.group.tag(i.group.head.self, 7));
  for (int run = 0; run < 2; ++run) OK(graph.launch(graph.head.self, 0, stream, made));
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  i.stop();
  const bool by_events = std::string(kind.name).find("events") != std::string::npos;
  std::sort(i.records.begin(), i.records.end(), [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  std::vector<int32_t> found;
  for (const bp_activity& is : i.records) {
    found.push_back(is.kind);
    CHECK(is.correlation == 7 && is.stream == reinterpret_cast<uint64_t>(stream) && is.queued_ns <= is.begin_ns &&
          is.begin_ns <= is.end_ns);
  }
  const std::vector<int32_t> once = {BP_ACTIVITY_FILL, BP_ACTIVITY_KERNEL, BP_ACTIVITY_COPY};
  std::vector<int32_t> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  CHECK(found == (by_events ? std::vector<int32_t>{BP_ACTIVITY_KERNEL, BP_ACTIVITY_KERNEL} : twice));
  OK(graph.exec_destroy(graph.head.self, 0, made));
  OK(graph.recording_destroy(graph.head.self, 0, recording));
}

}  // namespace

int main() {
  for (const Kind& kind : kinds) {
    const std::string of = std::string(", ") + kind.name;
    report("threads queue at once" + of, [&] { threads_queue_at_once(kind); });
    report("recordings come and go" + of, [&] { recordings_come_and_go(kind); });
    report("a launch outlives its recording" + of, [&] { a_launch_outlives_its_recording(kind); });
    report("what is refused has no record" + of, [&] { what_is_refused_has_no_record(kind); });
  }
  for (const Kind& kind : {kinds[0], kinds[1], kinds[2], kinds[3]}) {
    report(std::string("a graph records its runs, ") + kind.name, [&] { a_graph_records_its_runs(kind); });
  }
  report("a device in error", a_device_in_error);
  return failures;
}
