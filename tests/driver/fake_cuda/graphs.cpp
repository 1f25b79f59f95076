// tests/driver/fake_cuda/graphs.cpp: captures by CUDA's rules, and graphs whose nodes run in an order that only their edges hold.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fake.h"

namespace backplane::driver::cuda {

thread_local bool running_graph = false;

struct CaptureObject {
  uint64_t id;
  int mode;
  std::thread::id thread;
  StreamObject* origin;
  std::map<StreamObject*, std::set<size_t>> streams;  // with the nodes that the next one follows
  std::vector<GraphNode> nodes;
  bool valid = true;
};

struct GraphObject {
  std::vector<GraphNode> nodes;
};

struct GraphExecObject {
  ContextObject* context;
  std::shared_ptr<const std::vector<GraphNode>> nodes;
  std::shared_ptr<std::atomic<uint64_t>> done;  // runs
  uint64_t asked = 0;
};

namespace {

// With the mutex of the state held.

std::set<CaptureObject*>& captures() {
  static auto* const all = new std::set<CaptureObject*>;
  return *all;
}
std::set<GraphObject*>& graphs() {
  static auto* const all = new std::set<GraphObject*>;
  return *all;
}
std::set<GraphExecObject*>& execs() {
  static auto* const all = new std::set<GraphExecObject*>;
  return *all;
}

CaptureObject* of_id(uint64_t id) {
  const auto found = std::find_if(captures().begin(), captures().end(), [&](const auto* one) { return one->id == id; });
  return found == captures().end() ? nullptr : *found;
}

void end(CaptureObject* capture) {
  for (auto& [stream, latest] : capture->streams) stream->capture = nullptr;
  captures().erase(capture);
  delete capture;
}

bool joined(const CaptureObject& capture) {
  std::set<size_t> reached;
  std::vector<size_t> open(capture.streams.at(capture.origin).begin(), capture.streams.at(capture.origin).end());
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    if (!reached.insert(at).second) continue;
    open.insert(open.end(), capture.nodes[at].after.begin(), capture.nodes[at].after.end());
  }
  return reached.size() == capture.nodes.size();
}

/// The latest node whose edges allow it, each time: nothing but edges keeps an order.
void run(const std::vector<GraphNode>& nodes, ContextObject& context) {
  running_graph = true;
  std::vector<bool> ran(nodes.size());
  for (size_t left = nodes.size(); left > 0; --left) {
    for (size_t i = nodes.size(); i-- > 0;) {
      const auto& after = nodes[i].after;
      if (ran[i] || !std::all_of(after.begin(), after.end(), [&](size_t one) { return ran[one]; })) continue;
      nodes[i].job(context.error);
      ran[i] = true;
      break;
    }
  }
  running_graph = false;
}

}  // namespace

CUresult refuse_captured(StreamObject& stream, CUresult with) {
  const std::lock_guard lock(state().mutex);
  if (!stream.capture) return CUDA_SUCCESS;
  stream.capture->valid = false;
  return with;
}

CUresult refuse_captured(EventObject& event) {
  const std::lock_guard lock(state().mutex);
  if (event.capture == 0) return CUDA_SUCCESS;
  if (CaptureObject* capture = of_id(event.capture)) capture->valid = false;
  return CUDA_ERROR_CAPTURED_EVENT;
}

