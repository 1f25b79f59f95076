// tests/driver/graph_test.cpp: bp.graph of the simulated device: random programs that are recorded and run, captures in several threads,
// work that fails within a run, and what the shims make of it.
// The exit status is the number of failures.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <backplane/driver/graph.h>
#include <backplane/driver/host_exec.h>

#include "instance.h"
#include "report.h"

namespace {

const bp_driver* sim(const std::string& options) { return get(bp_sim_get, ("memory=64MiB," + options).c_str()); }

/// An instance with the two groups.
struct Graphs : Instance {
  explicit Graphs(const bp_driver* driver) : Instance(driver), graph(*find_group<bp_graph>(*d)), exec(*find_group<bp_host_exec>(*d)) {}

  template <class... Params, class... Args>
  int32_t operator()(int32_t (*entry)(void*, Params...), Args... args) const {
    return entry(graph.head.self, static_cast<Params>(args)...);
  }
  void begin(bp_stream* stream, int32_t mode = BP_CAPTURE_THREAD) { OK((*this)(graph.capture_begin, 0, stream, mode, nullptr)); }
  bp_recording* end(bp_stream* stream) {
    bp_recording* recording = nullptr;
    OK((*this)(graph.capture_end, 0, stream, &recording));
    return recording;
  }
  bp_graph_exec* ready(bp_recording* recording) {
    bp_graph_exec* made = nullptr;
    OK((*this)(graph.instantiate, 0, recording, 0u, &made));
    return made;
  }
  int32_t launch(bp_stream* stream, bp_graph_exec* made) { return (*this)(graph.launch, 0, stream, made); }
  int32_t wait(bp_stream* stream) { return d->stream_synchronize(self, 0, stream, BP_NO_TIMEOUT); }

  const bp_graph graph;
  const bp_host_exec exec;
};

/// A host function that counts its runs and its end.
struct Counted {
  std::atomic<int> ran{0}, ended{0};
  int32_t result = BP_OK;

  int32_t queue(Graphs& i, bp_stream* stream) {
    return i.exec.enqueue(
        i.exec.head.self, 0, stream,
        [](void* arg) {
          auto* self = static_cast<Counted*>(arg);
          ++self->ran;
          return self->result;
        },
        this, [](void* arg) { ++static_cast<Counted*>(arg)->ended; });
  }
};

// ---- random programs

constexpr uint64_t kWords = 96;
constexpr size_t kPlaces = 4;

/// The same steps for the device and, at once, for the model.
class Program {
 public:
  Program(Graphs& i, uint32_t seed) : i_(i), random_(seed), model_(kPlaces * kWords) {
    for (int s = 0; s < 3; ++s) streams_.push_back(i.stream());
    place_ = i.alloc(model_.size() * 8);
    i.put(place_, model_.data(), model_.size() * 8);
  }

  /// Captures a program, runs it a few times, and compares.
  void check() {
    i_.begin(streams_[0]);
    std::vector<Step> steps;
    size_t on = 0;
    for (uint32_t n = 0; n < 5 + draw(40); ++n) {
      const size_t next = draw(3);
      if (next != on) follow(streams_[next], streams_[on]);
      on = next;
      steps.push_back({draw(3), draw(kPlaces), draw(kPlaces), random_()});
      queue(steps.back(), streams_[on]);
    }
    for (size_t s = 1; s < streams_.size(); ++s) {
      int32_t status = 0;
      OK(i_(i_.graph.capture_status, 0, streams_[s], &status, nullptr));
      if (status == BP_CAPTURE_ACTIVE) follow(streams_[0], streams_[s]);
    }
    bp_recording* recording = i_.end(streams_[0]);
    compare();  // nothing has run
    bp_graph_exec* ready = i_.ready(recording);
    for (uint32_t run = 0; run < 1 + draw(4); ++run) {
      OK(i_.launch(streams_[draw(3)], ready));
      for (const Step& step : steps) model(step);
    }
    OK(i_(i_.graph.recording_destroy, 0, recording));
    OK(i_(i_.graph.exec_destroy, 0, ready));
    for (bp_stream* stream : streams_) OK(i_.wait(stream));
    compare();
  }

