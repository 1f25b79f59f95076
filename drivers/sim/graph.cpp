// drivers/sim/graph.cpp: a recording runs as one job of a stream, its nodes one after the other.
#include "graph.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace backplane::driver::sim {
namespace {

constexpr char kNoRecording[] = "graph: no recording of this device";
constexpr char kNoExec[] = "graph: no graph of this device that is ready to run";

}  // namespace

/// What a bp_recording is here.
struct Graphs::Kept {
  const int32_t device;
  const std::shared_ptr<const Recording> recording;
};

/// What a bp_graph_exec is here: the recording, and the end of its latest run.
struct Graphs::Exec {
  Exec(int32_t of, std::shared_ptr<const Recording> runs) : device(of), recording(std::move(runs)) {}
  ~Exec() {
    if (latest) latest->unref();
  }

  const int32_t device;
  const std::shared_ptr<const Recording> recording;
  std::mutex mutex;  // over one launch: runs come in the order of the calls
  Completion* latest = nullptr;
};

Graphs::Graphs(Devices& devices) : devices_(devices) {}
Graphs::~Graphs() = default;

void Graphs::release() {
  execs_.clear();
  recordings_.clear();
}

void Graphs::capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  Stream& on = devices_.usable(device, stream);
  EngineDevice& owner = on.device();
  const uint64_t number = devices_.captures().begin(&on, &owner, &on == &owner.default_stream(), mode);
  if (id) *id = number;
}

void Graphs::capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  need(out, "graph.capture_end: out");
  Stream& on = devices_.resolve(device, stream);
  auto ended = devices_.captures().end(&on);
  ended.check();
  on.device().check();
  recordings_.add(std::make_shared<Kept>(Kept{device, std::make_shared<const Recording>(on.device(), std::move(ended.nodes))}), out);
}

void Graphs::capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
  need(out, "graph.capture_status: out");
  *out = devices_.captures().status(&devices_.resolve(device, stream), id);
}

void Graphs::instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
  need(out, "graph.instantiate: out");
  need_no_flags("graph.instantiate", flags);
  EngineDevice& owner = devices_.at(device);
  const auto kept = recordings_.find(recording, device, kNoRecording);
  owner.check();
  execs_.add(std::make_shared<Exec>(device, kept->recording), out);
}

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  Stream& on = devices_.usable(device, stream);
  devices_.captures().check_stream("graph.launch", &on);
  const auto found = execs_.find(exec, device, kNoExec);
  std::vector<Recorder::Owned> records;
  if (devices_.recorder.is_on()) {
    for (const auto& node : found->recording->nodes()) records.push_back(devices_.recorder.queue(node.work.what, device, stream));
  }
  std::lock_guard lock(found->mutex);
  if (found->latest && !found->latest->done()) on.wait_for(*found->latest);
  on.submit_owned([recording = found->recording, records = std::move(records)](int32_t status) mutable {
    if (status == BP_OK) recording->run(records);
  });
  Completion* const end = Completion::create();
  on.record(*end);
  if (found->latest) found->latest->unref();
  found->latest = end;
}

void Graphs::recording_destroy(int32_t device, bp_recording* recording) {
  devices_.at(device);
  recordings_.take(recording, device, kNoRecording);
}

void Graphs::exec_destroy(int32_t device, bp_graph_exec* exec) {
  devices_.at(device);
  execs_.take(exec, device, kNoExec);
}

void Graphs::dump(int32_t device, bp_recording* recording, const char* path) {
  devices_.at(device);
  write_recording(path, recordings_.find(recording, device, kNoRecording)->recording->text());
}

}  // namespace backplane::driver::sim
