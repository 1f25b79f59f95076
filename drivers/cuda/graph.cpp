// drivers/cuda/graph.cpp: captures, graphs and their runs as calls of CUDA's.
#include "graph.h"

#include <cstdio>
#include <string>
#include <utility>

namespace backplane::driver::cuda {

namespace {

constexpr char kNoRecording[] = "graph: no recording of this device";
constexpr char kNoExec[] = "graph: no graph of this device that is ready to run";

}  // namespace

Graphs::Graphs(const Library& cuda, const Gpus& gpus, EventProfile<>& profile) : cuda_(cuda), gpus_(gpus), profile_(profile) {}

CUstream Graphs::stream_of(const Gpu& gpu, bp_stream* stream, const char* call) {
  CUstream found = native(stream);
  if (!found || gpu.device.knows(found)) return found;
  throw Error(BP_INVALID_ARGUMENT, std::string("graph.") + call + ": no stream of device " + std::to_string(gpu.device.ordinal()));
}

// ---- captures

void Graphs::capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  const Use gpu(gpus_, device);
  CUstream on = stream_of(*gpu, stream, "capture_begin");
  const uint64_t number = captures_.begin(on, &gpu->device, on == nullptr, mode);
  try {
    gpu.check(cuda_.cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  } catch (const Error&) {
    captures_.end(on);
    throw;
  }
  if (id) *id = number;
}

void Graphs::capture_end(int32_t device, bp_stream* stream, bp_recording** out) {
  const Release gpu(gpus_, device);
  need(out, "graph.capture_end: out must not be NULL");
  CUstream on = stream_of(*gpu, stream, "capture_end");
  const auto ended = captures_.end(on);
  CUgraph graph = nullptr;
  const CUresult result = cuda_.cuStreamEndCapture(on, &graph);
  try {
    ended.check();
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
      throw Error(BP_INVALID_ARGUMENT, std::string("graph.capture_end: the capture is invalid: ") + captures_.kNotJoined);
    }
    gpu->device.check(result, "cuStreamEndCapture");
    gpu->device.check_sound();
    recordings_.add(std::shared_ptr<Recording>(new Recording{&gpu->device, graph}), out);
  } catch (...) {
    if (graph) gpu->device.note(cuda_.cuGraphDestroy(graph));
    throw;
  }
}

void Graphs::capture_status(int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
  gpus_.at(device);
  need(out, "graph.capture_status: out must not be NULL");
  *out = captures_.status(native(stream), id);
}

void Graphs::record_event(const Use& gpu, CUstream stream, Event& event) {
  captures_.record_event(stream, event.point);
  queue(stream, [&] { gpu.check(cuda_.cuEventRecord(event.native, stream), "cuEventRecord"); });
}

// For an event that was never recorded CUDA does not say what a capture makes of it.
void Graphs::wait(const Use& gpu, CUstream stream, Event& event) {
  bool unrecorded = false;
  captures_.wait(stream, stream ? &gpu->device : nullptr, event.point, &unrecorded);
  if (unrecorded) return;
  queue(stream, [&] { gpu.check(cuda_.cuStreamWaitEvent(stream, event.native, 0), "cuStreamWaitEvent"); });
}

// An error of an argument leaves CUDA's capture as it was; one of the capture's rules does not.
void Graphs::note_refused(CUstream stream, const Error& error) noexcept {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuda_.cuStreamIsCapturing(stream, &status);
  if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE) captures_.spoil(stream, error.what());
}

void Graphs::discard(CUstream origin) noexcept {
  CUgraph graph = nullptr;
  cuda_.cuStreamEndCapture(origin, &graph);  // its capture may have ended before
  if (graph) cuda_.cuGraphDestroy(graph);
}

// CUDA destroys no stream that captures, and only the stream that began can end a capture.
void Graphs::drop(CUstream stream) noexcept {
  const void* origin = captures_.drop(stream);
  if (origin) discard(static_cast<CUstream>(const_cast<void*>(origin)));
}

void Graphs::end_captures(const Device& device) noexcept {
  while (const void* origin = captures_.any_origin(&device)) drop(static_cast<CUstream>(const_cast<void*>(origin)));
}

// ---- graphs

void Graphs::instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
  const Use gpu(gpus_, device);
  need(out && flags == 0, "graph.instantiate: out must not be NULL, flags must be 0");
  const auto from = recordings_.find(recording, &gpu->device, kNoRecording);
  std::shared_ptr<Exec> made(new Exec{&gpu->device});
  {
    const std::lock_guard<std::mutex> lock(from->mutex);
    gpu.check(cuda_.cuGraphInstantiateWithFlags(&made->exec, from->graph, 0), "cuGraphInstantiate");
  }
  execs_.add(std::move(made), out);
}

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  const Use gpu(gpus_, device);
  CUstream on = stream_of(*gpu, stream, "launch");
  check_stream("graph.launch", on);
  const auto ready = execs_.find(exec, &gpu->device, kNoExec);
  profile_.around(
      EventProfile<>::work(BP_ACTIVITY_KERNEL, device), stream,
      [&] {
        const std::lock_guard<std::mutex> lock(ready->mutex);
        gpu.check(cuda_.cuGraphLaunch(ready->exec, on), "cuGraphLaunch");
      },
      "graph");
}

void Graphs::recording_destroy(int32_t device, bp_recording* recording) {
  const Release gpu(gpus_, device);
  const auto last = recordings_.take(recording, &gpu->device, kNoRecording);
  const std::lock_guard<std::mutex> lock(last->mutex);
  gpu->device.note(cuda_.cuGraphDestroy(last->graph));
}

// CUDA frees what is on its way when that is complete.
void Graphs::exec_destroy(int32_t device, bp_graph_exec* exec) {
  const Release gpu(gpus_, device);
  const auto last = execs_.take(exec, &gpu->device, kNoExec);
  const std::lock_guard<std::mutex> lock(last->mutex);
  gpu->device.note(cuda_.cuGraphExecDestroy(last->exec));
}

void Graphs::dump(int32_t device, bp_recording* recording, const char* path) {
  const Use gpu(gpus_, device);
  need(path, "graph.dump: path must not be NULL");
  const auto from = recordings_.find(recording, &gpu->device, kNoRecording);
  FILE* const file = std::fopen(path, "w");  // CUDA does not distinguish this error from others
  if (!file) throw Error(BP_INVALID_ARGUMENT, std::string("graph.dump: ") + path + " cannot be written");
  std::fclose(file);
  const std::lock_guard<std::mutex> lock(from->mutex);
  gpu.check(cuda_.cuGraphDebugDotPrint(from->graph, path, 0), "cuGraphDebugDotPrint");
}

void Graphs::release(const Device& device) noexcept {
  const auto is_of = [&](const auto& one) { return one.device == &device; };
  for (const auto& one : execs_.take_if(is_of)) cuda_.cuGraphExecDestroy(one->exec);
  for (const auto& one : recordings_.take_if(is_of)) cuda_.cuGraphDestroy(one->graph);
}

}  // namespace backplane::driver::cuda