// What CUDA calls potentially unsafe.
CUresult refuse_unsafe(const char* name) {
  static const std::set<std::string> unsafe = {"cuMemAlloc_v2", "cuMemAllocManaged",    "cuMemFree_v2", "cuMemHostAlloc",
                                               "cuMemFreeHost", "cuMemHostRegister_v2", "cuEventQuery", "cuStreamSynchronize",
                                               "cuStreamQuery", "cuModuleLoadData",     "cuMemCreate",  "cuMemMap",
                                               "cuMemUnmap",    "cuMemSetAccess"};
  const std::lock_guard lock(state().mutex);
  if (captures().empty() || unsafe.count(name) == 0) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (CaptureObject* one : captures()) {
    if (one->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (one->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && one->thread != std::this_thread::get_id()) continue;
    one->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult submit(StreamObject& stream, StreamObject::Job job) {
  {
    const std::lock_guard lock(state().mutex);
    if (CaptureObject* capture = stream.capture) {
      if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      auto& latest = capture->streams.at(&stream);
      capture->nodes.push_back({std::move(job), latest});
      latest = {capture->nodes.size() - 1};
      return CUDA_SUCCESS;
    }
  }
  stream.push(std::move(job));
  return CUDA_SUCCESS;
}

bool record_captured(StreamObject& stream, EventObject& event, CUresult* result) {
  const std::lock_guard lock(state().mutex);
  *result = CUDA_SUCCESS;
  event.capture = 0;
  CaptureObject* capture = stream.capture;
  if (!capture) return false;
  if (!capture->valid) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (event.flags & CU_EVENT_INTERPROCESS) {
    *result = CUDA_ERROR_NOT_SUPPORTED;
  } else {
    event.capture = capture->id;
    event.point = capture->streams.at(&stream);
  }
  return true;
}

bool wait_captured(StreamObject& stream, EventObject& event, CUresult* result) {
  const std::lock_guard lock(state().mutex);
  CaptureObject *own = stream.capture, *others = event.capture ? of_id(event.capture) : nullptr;
  *result = CUDA_SUCCESS;
  if (!own && event.capture == 0) return false;
  const auto refuse = [&](CUresult why) {
    for (CaptureObject* one : {own, others}) {
      if (one) one->valid = false;
    }
    *result = why;
    return true;
  };
  if (event.capture == 0) return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);  // also of an event that was never recorded
  if (!others) return refuse(CUDA_ERROR_CAPTURED_EVENT);
  if (own && own != others) return refuse(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (&stream == stream.context.legacy.get()) return refuse(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (!others->valid) return refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  stream.capture = others;
  others->streams[&stream].insert(event.point.begin(), event.point.end());
  return true;
}

FAKE(cuStreamBeginCapture_v2, CUstream stream, int mode) {
  ENTER_STREAM(stream);
  record("  mode " + std::to_string(mode));
  if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(state().mutex);
  if (on->capture) return CUDA_ERROR_ILLEGAL_STATE;
  static uint64_t last = 0;
  auto* made = new CaptureObject{++last, mode, std::this_thread::get_id(), on, {{on, {}}}, {}};
  captures().insert(made);
  on->capture = made;
  return CUDA_SUCCESS;
}

FAKE(cuStreamEndCapture, CUstream stream, CUgraph* graph) {
  *graph = nullptr;
  ENTER();
  const std::lock_guard lock(state().mutex);
  CaptureObject* found = stream ? stream->capture : nullptr;
  if (!found) return CUDA_ERROR_ILLEGAL_STATE;
  if (found->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (found->mode != CU_STREAM_CAPTURE_MODE_RELAXED && found->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = !found->valid     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !joined(*found) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                      : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = stream->context.error;
  if (result == CUDA_SUCCESS) *graph = *graphs().insert(new GraphObject{std::move(found->nodes)}).first;
  end(found);
  return result;
}

FAKE(cuStreamIsCapturing, CUstream stream, int* status) {
  ENTER_STREAM(stream);
  const std::lock_guard lock(state().mutex);
  *status = !on->capture         ? CU_STREAM_CAPTURE_STATUS_NONE
            : on->capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                 : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_SUCCESS;
}

FAKE(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  ENTER_CONTEXT();
  const std::lock_guard lock(state().mutex);
  if (graphs().count(graph) == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto nodes = std::make_shared<const std::vector<GraphNode>>(graph->nodes);
  *exec = *execs().insert(new GraphExecObject{context, std::move(nodes), std::make_shared<std::atomic<uint64_t>>(0)}).first;
  return CUDA_SUCCESS;
}

FAKE(cuGraphLaunch, CUgraphExec exec, CUstream stream) {
  ENTER_STREAM(stream);
  const std::lock_guard lock(state().mutex);
  if (execs().count(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (on->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  on->push([nodes = exec->nodes, done = exec->done, number = exec->asked++, context](CUresult) {
    while (done->load() != number) std::this_thread::sleep_for(std::chrono::microseconds(20));  // behind its runs on other streams
    run(*nodes, *context);
    done->store(number + 1);
  });
  return CUDA_SUCCESS;
}

FAKE(cuGraphDestroy, CUgraph graph) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  if (graphs().erase(graph) == 0) return CUDA_ERROR_INVALID_VALUE;
  delete graph;
  return CUDA_SUCCESS;
}

FAKE(cuGraphExecDestroy, CUgraphExec exec) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  if (execs().erase(exec) == 0) return CUDA_ERROR_INVALID_VALUE;
  delete exec;
  return CUDA_SUCCESS;
}

FAKE(cuGraphDebugDotPrint, CUgraph graph, const char* path, unsigned) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  FILE* const file = graphs().count(graph) ? std::fopen(path, "w") : nullptr;
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  std::fprintf(file, "digraph dot {\n");
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    std::fprintf(file, "n%zu;\n", i);
    for (const size_t before : graph->nodes[i].after) std::fprintf(file, "n%zu -> n%zu;\n", before, i);
  }
  std::fprintf(file, "}\n");
  std::fclose(file);
  return CUDA_SUCCESS;
}

/// How many captures, graphs and execs there are.
extern "C" BP_EXPORT int fake_cuda_graphs() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(captures().size() + graphs().size() + execs().size());
}

}  // namespace backplane::driver::cuda
