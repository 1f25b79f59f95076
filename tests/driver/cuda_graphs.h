// tests/driver/cuda_graphs.h: bp.graph by CUDA graphs: the calls of CUDA, what fails inside CUDA, and what is left at the end.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include <backplane/driver/graph.h>
#include <backplane/driver/profile.h>

#include "cuda_modules.h"

namespace {

struct GraphGpus : Kernels {
  GraphGpus() : graph(*find_group<bp_graph>(*d)), on(stream()), place(alloc(64)) { put(place, std::string(64, 'z').data(), 64); }

  int32_t begin(int32_t mode = BP_CAPTURE_GLOBAL) { return graph.capture_begin(graph.head.self, 0, on, mode, nullptr); }
  int32_t end(bp_recording** out) { return graph.capture_end(graph.head.self, 0, on, out); }
  int32_t status(bp_stream* of) {
    int32_t out = 77;
    OK(graph.capture_status(graph.head.self, 0, of, &out, nullptr));
    return out;
  }
  int32_t set(bp_stream* stream, char value, uint64_t at = 0, uint64_t count = 1) {
    return d->fill(self, 0, stream, place + at, &value, 1, count, 0);
  }
  bp_recording* recorded() {
    bp_recording* out = nullptr;
    OK(end(&out));
    return out;
  }
  bp_graph_exec* ready(bp_recording* recording) {
    bp_graph_exec* out = nullptr;
    OK(graph.instantiate(graph.head.self, 0, recording, 0, &out));
    return out;
  }
  int32_t launch(bp_graph_exec* exec, bp_stream* stream) { return graph.launch(graph.head.self, 0, stream, exec); }
  int32_t wait(bp_stream* stream) { return d->stream_synchronize(self, 0, stream, BP_NO_TIMEOUT); }
  void follow(bp_stream* later, bp_stream* earlier) {
    bp_event* point = event();
    OK(d->event_record(self, 0, earlier, point, 0));
    OK(d->stream_wait(self, 0, later, point));
    OK(d->event_destroy(self, 0, point));
  }
  std::string content(uint64_t bytes) {
    const auto raw = take(place, bytes);
    return {raw.begin(), raw.end()};
  }
  /// A capture that is invalid, for this reason; the stream works afterwards.
  void invalid(const char* why) {
    CHECK(status(on) == BP_CAPTURE_INVALID);
    auto* const untouched = reinterpret_cast<bp_recording*>(7);
    bp_recording* out = untouched;
    CHECK(end(&out) == BP_INVALID_ARGUMENT && out == untouched);
    HAS(error(), why);
    CHECK(status(on) == BP_CAPTURE_NONE);
    OK(wait(on));
  }

