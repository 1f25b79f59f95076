// drivers/sim/graph.cpp: a recording runs as one job of a stream, its nodes one after the other.
#include "graph.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::sim {
namespace {

using Shared = std::shared_ptr<const Recording>;

[[noreturn]] void bad_graph_call(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, "graph." + text); }

void need_given(const void* pointer, const char* what) {
  if (!pointer) bad_graph_call(std::string(what) + " must not be NULL");
}

/// One on its way.
struct Run {
  Shared recording;
  std::vector<Recorder::Owned> records;  // of its nodes, while bp.profile records
};

void run_recording(Job& job, int32_t status) {
  const std::unique_ptr<Run> run(reinterpret_cast<Run*>(job.words[0]));
  if (status == BP_OK) run->recording->run(run->records);
}

}  // namespace

/// What a bp_recording is here.
struct Graphs::Kept {
  Shared recording;
};

/// What a bp_graph_exec is here: the recording, and the end of its latest run.
struct Graphs::Exec {
  explicit Exec(Shared of) : recording(std::move(of)) {}
  ~Exec() {
    if (latest) latest->unref();
  }

  const Shared recording;
  std::mutex mutex;  // over one launch: runs come in the order of the calls
  Completion* latest = nullptr;
};

Graphs::Graphs(const Host& host) : Devices(host) {}
Graphs::~Graphs() { release_graphs(); }

void Graphs::release_graphs() {
  for (Exec* exec : std::exchange(execs_, {})) delete exec;
  for (Kept* kept : std::exchange(recordings_, {})) delete kept;
}

Graphs::Kept& Graphs::find(int32_t device, bp_recording* recording, const char* call) {
  const EngineDevice& owner = at(device);
  std::lock_guard lock(mutex_);
  Kept* const kept = reinterpret_cast<Kept*>(recording);
  if (recordings_.count(kept) == 0 || &kept->recording->device() != &owner) {
    bad_graph_call(std::string(call) + ": no recording of device " + std::to_string(device));
  }
  return *kept;
}

Graphs::Exec& Graphs::find(int32_t device, bp_graph_exec* exec, const char* call) {
  const EngineDevice& owner = at(device);
  std::lock_guard lock(mutex_);
  Exec* const found = reinterpret_cast<Exec*>(exec);
  if (execs_.count(found) == 0 || &found->recording->device() != &owner) {
    bad_graph_call(std::string(call) + ": no graph of device " + std::to_string(device) + " that is ready to run");
  }
  return *found;
}

void Graphs::graph_capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  Stream& on = resolve(device, stream);
  on.device().check();
  EngineDevice& owner = on.device();
  const uint64_t number = captures().begin(&on, &owner, &on == &owner.default_stream(), mode);
  if (id) *id = number;
}

void Graphs::graph_capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  need_given(out, "capture_end: out");
  Stream& on = resolve(device, stream);
  auto ended = captures().end(&on);
  ended.check();
  on.device().check();
  auto kept = std::make_unique<Kept>(Kept{std::make_shared<const Recording>(on.device(), std::move(ended.nodes))});
  std::lock_guard lock(mutex_);
  recordings_.insert(kept.get());
  *out = reinterpret_cast<bp_recording*>(kept.release());
}

void Graphs::graph_capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
  need_given(out, "capture_status: out");
  uint64_t number = 0;
  *out = captures().status(&resolve(device, stream), &number);
  if (id) *id = number;
}

void Graphs::graph_instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
  need_given(out, "instantiate: out");
  need_no_flags("graph.instantiate", flags);
  Kept& kept = find(device, recording, "instantiate");
  kept.recording->device().check();
  auto exec = std::make_unique<Exec>(kept.recording);
  std::lock_guard lock(mutex_);
  execs_.insert(exec.get());
  *out = reinterpret_cast<bp_graph_exec*>(exec.release());
}

void Graphs::graph_launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  Stream& on = resolve(device, stream);
  on.device().check();
  captures().check_stream("graph.launch", &on);
  Exec& found = find(device, exec, "launch");
  auto run = std::make_unique<Run>(Run{found.recording, {}});
  if (recorder_.is_on()) {
    for (const auto& node : found.recording->nodes()) run->records.push_back(recorder_.queue(node.work.what, device, stream));
  }
  std::lock_guard lock(found.mutex);
  if (found.latest && !found.latest->done()) on.wait_for(*found.latest);
  on.submit({run_recording, {reinterpret_cast<uint64_t>(run.get())}});
  static_cast<void>(run.release());  // the job's, which may be over by now
  Completion* const end = Completion::create();
  on.record(*end);
  if (found.latest) found.latest->unref();
  found.latest = end;
}

void Graphs::graph_recording_destroy(int32_t device, bp_recording* recording) {
  const std::unique_ptr<Kept> last(&find(device, recording, "recording_destroy"));
  std::lock_guard lock(mutex_);
  recordings_.erase(last.get());
}

void Graphs::graph_exec_destroy(int32_t device, bp_graph_exec* exec) {
  const std::unique_ptr<Exec> last(&find(device, exec, "exec_destroy"));
  std::lock_guard lock(mutex_);
  execs_.erase(last.get());
}

void Graphs::graph_dump(int32_t device, bp_recording* recording, const char* path) {
  need_given(path, "dump: path");
  const std::string text = find(device, recording, "dump").recording->text();
  FILE* const file = std::fopen(path, "w");
  if (!file) bad_graph_call(std::string("dump: ") + path + " cannot be written");
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) bad_graph_call(std::string("dump: ") + path + " cannot be written");
}

}  // namespace backplane::driver::sim
