// tests/driver/fault_test.cpp: what the simulated device does badly on request, and what the fault shim makes of a sound driver;
// check-driver uses the shim to try that faults and losses are sticky.
//
// The exit status is the number of failures.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <backplane/driver/host_exec.h>

#include "instance.h"
#include "report.h"

namespace {

using Clock = std::chrono::steady_clock;

/// True if `body` kills the process that runs it.
template <class Body>
bool kills(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/// Which of the first 12 allocations fail, as digits: "001001001001".
std::string failures_of(Instance& i) {
  std::string out;
  for (int n = 0; n < 12; ++n) {
    uint64_t address = 0x77;
    const int32_t status = i.d->alloc(i.self, 0, 4096, 0, &address);
    CHECK(status == BP_OK || (status == BP_OUT_OF_MEMORY && address == 0x77));
    out += status == BP_OK ? '0' : '1';
    if (status == BP_OK) OK(i.d->free(i.self, 0, address));
  }
  return out;
}

void allocations_fail_when_asked() {
  const std::vector<std::pair<const char*, const char*>> cases = {{"alloc_fail=3", "001001001001"},
                                                                  {"alloc_fail=@3", "001000000000"},
                                                                  {"alloc_fail=@3-5", "001110000000"},
                                                                  {"alloc_fail=@3+", "001111111111"}};
  for (const auto& [options, expected] : cases) {
    Instance i(get(bp_sim_get, options));
    CHECK(failures_of(i) == expected);
  }
  for (const char* wrong : {"alloc_fail=x", "alloc_fail=0", "alloc_fail=@", "alloc_fail=@5-3", "alloc_fail=3+", "alloc_fail=@3-"}) {
    CHECK(!get(bp_sim_get, wrong));
    CHECK(refusal.find("@<n>-<m>") != std::string::npos);
  }
}

/// The order in which work of three streams runs.
std::string order_of(const char* options) {
  Instance i(get(bp_sim_get, options));
  bp_host_exec exec = *find_group<bp_host_exec>(*i.d);
  struct Shared {
    std::mutex mutex;
    std::string order;
  } shared;
  struct Task {
    Shared* shared;
    char letter;
  };
  std::vector<Task> tasks;
  for (char letter : {'a', 'b', 'c', 'd', 'e', 'f'}) tasks.push_back({&shared, letter});
  for (Task& task : tasks) {
    const auto fn = [](void* arg) -> int32_t {
      Task& here = *static_cast<Task*>(arg);
      std::lock_guard lock(here.shared->mutex);
      here.shared->order += here.letter;
      return BP_OK;
    };
    OK(exec.enqueue(exec.head.self, 0, i.stream(), fn, &task, nullptr));
  }
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  return shared.order;
}

void delays_break_the_usual_order() {
  int changed = 0;
  for (int seed = 0; seed < 4; ++seed) {
    changed += order_of(("delay=20000,seed=" + std::to_string(seed)).c_str()) != "abcdef";
  }
  CHECK(changed > 0);
}

void a_slow_link_takes_its_time() {
  Instance i(get(bp_sim_get, "link=10MiB"));
  std::vector<char> host(1 << 20);
  const uint64_t a = i.alloc(host.size()), b = i.alloc(host.size());
  const auto begin = Clock::now();
  i.put(a, host.data(), host.size());
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(100));
  OK(i.d->copy_async(i.self, 0, nullptr, b, 0, a, 0, host.size(), 0u));  // crosses no link
}

// Each in a process that opens the device itself: a forked child would have no pages of a discrete one.
void strict_memory_traps_what_is_not_live(const char* kind) {
  const std::string options = std::string("strict=on,stream=inline,memory=64MiB,kind=") + kind;
  constexpr uint64_t kBytes = 100'000;
  const auto touch = [&](uint64_t offset, bool freed) {
    Instance i(get(bp_sim_get, options.c_str()));
    const bp_host_exec exec = *find_group<bp_host_exec>(*i.d);
    const uint64_t address = i.alloc(kBytes);
    i.alloc(kBytes);  // a neighbour is beside nothing
    void* at = nullptr;
    OK(exec.map(exec.head.self, 0, address, &at));
    if (freed) OK(i.d->free(i.self, 0, address));
    static_cast<volatile char*>(at)[offset] = 1;
  };
  CHECK(!kills([&] { touch(kBytes - 1, false); }));
  CHECK(kills([&] { touch(kBytes + 5000, false); }));
  CHECK(kills([&] { touch(0, true); }));
  Instance i(get(bp_sim_get, options.c_str()));
  const std::vector<char> host(kBytes, 7);
  const uint64_t nothing = i.alloc(0), big = i.alloc(5 << 20);
  i.put(big, host.data(), host.size());
  CHECK(i.take(big, 1)[0] == 7);
  OK(i.d->free(i.self, 0, nothing));
  OK(i.d->free(i.self, 0, big));
}

// ---- the fault shim

const bp_driver* over_sim(const char* faults) { return get(bp_fault_get, faults, get(bp_sim_get, "memory=64MiB")); }
const bp_driver* over_minimal(const char* faults) {
  return get(bp_fault_get, faults, get(bp_emulate_get, "", get(bp_minimal_get, "devices=2")));
}
using Make = const bp_driver* (*)(const char*);

bool says(Instance& i, const char* text) { return i.error().find(text) != std::string::npos; }

int32_t copy_in(Instance& i, uint64_t to, int32_t device = 0) {
  static const std::vector<char> host(4096, 5);
  return i.d->copy(i.self, device, nullptr, to, device, reinterpret_cast<uint64_t>(host.data()), BP_HOST_DEVICE, 4096, 0u);
}

int32_t fill(Instance& i, uint64_t to, bp_stream* stream = nullptr) {
  const uint8_t pattern = 9;
  return i.d->fill(i.self, 0, stream, to, &pattern, 1, 4096, 0u);
}

void without_options_it_changes_nothing(Make make) {
  Instance i(make(""));
  const uint64_t a = i.alloc(4096);
  OK(copy_in(i, a));
  OK(fill(i, a));
  CHECK(i.take(a, 1)[0] == 9);
  int32_t reported = -1;
  i.call(nullptr, [&](int32_t status) { reported = status; });
  OK(i.d->synchronize(i.self, 0, BP_NO_TIMEOUT));
  CHECK(reported == BP_OK);
  OK(i.d->free(i.self, 0, a));
}

void calls_fail_when_asked(Make make) {
  Instance i(make("alloc=3,stream=@1,event=@1,host_alloc=@1"));
  CHECK(failures_of(i) == "001001001001" && says(i, "alloc: no room for 4096 bytes (injected by fault.alloc=3)"));
  bp_stream* stream = nullptr;
  CHECK(i.d->stream_create(i.self, 0, 0, 0, &stream) == BP_INTERNAL && !stream && says(i, "fault.stream=@1"));
  OK(i.d->stream_create(i.self, 0, 0, 0, &stream));
  bp_event* event = nullptr;
  CHECK(i.d->event_create(i.self, 0, 0, &event) == BP_INTERNAL && !event && says(i, "fault.event=@1"));
  void* host = nullptr;
  CHECK(i.d->host_alloc(i.self, 64, 0, &host) == BP_OUT_OF_MEMORY && !host && says(i, "fault.host_alloc=@1"));
}

void a_failing_copy_copies_nothing(Make make) {
  Instance i(make("copy=@2"));
  const uint64_t a = i.alloc(4096);
  OK(fill(i, a));
  OK(copy_in(i, i.alloc(4096)));
  CHECK(copy_in(i, a) == BP_INTERNAL && says(i, "the transfer of 4096 bytes was aborted (injected by fault.copy=@2)"));
  CHECK(i.take(a, 1)[0] == 9);
}

void a_failing_free_keeps_the_memory(Make make) {
  Instance i(make("free=@1"));
  const uint64_t a = i.alloc(4096);
  CHECK(i.d->free(i.self, 0, a) == BP_INTERNAL && says(i, "fault.free=@1"));
  OK(copy_in(i, a));
  OK(i.d->free(i.self, 0, a));
}

void work_that_hangs_never_completes(Make make) {
  Instance i(make("hang=@1"));
  const uint64_t a = i.alloc(4096);
  bp_stream *hung = i.stream(), *other = i.stream(), *behind = i.stream();
  bp_event* event = i.event();
  OK(fill(i, a, hung));
  CHECK(i.d->stream_query(i.self, 0, hung) == BP_PENDING);
  CHECK(i.d->stream_synchronize(i.self, 0, hung, 5'000'000) == BP_TIMEOUT && says(i, "not complete"));
  CHECK(i.d->synchronize(i.self, 0, 0) == BP_TIMEOUT);
  OK(i.d->stream_synchronize(i.self, 0, other, BP_NO_TIMEOUT));
  OK(i.d->event_record(i.self, 0, hung, event, 0u));
  CHECK(i.d->event_query(i.self, 0, event) == BP_PENDING && i.d->event_synchronize(i.self, 0, event, 1'000'000) == BP_TIMEOUT);
  OK(i.d->stream_wait(i.self, 0, behind, event));
  CHECK(i.d->stream_query(i.self, 0, behind) == BP_PENDING);
  int32_t reported = BP_OK;
  i.call(behind, [&](int32_t status) { reported = status; });
  OK(i.d->event_record(i.self, 0, other, event, 0u));  // recorded again, where work goes on
  OK(i.d->event_synchronize(i.self, 0, event, BP_NO_TIMEOUT));
  OK(i.d->synchronize(i.self, 1, BP_NO_TIMEOUT));
  CHECK(reported == BP_OK);
  OK(i.d->stream_destroy(i.self, 0, behind));
  CHECK(reported == BP_FAULT);
}

// The caller closes the inner driver.
const bp_driver* refused(const char* options, const bp_driver* below) {
  const bp_driver* driver = get(bp_fault_get, options, below);
  if (!driver) below->close(below->self);
  return driver;
}

void nothing_is_counted_before_the_file_exists() {
  const std::string file = "/tmp/backplane-fault-test-" + std::to_string(getpid());
  Instance i(over_sim(("alloc=@1,armed_by=" + file).c_str()));
  const uint64_t a = i.alloc(64);
  std::fclose(std::fopen(file.c_str(), "w"));
  uint64_t address = 0;
  const int32_t status = i.d->alloc(i.self, 0, 64, 0, &address);
  unlink(file.c_str());
  CHECK(status == BP_OUT_OF_MEMORY);
  OK(i.d->free(i.self, 0, a));
}

void wrong_options_are_named() {
  for (const auto& [options, text] : std::vector<std::pair<const char*, const char*>>{{"devise=1", "unknown option 'devise'"},
                                                                                      {"alloc=x", "fault.alloc=x"},
                                                                                      {"device=-2", "fault.device=-2"},
                                                                                      {"hang=@3-1", "<n>|@<n>"}}) {
    CHECK(!refused(options, get(bp_sim_get, "")));
    CHECK(refusal.find(text) != std::string::npos);
  }
  CHECK(!get(bp_fault_get, ""));
  CHECK(refusal.find("needs an inner driver") != std::string::npos);
  CHECK(!refused("", get(bp_minimal_get, "")));
  CHECK(refusal.find("put the shim emulate between them") != std::string::npos);
}

}  // namespace