  const bp_graph graph;
  bp_stream* const on;
  const uint64_t place;
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Whatever the mode is, CUDA's is the relaxed one: libraries allocate, and any thread ends the capture.
void calls_of_cuda() {
  GraphGpus g;
  for (const int32_t mode : {BP_CAPTURE_GLOBAL, BP_CAPTURE_THREAD, BP_CAPTURE_RELAXED}) {
    fake().record();
    OK(g.begin(mode));
    HAS(fake().calls(), "cuStreamBeginCapture_v2\n  mode 2\n");
    uint64_t other = 0;
    OK(g.d->alloc(g.self, 0, 64, 0, &other));
    OK(g.set(g.on, 'a'));
    OK(g.d->free(g.self, 0, other));
    bp_recording* recording = nullptr;
    std::thread([&] { OK(g.end(&recording)); }).join();
    bp_graph_exec* exec = g.ready(recording);
    fake().record();
    OK(g.launch(exec, g.on));
    HAS(fake().calls(), "cuGraphLaunch\n");
    CHECK(!has(fake().calls(), "cuMemset"));
    OK(g.wait(g.on));
    CHECK(g.content(2) == "az");
    OK(g.set(g.on, 'z'));
  }
}

// Edges alone keep the order of a run: streams that are not joined by events may change places, those that are may not.
void order_by_edges() {
  GraphGpus g;
  bp_stream* side = g.stream();
  OK(g.begin());
  OK(g.set(g.on, 'a'));
  g.follow(side, g.on);
  OK(g.set(side, 'b'));
  OK(g.set(g.on, 'c', 8));
  OK(g.set(side, 'd', 8 + 1));
  g.follow(g.on, side);
  OK(g.set(g.on, 'e', 1));
  OK(g.d->copy_async(g.self, 0, g.on, g.place + 16, 0, g.place, 0, 16, 0));
  bp_graph_exec* exec = g.ready(g.recorded());
  for (int round = 0; round < 3; ++round) {
    OK(g.launch(exec, round % 2 ? side : g.on));
    OK(g.d->synchronize(g.self, 0, BP_NO_TIMEOUT));
    CHECK(g.content(10) == "bezzzzzzcd" && g.content(26).substr(16) == "bezzzzzzcd");
    g.put(g.place, std::string(64, 'z').data(), 64);
  }
}

void kernels_in_graphs() {
  GraphGpus g;
  bp_module_code* module = g.load(g.code_for(g.target(0)));
  bp_function *affine = nullptr, *trap = nullptr;
  OK(g.find(module, "affine", 2, 16, &affine));
  OK(g.find(module, "trap", 1, 16, &trap));
  OK(g.begin());
  fake().record();
  std::vector<uint64_t> block = {0x1111, 0x2222, 7, 9};
  OK(g.run(affine, block, 3, 64, 0, g.on));
  block.assign(4, 0);
  CHECK(!has(fake().calls(), "  ran "));
  bp_graph_exec* exec = g.ready(g.recorded());
  for (int run = 0; run < 3; ++run) OK(g.launch(exec, g.on));
  OK(g.wait(g.on));
  const std::string ran = fake().calls();
  CHECK(count(ran, "  ran affine grid 3 2 1 block 64 1 1 ") == 3 && count(ran, "cuLaunchKernel") == 1);
  CHECK(count(ran, "args 11110000000000002222000000000000") == 4);
  OK(g.begin());
  OK(g.run(trap, {0x1111, 7, 9}, 3, 64, 0, g.on));
  bp_graph_exec* fails = g.ready(g.recorded());
  OK(g.launch(fails, g.on));
  CHECK(g.wait(g.on) == BP_FAULT);
  CHECK(g.launch(exec, g.on) == BP_FAULT && g.begin() == BP_FAULT);
  OK(g.graph.exec_destroy(g.graph.head.self, 0, fails));
}

// What others in the process do to the stream, and what CUDA refuses, is reported to the caller.
void refused_by_cuda() {
  GraphGpus g;
  uint64_t number = 0;
  OK(g.d->stream_native(g.self, 0, g.on, &number));
  OK(g.begin(BP_CAPTURE_RELAXED));
  CHECK(fake().cuStreamQuery(reinterpret_cast<CUstream>(number)) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(g.set(g.on, 'a') == BP_INVALID_ARGUMENT);
  HAS(g.error(), "(901)");
  OK(g.set(g.on, 'a'));  // forgotten
  g.invalid("cuMemsetD8Async");

  OK(g.begin(BP_CAPTURE_RELAXED));  // nobody notices before the end
  fake().cuStreamQuery(reinterpret_cast<CUstream>(number));
  bp_recording* out = nullptr;
  CHECK(g.end(&out) == BP_INVALID_ARGUMENT && !out);
  HAS(g.error(), "cuStreamEndCapture: an unknown error (901)");

  OK(g.begin());  // an argument's error leaves the capture as it is
  CHECK(g.d->fill(g.self, 0, g.on, 0x10, "a", 1, 1, 0) == BP_INVALID_ARGUMENT);
  OK(g.set(g.on, 'a'));
  OK(g.launch(g.ready(g.recorded()), g.on));
  OK(g.wait(g.on));
  CHECK(g.content(2) == "az");
}

void failed_calls() {
  GraphGpus g;
  fake().fail("cuStreamBeginCapture_v2", CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  CHECK(g.begin() == BP_OUT_OF_MEMORY && g.status(g.on) == BP_CAPTURE_NONE);
  OK(g.begin());
  OK(g.set(g.on, 'a'));
  bp_recording* recording = g.recorded();
  fake().fail("cuGraphInstantiateWithFlags", CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  auto* const untouched = reinterpret_cast<bp_graph_exec*>(7);
  bp_graph_exec* exec = untouched;
  CHECK(g.graph.instantiate(g.graph.head.self, 0, recording, 0, &exec) == BP_OUT_OF_MEMORY && exec == untouched);
  exec = g.ready(recording);
  fake().fail("cuGraphLaunch", CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  CHECK(g.launch(exec, g.on) == BP_OUT_OF_MEMORY);
  OK(g.launch(exec, g.on));
  OK(g.wait(g.on));
  CHECK(g.content(1) == "a");
  OK(g.begin());  // a failure of the device ends the capture
  fake().break_(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(g.end(&recording) == BP_FAULT && g.status(g.on) == BP_CAPTURE_NONE);
  CHECK(g.begin() == BP_FAULT);
}

void streams_that_end() {
  GraphGpus g;
  bp_stream *side = g.stream(), *lost = g.stream();
  OK(g.begin());
  g.follow(side, g.on);
  OK(g.set(side, 'a'));
  OK(g.d->stream_destroy(g.self, 0, side));
  OK(g.set(g.on, 'a'));
  g.invalid("stream_destroy");
  OK(g.graph.capture_begin(g.graph.head.self, 0, lost, BP_CAPTURE_GLOBAL, nullptr));
  OK(g.set(lost, 'a'));
  OK(g.d->stream_destroy(g.self, 0, lost));
  OK(g.d->synchronize(g.self, 0, BP_NO_TIMEOUT));
  CHECK(g.content(1) == "z" && fake().graphs() == 0);
}

void ends() {
  {
    GraphGpus g;
    bp_stream* other = g.stream();
    OK(g.begin());
    OK(g.set(g.on, 'a'));
    bp_recording* recording = g.recorded();
    bp_graph_exec* exec = g.ready(recording);
    for (int run = 0; run < 3; ++run) OK(g.launch(exec, g.on));
    OK(g.graph.exec_destroy(g.graph.head.self, 0, exec));
    CHECK(g.launch(exec, g.on) == BP_INVALID_ARGUMENT && g.graph.exec_destroy(g.graph.head.self, 0, exec) == BP_INVALID_ARGUMENT);
    CHECK(g.graph.recording_destroy(g.graph.head.self, 1, recording) == BP_INVALID_ARGUMENT);
    g.ready(recording);
    OK(g.graph.capture_begin(g.graph.head.self, 0, other, BP_CAPTURE_GLOBAL, nullptr));
    OK(g.set(other, 'a'));
    CHECK(fake().graphs() == 3);
  }
  CHECK(fake().graphs() == 0);
}

// Events of a record do not enter a capture; a run is one record.
void profiles() {
  GraphGpus g;
  const bp_profile profile = *find_group<bp_profile>(*g.d);
  std::vector<std::string> seen;
  const auto keep = [](void* arg, const bp_activity* const* records, uint64_t records_count) {
    for (uint64_t i = 0; i < records_count; ++i) {
      const bp_activity& one = *records[i];
      static_cast<std::vector<std::string>*>(arg)->push_back(one.name                                     ? one.name
                                                             : one.end_ns >= one.begin_ns && one.begin_ns ? "timed"
                                                                                                          : "untimed");
    }
  };
  OK(profile.start(profile.head.self, ~uint64_t{0} >> (64 - BP_ACTIVITY_COUNT), keep, &seen));
  OK(g.begin());
  OK(g.set(g.on, 'a'));
  OK(profile.launch_begin(profile.head.self, 0, g.on));
  OK(profile.launch_end(profile.head.self, 0, g.on, "vendor's"));
  fake().record();
  bp_graph_exec* exec = g.ready(g.recorded());
  for (int run = 0; run < 2; ++run) OK(g.launch(exec, g.on));
  OK(g.set(g.on, 'b'));
  OK(g.wait(g.on));
  uint64_t dropped = 0;
  OK(profile.stop(profile.head.self, &dropped));
  CHECK((seen == std::vector<std::string>{"graph", "graph", "timed"}) && dropped == 0);
}

// A copy between two devices, and memory that is mapped: both are CUDA's to record.
void far_and_mapped() {
  GraphGpus g;
  const uint64_t far = g.alloc(64, 1);
  g.put(far, "far", 4, 1);
  OK(g.begin());
  OK(g.d->copy_async(g.self, 0, g.on, g.place, 0, far, 1, 3, 0));
  OK(g.launch(g.ready(g.recorded()), g.on));
  OK(g.wait(g.on));
  CHECK(g.content(4) == "farz");
  bp_event* shared = g.event(BP_EVENT_IPC);
  OK(g.begin(BP_CAPTURE_RELAXED));
  CHECK(g.d->event_record(g.self, 0, g.on, shared, 0) == BP_INVALID_ARGUMENT);
  g.invalid("shared between processes");
}

void graph_cases() {
  report("calls of CUDA", calls_of_cuda);
  report("order by edges", order_by_edges);
  report("kernels in graphs", kernels_in_graphs);
  report("refused by CUDA", refused_by_cuda);
  report("failed calls", failed_calls);
  report("streams that end", streams_that_end);
  report("ends", ends);
  report("profiles", profiles);
  report("far and mapped", far_and_mapped);
}

}  // namespace