 private:
  struct Step {
    uint64_t kind, to, from, value;
  };
  struct Advance {
    Graphs* i;
    uint64_t address, value;
  };

  uint64_t draw(uint64_t n) { return random_() % n; }

  void follow(bp_stream* later, bp_stream* earlier) {
    bp_event* event = i_.event();
    OK(i_.d->event_record(i_.self, 0, earlier, event, 0u));
    OK(i_.d->stream_wait(i_.self, 0, later, event));
    OK(i_.d->event_destroy(i_.self, 0, event));
  }

  void queue(const Step& step, bp_stream* stream) {
    const uint64_t to = place_ + step.to * kWords * 8, from = place_ + step.from * kWords * 8;
    if (step.kind == 0) {
      OK(i_.d->fill(i_.self, 0, stream, to, &step.value, 8u, kWords, 0u));
    } else if (step.kind == 1) {
      if (to != from) OK(i_.d->copy_async(i_.self, 0, stream, to, 0, from, 0, kWords * 8, 0u));
    } else {
      const auto advance = [](void* arg) -> int32_t {
        const auto* work = static_cast<Advance*>(arg);
        void* at = nullptr;
        if (work->i->exec.map(work->i->exec.head.self, 0, work->address, &at) != BP_OK) return BP_INTERNAL;
        for (uint64_t w = 0; w < kWords; ++w) static_cast<uint64_t*>(at)[w] = static_cast<uint64_t*>(at)[w] * 3 + work->value + w;
        return BP_OK;
      };
      OK(i_.exec.enqueue(i_.exec.head.self, 0, stream, advance, new Advance{&i_, to, step.value},
                         [](void* arg) { delete static_cast<Advance*>(arg); }));
    }
  }
  void model(const Step& step) {
    uint64_t *to = &model_[step.to * kWords], *from = &model_[step.from * kWords];
    for (uint64_t w = 0; w < kWords; ++w) to[w] = step.kind == 0 ? step.value : step.kind == 1 ? from[w] : to[w] * 3 + step.value + w;
  }
  void compare() {
    const auto seen = i_.take(place_, model_.size() * 8);
    CHECK(std::memcmp(seen.data(), model_.data(), seen.size()) == 0);
  }