int main() {
  report("sim: allocations fail when asked", allocations_fail_when_asked);
  report("sim: delays break the usual order", delays_break_the_usual_order);
  report("sim: a slow link takes its time", a_slow_link_takes_its_time);
  report("sim: strict unified memory", [] { strict_memory_traps_what_is_not_live("unified"); });
  report("sim: strict discrete memory", [] { strict_memory_traps_what_is_not_live("discrete"); });
  const std::vector<std::pair<const char*, void (*)(Make)>> cases = {
      {"without options it changes nothing", without_options_it_changes_nothing},
      {"calls fail when asked", calls_fail_when_asked},
      {"a failing copy copies nothing", a_failing_copy_copies_nothing},
      {"a failing free keeps the memory", a_failing_free_keeps_the_memory},
      {"work that hangs never completes", work_that_hangs_never_completes},
  };
  for (const auto& [name, make] : std::vector<std::pair<const char*, Make>>{{"sim", over_sim}, {"minimal", over_minimal}}) {
    for (const auto& [title, body] : cases) {
      report(std::string("fault over ") + name + ": " + title, [&, run = body, over = make] { run(over); });
    }
  }
  report("fault: nothing is counted before the file exists", nothing_is_counted_before_the_file_exists);
  report("fault: wrong options are named", wrong_options_are_named);
  return failures;
}
