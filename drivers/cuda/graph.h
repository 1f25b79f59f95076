// drivers/cuda/graph.h: bp.graph by CUDA graphs: CUDA records the work of its streams, the driver enforces the group's rules.
//
// CUDA captures in its relaxed mode, whatever the caller's mode is: in the others it forbids cuMemAlloc and its like, which the
// group allows, also to libraries that the process has, and lets only the thread that began a capture end it. Whose waits make a capture
// invalid, the driver says by itself; what it refuses CUDA never sees, so that the text of the first illegal call is its own.
#pragma once

#include <mutex>

#include <backplane/driver/graph.h>
#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/event_profile.hpp>
#include <backplane/driver/cxx/live.hpp>

#include "gpus.h"

namespace backplane::driver::cuda {

class Graphs {
 public:
  Graphs(const Library& cuda, const Gpus& gpus, EventProfile<>& profile);
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id);
  void capture_end(int32_t device, bp_stream* stream, bp_recording** out);
  void capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id);
  void instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out);
  /// A run has one record, as a kernel: CUDA does not time what is in it.
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec);
  void recording_destroy(int32_t device, bp_recording* recording);
  void exec_destroy(int32_t device, bp_graph_exec* exec);
  void dump(int32_t device, bp_recording* recording, const char* path);

  // What the other entries ask.

  /// Calls `body`, which queues work on the stream. In an invalid capture it is forgotten; what CUDA refuses may make a capture invalid.
  template <class Body>
  void queue(CUstream stream, Body&& body) {
    if (!captures_.any()) return body();
    switch (captures_.status(stream)) {
      case BP_CAPTURE_NONE:
        return body();
      case BP_CAPTURE_INVALID:
        return;
      default:
        try {
          body();
        } catch (const Error& error) {
          note_refused(stream, error);
          throw;
        }
    }
  }
  void record_event(const Use& gpu, CUstream stream, Event& event);
  void wait(const Use& gpu, CUstream stream, Event& event);
  void check_stream(const char* call, CUstream stream) { captures_.check_stream(call, stream); }
  void check_wait(const char* call, uint64_t timeout_ns = BP_NO_TIMEOUT) { captures_.check_wait(call, timeout_ns); }
  void check_device(const char* call, const Device& device) { captures_.check_device(call, &device); }
  void check_event(const char* call, const Event& event) { captures_.check_event(call, event.point); }
  /// The stream is about to be destroyed.
  void drop(CUstream stream) noexcept;
  /// For close: ends what captures on the device, so that its streams can end.
  void end_captures(const Device& device) noexcept;
  /// For close, when the device's work is complete: what callers have left. The caller has made its context current.
  void release(const Device& device) noexcept;

 private:
  struct Nothing {};  // CUDA keeps what is recorded
  // CUDA's graphs take one call at a time.
  struct Recording {
    const Device* const device;
    const CUgraph graph;
    std::mutex mutex{};
  };
  struct Exec {
    const Device* const device;
    CUgraphExec exec = nullptr;
    std::mutex mutex{};
  };

  void note_refused(CUstream stream, const Error& error) noexcept;
  void discard(CUstream origin) noexcept;
  /// A stream of the GPU's, as CUDA's.
  static CUstream stream_of(const Gpu& gpu, bp_stream* stream, const char* call);

  const Library& cuda_;
  const Gpus& gpus_;
  EventProfile<>& profile_;
  Captures<Nothing> captures_;
  SharedHandles<Recording> recordings_;
  SharedHandles<Exec> execs_;
};

}  // namespace backplane::driver::cuda
