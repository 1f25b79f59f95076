// drivers/engine/kept_graphs.h: the entries of bp.graph but launch, of a driver that keeps a capture's work (surveyed.h).
#pragma once

#include <memory>
#include <utility>

#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/live.hpp>

namespace backplane::driver {

template <class Recorded>
struct KeptRecording {
  const int32_t device;
  typename Captures<Recorded>::Nodes nodes;
};

/// Exec{device, recording} is what a run takes; it has the device's number, `device`.
template <class Instance, class Recorded, class Exec>
class KeptGraphs {
 public:
  explicit KeptGraphs(Instance& instance) : instance_(instance) {}

  void capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    auto& on = instance_.at(device);
    on.stream(stream);
    on.check();
    const uint64_t number = instance_.captures.begin(stream, &on, stream == nullptr, mode);
    if (id) *id = number;
  }
  void capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
    need(out, "graph.capture_end: out");
    auto& on = instance_.at(device);
    on.stream(stream);
    auto ended = instance_.captures.end(stream);
    ended.check();
    on.check();
    recordings_.add(std::make_shared<Recording>(Recording{device, std::move(ended.nodes)}), out);
  }
  void capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
    need(out, "graph.capture_status: out");
    instance_.at(device);
    *out = instance_.captures.status(stream, id);
  }
  void instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
    need(out, "graph.instantiate: out");
    need_no_flags("graph.instantiate", flags);
    auto& on = instance_.at(device);
    const auto from = recordings_.find(recording, device, kNoRecording);
    on.check();
    execs_.add(std::shared_ptr<Exec>(new Exec(on, from)), out);
  }
  void recording_destroy(int32_t device, bp_recording* recording) {
    instance_.at(device);
    recordings_.take(recording, device, kNoRecording);
  }
  void exec_destroy(int32_t device, bp_graph_exec* exec) {
    instance_.at(device);
    execs_.take(exec, device, kNoExec);
  }
  void dump(int32_t device, bp_recording* recording, const char* path) {
    const auto found = recordings_.find(recording, device, kNoRecording);
    write_recording(path, recording_text(found->nodes, [](const Recorded& one) { return one.label; }));
  }

 protected:
  using Recording = KeptRecording<Recorded>;

  /// For launch, with its checks.
  std::shared_ptr<Exec> ready(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    instance_.at(device).check();
    instance_.captures.check_stream("graph.launch", stream);
    return execs_.find(exec, device, kNoExec);
  }

  Instance& instance_;

 private:
  static constexpr char kNoRecording[] = "graph: no recording of this device";
  static constexpr char kNoExec[] = "graph: no graph of this device that is ready to run";

  SharedHandles<Recording> recordings_;
  SharedHandles<Exec> execs_;
};

}  // namespace backplane::driver
