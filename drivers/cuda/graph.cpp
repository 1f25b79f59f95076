// drivers/cuda/graph.cpp: captures, graphs and their runs as calls of CUDA's.
#include "graph.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace backplane::driver::cuda {

Graphs::Graphs(const Library& cuda, const Gpus& gpus) : cuda_(cuda), gpus_(gpus) {}

CUstream Graphs::stream_of(const Gpu& gpu, bp_stream* stream, const char* call) {
  CUstream found = native(stream);
  if (!found || gpu.device.knows(found)) return found;
  throw Error(BP_INVALID_ARGUMENT, std::string("graph.") + call + ": no stream of device " + std::to_string(gpu.device.ordinal()));
}

template <class Handle, class Given>
std::shared_ptr<Handle> Graphs::find(const Device& device, const std::vector<std::shared_ptr<Handle>>& in, Given* handle,
                                     const char* what) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto same = [&](const auto& one) { return static_cast<void*>(one.get()) == static_cast<void*>(handle) && one->device == &device; };
  const auto found = std::find_if(in.begin(), in.end(), same);
  if (found == in.end()) throw Error(BP_INVALID_ARGUMENT, format("graph.%s of device %d", what, device.ordinal()));
  return *found;
}

template <class Handle>
void Graphs::forget(std::vector<std::shared_ptr<Handle>>& in, const std::shared_ptr<Handle>& one) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(in.begin(), in.end(), one);
  if (found == in.end()) throw Error(BP_INVALID_ARGUMENT, "graph: another thread has destroyed the handle");
  in.erase(found);
}

// ---- captures

void Graphs::capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
  const Use gpu(cuda_, gpus_, device);
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
  const Release gpu(cuda_, gpus_, device);
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
    auto kept = std::make_shared<Recording>();
    kept->device = &gpu->device;
    kept->graph = graph;
    const std::lock_guard<std::mutex> lock(mutex_);
    recordings_.push_back(kept);
    *out = reinterpret_cast<bp_recording*>(kept.get());
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
  const Use gpu(cuda_, gpus_, device);
  need(out && flags == 0, "graph.instantiate: out must not be NULL, flags must be 0");
  const auto from = find(gpu->device, recordings_, recording, "instantiate: no recording");
  auto made = std::make_shared<Exec>();
  made->device = &gpu->device;
  {
    const std::lock_guard<std::mutex> lock(from->mutex);
    gpu.check(cuda_.cuGraphInstantiateWithFlags(&made->exec, from->graph, 0), "cuGraphInstantiate");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  execs_.push_back(made);
  *out = reinterpret_cast<bp_graph_exec*>(made.get());
}

void Graphs::launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
  const Use gpu(cuda_, gpus_, device);
  CUstream on = stream_of(*gpu, stream, "launch");
  check_stream("graph.launch", on);
  const auto ready = find(gpu->device, execs_, exec, "launch: nothing that is ready to run");
  const std::lock_guard<std::mutex> lock(ready->mutex);
  gpu.check(cuda_.cuGraphLaunch(ready->exec, on), "cuGraphLaunch");
}

void Graphs::recording_destroy(int32_t device, bp_recording* recording) {
  const Release gpu(cuda_, gpus_, device);
  const auto last = find(gpu->device, recordings_, recording, "recording_destroy: no recording");
  forget(recordings_, last);
  const std::lock_guard<std::mutex> lock(last->mutex);
  gpu->device.note(cuda_.cuGraphDestroy(last->graph));
}

// CUDA frees what is on its way when that is complete.
void Graphs::exec_destroy(int32_t device, bp_graph_exec* exec) {
  const Release gpu(cuda_, gpus_, device);
  const auto last = find(gpu->device, execs_, exec, "exec_destroy: nothing that is ready to run");
  forget(execs_, last);
  const std::lock_guard<std::mutex> lock(last->mutex);
  gpu->device.note(cuda_.cuGraphExecDestroy(last->exec));
}

void Graphs::dump(int32_t device, bp_recording* recording, const char* path) {
  const Use gpu(cuda_, gpus_, device);
  need(path, "graph.dump: path must not be NULL");
  const auto from = find(gpu->device, recordings_, recording, "dump: no recording");
  FILE* const file = std::fopen(path, "w");  // CUDA does not tell this error from others
  if (!file) throw Error(BP_INVALID_ARGUMENT, std::string("graph.dump: ") + path + " cannot be written");
  std::fclose(file);
  const std::lock_guard<std::mutex> lock(from->mutex);
  gpu.check(cuda_.cuGraphDebugDotPrint(from->graph, path, 0), "cuGraphDebugDotPrint");
}

void Graphs::release(const Device& device) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto take = [&](auto& all, auto&& destroy) {
    for (auto& one : all) {
      if (one->device == &device) destroy(*one);
    }
    all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& one) { return one->device == &device; }), all.end());
  };
  take(execs_, [&](Exec& one) { cuda_.cuGraphExecDestroy(one.exec); });
  take(recordings_, [&](Recording& one) { cuda_.cuGraphDestroy(one.graph); });
}

}  // namespace backplane::driver::cuda