  Graphs& i_;
  std::mt19937_64 random_;
  std::vector<bp_stream*> streams_;
  std::vector<uint64_t> model_;
  uint64_t place_ = 0;
};

void a_program(uint32_t seed) {
  static const char* const kinds[] = {"", "stream=inline", "kind=discrete,strict=on", "delay=50"};
  Graphs i(sim(kinds[seed % 4]));
  Program(i, seed).check();
}

// Other threads queue work, wait for it, allocate and free meanwhile.
void threads_that_capture() {
  Graphs i(sim("streams=64"));
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  const auto run = [&](const std::function<void()>& body) {
    threads.emplace_back([&failed, body] {
      try {
        body();
      } catch (const std::exception& error) {
        std::printf("     %s\n", error.what());
        ++failed;
      }
    });
  };
  for (uint32_t t = 0; t < 4; ++t) {
    run([&i, t] {
      for (uint32_t round = 0; round < 3; ++round) Program(i, 100 * t + round).check();
    });
  }
  run([&i] {
    bp_stream* own = i.stream();
    for (int n = 0; n < 50; ++n) {
      const uint64_t address = i.alloc(4096);
      const uint64_t value = 7;
      OK(i.d->fill(i.self, 0, own, address, &value, 8u, 512, 0u));
      OK(i.wait(own));
      OK(i.d->free(i.self, 0, address));
    }
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
}

// ---- ends

void work_that_fails_ends_the_run() {
  Graphs i(sim(""));
  bp_stream* stream = i.stream();
  Counted before, fails, after;
  fails.result = BP_INTERNAL;
  i.begin(stream);
  for (Counted* one : {&before, &fails, &after}) OK(one->queue(i, stream));
  bp_graph_exec* ready = i.ready(i.end(stream));
  OK(i.launch(stream, ready));
  CHECK(i.wait(stream) == BP_FAULT);
  CHECK(before.ran == 1 && fails.ran == 1 && after.ran == 0);
  CHECK(i.launch(stream, ready) == BP_FAULT);
  CHECK(i(i.graph.capture_begin, 0, stream, BP_CAPTURE_THREAD, nullptr) == BP_FAULT);
  OK(i(i.graph.exec_destroy, 0, ready));
  i.close();
  CHECK(before.ended == 1 && fails.ended == 1 && after.ended == 1);
}

void a_fault_ends_a_capture() {
  Graphs i(sim(""));
  bp_stream *stream = i.stream(), *other = i.stream();
  Counted kept, fails;
  fails.result = BP_INTERNAL;
  i.begin(stream);
  OK(kept.queue(i, stream));
  OK(fails.queue(i, other));
  while (i.d->stream_query(i.self, 0, other) == BP_PENDING) std::this_thread::yield();
  bp_recording* recording = nullptr;
  CHECK(i(i.graph.capture_end, 0, stream, &recording) == BP_FAULT && !recording);
  int32_t status = 77;
  OK(i(i.graph.capture_status, 0, stream, &status, nullptr));
  CHECK(status == BP_CAPTURE_NONE && kept.ran == 0 && kept.ended == 1);
}

void close_releases_what_is_left() {
  Counted kept, forgotten;
  {
    Graphs i(sim(""));
    bp_stream *stream = i.stream(), *open = i.stream();
    i.begin(stream);
    OK(kept.queue(i, stream));
    bp_graph_exec* ready = i.ready(i.end(stream));
    for (int n = 0; n < 3; ++n) OK(i.launch(stream, ready));
    i.begin(open);
    OK(forgotten.queue(i, open));
  }
  CHECK(kept.ran == 3 && kept.ended == 1);
  CHECK(forgotten.ran == 0 && forgotten.ended == 1);
}

void an_invalid_capture_runs_nothing() {
  Graphs i(sim(""));
  bp_stream* stream = i.stream();
  Counted first, second;
  i.begin(stream, BP_CAPTURE_RELAXED);
  OK(first.queue(i, stream));
  CHECK(i.wait(stream) == BP_INVALID_ARGUMENT);
  OK(second.queue(i, stream));
  CHECK(second.ended == 1);
  bp_recording* recording = nullptr;
  CHECK(i(i.graph.capture_end, 0, stream, &recording) == BP_INVALID_ARGUMENT && !recording);
  CHECK(i.error().find("stream_synchronize") != std::string::npos);
  CHECK(first.ran == 0 && first.ended == 1 && second.ran == 0);
  OK(i.wait(stream));
}

void stale_handles_are_refused() {
  Graphs i(sim(""));
  bp_stream* stream = i.stream();
  i.begin(stream);
  bp_recording* recording = i.end(stream);
  bp_graph_exec* ready = i.ready(recording);
  OK(i(i.graph.exec_destroy, 0, ready));
  CHECK(i.launch(stream, ready) == BP_INVALID_ARGUMENT);
  CHECK(i(i.graph.exec_destroy, 0, ready) == BP_INVALID_ARGUMENT);
  CHECK(i(i.graph.recording_destroy, 1, recording) == BP_INVALID_ARGUMENT);
  OK(i(i.graph.recording_destroy, 0, recording));
  CHECK(i(i.graph.recording_destroy, 0, recording) == BP_INVALID_ARGUMENT);
}

// ---- shims

void faults_within_graphs() {
  Graphs i(get(bp_fault_get, "capture=@1,instantiate=@1,kernel=@2", sim("")));
  bp_stream* stream = i.stream();
  CHECK(i(i.graph.capture_begin, 0, stream, BP_CAPTURE_THREAD, nullptr) == BP_INTERNAL);
  CHECK(i.error().find("injected by fault.capture=@1") != std::string::npos);
  Counted work;
  i.begin(stream);
  for (int n = 0; n < 5; ++n) OK(work.queue(i, stream));  // recorded work does not count
  bp_recording* recording = i.end(stream);
  bp_graph_exec* ready = nullptr;
  CHECK(i(i.graph.instantiate, 0, recording, 0u, &ready) == BP_OUT_OF_MEMORY && !ready);
  CHECK(i.error().find("injected by fault.instantiate=@1") != std::string::npos);
  ready = i.ready(recording);
  OK(i.launch(stream, ready));
  OK(i.wait(stream));
  CHECK(work.ran == 5);
  OK(i.launch(stream, ready));  // the second piece of work
  CHECK(i.wait(stream) == BP_FAULT);
  CHECK(i.error().find("a graph failed: bad address (injected by fault.kernel=@2)") != std::string::npos);
  CHECK(work.ran == 5);
  i.close();
  CHECK(work.ended == 5);
}

void a_launch_hangs_when_asked() {
  Graphs i(get(bp_fault_get, "hang=@1", sim("")));
  bp_stream* stream = i.stream();
  Counted work;
  i.begin(stream);
  OK(work.queue(i, stream));
  bp_graph_exec* ready = i.ready(i.end(stream));
  OK(i.launch(stream, ready));
  CHECK(i.d->stream_synchronize(i.self, 0, stream, 1'000'000) == BP_TIMEOUT && work.ran == 0);
}

void trace_writes_the_calls() {
  char path[] = "/tmp/graph_test_XXXXXX";
  const int made = mkstemp(path);
  CHECK(made >= 0);
  {
    Graphs i(get(bp_trace_get, (std::string("filter=bp.graph.*,file=") + path).c_str(), sim("")));
    bp_stream* stream = i.stream();
    i.begin(stream);
    OK(i.launch(stream, i.ready(i.end(stream))));
  }
  std::string text(100'000, '\0');
  FILE* file = std::fopen(path, "r");
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  std::remove(path);
  CHECK(text.find("bp.graph.capture_begin device=0 stream=0x") != std::string::npos && text.find(" mode=2 ") != std::string::npos);
  CHECK(text.find("bp.graph.capture_end device=0 stream=0x") != std::string::npos);
  CHECK(text.find("bp.graph.launch device=0 stream=0x") != std::string::npos && text.find(" exec=0x") != std::string::npos);
}

// A driver without one of its entries, which emulate then supplies by a call that waits.
void emulate_passes_it_where_it_can() {
  const auto offered = [](const bp_driver* driver) {
    Instance i(get(bp_emulate_get, "", driver));
    return find_group<bp_graph>(*i.d).has_value();
  };
  CHECK(offered(sim("")));
  CHECK(!offered(get(bp_minimal_get, "")));
  const auto changed = [](const std::function<void(bp_driver&)>& change) {
    const bp_driver* driver = sim("");
    change(const_cast<bp_driver&>(*driver));
    return driver;
  };
  CHECK(!offered(changed([](bp_driver& table) { table.fill = nullptr; })));
  CHECK(!offered(changed([](bp_driver& table) { table.host_alloc = nullptr, table.host_free = nullptr; })));
  CHECK(!offered(changed([](bp_driver& table) {
    table.event_create = nullptr;
    table.event_destroy = nullptr;
    table.event_record = nullptr;
    table.event_query = nullptr;
    table.event_synchronize = nullptr;
    table.stream_wait = nullptr;
    table.event_elapsed = nullptr;
  })));
  CHECK(!offered(changed([](bp_driver& table) { table.flags |= BP_DRIVER_SERIALIZE; })));
}

}  // namespace

int main(int argc, char** argv) {
  programs = 24;
  choose(argc, argv);
  report_seeds("program", a_program);
  CASE(threads_that_capture);
  CASE(work_that_fails_ends_the_run);
  CASE(a_fault_ends_a_capture);
  CASE(close_releases_what_is_left);
  CASE(an_invalid_capture_runs_nothing);
  CASE(stale_handles_are_refused);
  CASE(faults_within_graphs);
  CASE(a_launch_hangs_when_asked);
  CASE(trace_writes_the_calls);
  CASE(emulate_passes_it_where_it_can);
  return failures;
}
