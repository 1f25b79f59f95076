// check_driver/checks_graph.cpp: family "graph": what a recording holds, when it runs, and to whom a capture spreads.
#include "graph_bench.h"
#include "loaded.h"

namespace backplane::check {
namespace graph_impl {

using module_impl::Affine;
using module_impl::counted;
using module_impl::Loaded;
using module_impl::same;

// Nothing runs while a stream captures; a run reads what then lies in pinned memory, and the pattern of the capture.
void contents(Context& c) {
  const char* rule =
      "work that is queued on it does not run, it becomes part of a recording; what lies at the addresses is read by each run";
  Bench b(c);
  uint8_t pattern = 0x5a;
  b.begin();
  b.push(b.stream);
  c.expect(CALL(c, fill, 0, b.stream, b.other, &pattern, 1u, b.bytes, 0u), BP_OK, rule);
  pattern = 0x11;
  bp_recording* recording = b.end();
  b.unchanged(rule, "a capture");
  bp_graph_exec* exec = b.instantiate(recording);
  b.unchanged(rule, "instantiate");
  HostBuffer filled(b.bytes, 0x5a);
  for (uint32_t round = 0; round < 5; ++round) {
    b.set_sent(round);
    b.launch(exec);
    c.synchronize(0, b.stream);
    b.arrived(rule, "of a run");
    c.holds(0, b.other, filled.data(), b.bytes, rule, "what a recorded fill wrote");
    c.upload(0, b.other, HostBuffer(b.bytes, 0).data(), b.bytes);
  }
}

// A run comes behind the stream's work, and the stream's later work behind the run.
void order(Context& c) {
  const char* rule = "Queues one run after the stream's work; work that is queued later waits for it";
  Bench b(c);
  uint8_t* back = c.pinned(b.bytes);
  b.begin();
  c.expect(CALL(c, copy_async, 0, b.stream, b.other, 0, b.place, 0, b.bytes, 0u), BP_OK, rule);
  bp_graph_exec* exec = b.instantiate(b.end());
  for (uint32_t round = 0; round < 20; ++round) {
    b.set_sent(round);
    b.push(b.stream);
    b.launch(exec);
    c.expect(CALL(c, copy_async, 0, b.stream, reinterpret_cast<uint64_t>(back), BP_HOST_DEVICE, b.other, 0, b.bytes, 0u), BP_OK, rule);
    c.synchronize(0, b.stream);
    c.same(back, b.sent, b.bytes, rule, "copy, run, copy");
  }
  std::optional<BusyStream> hold;
  hold_if_possible(hold, c, b.stream);
  b.set_sent(99);
  b.push(b.stream);
  b.launch(exec);
  if (hold) hold->not_waited_for(rule);
}

// Another stream joins by an event, and comes back by one.
void spread(Context& c) {
  const char* rule = "another stream of the same device that waits for it captures, too, into the same recording, until the capture ends";
  Bench b(c);
  bp_stream* side = c.stream(0);
  bp_event *fork = c.event(0), *join = c.event(0);
  const uint64_t id = b.begin();
  b.push(b.stream);
  c.expect(CALL(c, event_record, 0, b.stream, fork, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, side, fork), BP_OK, rule);
  b.status_is(side, BP_CAPTURE_ACTIVE, id, rule);
  c.expect(CALL(c, copy_async, 0, side, b.other, 0, b.place, 0, b.bytes, 0u), BP_OK, rule);
  c.expect(CALL(c, event_record, 0, side, join, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, b.stream, join), BP_OK, rule);
  bp_recording* recording = b.end();
  b.status_is(side, BP_CAPTURE_NONE, 0, rule);
  b.status_is(b.stream, BP_CAPTURE_NONE, 0, rule);
  c.synchronize(0, side);
  HostBuffer zero(b.bytes);
  c.holds(0, b.other, zero.data(), b.bytes, rule, "memory that a joined stream was to write before any run");
  bp_graph_exec* exec = b.instantiate(recording);
  b.set_sent(3);
  b.launch(exec);
  c.synchronize(0, b.stream);
  c.holds(0, b.other, b.sent, b.bytes, rule, "what the joined stream's copy wrote in a run");
  b.set_sent(4);
  b.push(side);
  c.synchronize(0, side);
  b.arrived("capture_end ends it for all its streams, which work as before", "of the stream that had joined");
}

void unjoined(Context& c) {
  const char* rule = "errors: INVALID_ARGUMENT: work of another stream has not come back (ends it)";
  Bench b(c);
  bp_stream* side = c.stream(0);
  bp_event* fork = c.event(0);
  b.begin();
  c.expect(CALL(c, event_record, 0, b.stream, fork, 0u), BP_OK, rule);
  c.expect(CALL(c, stream_wait, 0, side, fork), BP_OK, rule);
  b.push(side);
  b.refused_end(rule);
  b.usable(b.stream, rule);
  b.usable(side, rule);
}

// Ids, and that asking costs nothing.
void status(Context& c) {
  const char* rule = "*out: BP_CAPTURE_NONE, ACTIVE or INVALID; *id: of the capture, the same for all its streams, 0 for none";
  Bench b(c);
  b.status_is(nullptr, BP_CAPTURE_NONE, 0, rule);
  b.status_is(b.stream, BP_CAPTURE_NONE, 0, rule);
  uint64_t last = 0;
  for (int round = 0; round < 3; ++round) {
    const uint64_t id = b.begin();
    c.require(id != 0 && id != last, "*id: of this capture, never 0, another one each time", "capture_begin gave the id %llu after %llu",
              wide(id), wide(last));
    last = id;
    b.status_is(b.stream, BP_CAPTURE_ACTIVE, id, rule);
    b.status_is(nullptr, BP_CAPTURE_NONE, 0, rule);
    int32_t out = 77;
    c.expect(CALL_GROUP(b.graph, capture_status, 0, b.stream, &out, nullptr), BP_OK, rule);
    c.require(out == BP_CAPTURE_ACTIVE, rule, "capture_status without id says %d", out);
    b.end();
    b.status_is(b.stream, BP_CAPTURE_NONE, 0, rule);
  }
}

// Two captures at once, each from a thread of its own, beside work that runs.
void two(Context& c) {
  const char* rule = "Several streams may capture at once, each its own recording";
  Bench a(c), b(c);
  a.begin(BP_CAPTURE_THREAD);
  bp_recording* of_b = nullptr;
  std::thread([&] {
    CALL_GROUP(b.graph, capture_begin, 0, b.stream, BP_CAPTURE_THREAD, nullptr);
    b.push(b.stream);
    CALL_GROUP(b.graph, capture_end, 0, b.stream, &of_b);
  }).join();
  c.require(of_b != nullptr, rule, "a capture on a second stream did not end in a recording");
  a.push(a.stream);
  bp_graph_exec *first = a.instantiate(a.end()), *second = b.instantiate(of_b);
  a.set_sent(1);
  b.set_sent(2);
  a.launch(first);
  c.synchronize(0, a.stream);
  a.arrived(rule, "of the first recording");
  b.unchanged(rule, "a run of another recording");
  b.launch(second);
  c.synchronize(0, b.stream);
  b.arrived(rule, "of the second recording");
}

// Arguments are those of the capture, though the caller's block changes.
void kernels(Context& c) {
  const char* rule = "Addresses, sizes, patterns and arguments are those of the capture";
  const Loaded k(c, 0);
  Bench b(c);
  const DeviceArray<int32_t> out(c, 0, counted(1000));
  auto args = arguments({out.address()}, Affine{1000, 3, 1});
  b.begin();
  k.module.launch(b.stream, k.module.prepare(k.advance, k.tile, k.tile.groups(1000), args), "advance");
  args = arguments({out.address()}, Affine{1000, 0, -1});
  bp_graph_exec* exec = b.instantiate(b.end());
  std::vector<int32_t> want = counted(1000);
  same(c, out.get(b.stream), want, rule, "what a kernel that was recorded wrote before any run");
  for (int round = 0; round < 4; ++round) {
    b.launch(exec);
    for (int32_t& value : want) value = static_cast<int32_t>(static_cast<uint32_t>(value) * 3u + 1u);
  }
  same(c, out.get(b.stream), want, rule, "a kernel in four runs");
}

struct Visits {
  std::atomic<int> ran{0}, destroyed{0}, inside{0};
  std::atomic<bool> overlapped{false};
};
int32_t visit(void* arg) {
  auto* visits = static_cast<Visits*>(arg);
  if (++visits->inside > 1) visits->overlapped = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  --visits->inside;
  ++visits->ran;
  return BP_OK;
}
void leave(void* arg) { ++static_cast<Visits*>(arg)->destroyed; }

// Runs of one exec on several streams, and the end of both handles while runs are queued.
void host_functions(Context& c) {
  Bench b(c);
  const bp_host_exec exec = *c.group<bp_host_exec>();
  if (!(b.graph.head.flags & BP_GRAPH_HOST_EXEC)) {
    const char* rule = "BP_GRAPH_HOST_EXEC: host_exec.enqueue is recorded; without it, it is illegal in a capture";
    Visits refused;
    b.begin();
    c.expect(CALL_GROUP(exec, enqueue, 0, b.stream, visit, &refused, leave), BP_INVALID_ARGUMENT, rule);
    return b.refused_end(rule);
  }
  const char* rule = "A host function runs once in each run, and its destroy once, when nothing can run it any more";
  Visits visits;
  bp_stream* side = c.stream(0);
  b.begin();
  c.expect(CALL_GROUP(exec, enqueue, 0, b.stream, visit, &visits, leave), BP_OK, rule);
  bp_recording* recording = b.end();
  c.require(visits.ran == 0, rule, "a recorded function ran %d times before any run", visits.ran.load());
  bp_graph_exec* ready = b.instantiate(recording);
  c.expect(CALL_GROUP(b.graph, recording_destroy, 0, recording), BP_OK, "each lives without the other");
  for (int i = 0; i < 6; ++i) c.expect(CALL_GROUP(b.graph, launch, 0, i % 2 ? side : b.stream, ready), BP_OK, rule);
  c.require(visits.destroyed == 0, rule, "destroy ran while the function could still run");
  c.expect(CALL_GROUP(b.graph, exec_destroy, 0, ready), BP_OK, "Runs that are queued still complete");
  c.synchronize(0, side);
  c.synchronize(0, b.stream);
  c.require(visits.ran == 6, "Runs that are queued still complete", "a function ran %d times in 6 runs", visits.ran.load());
  c.require(!visits.overlapped, "Runs of one exec do not overlap", "two runs were inside the same function");
  c.close();
  c.require(visits.destroyed == 1, rule, "destroy ran %d times", visits.destroyed.load());
}

void dump(Context& c) {
  const char* rule = "BP_GRAPH_DUMP. Writes the recording into a file that is made or replaced, as a DOT text (graphviz)";
  Bench b(c);
  b.begin();
  b.push(b.stream);
  bp_recording* recording = b.end();
  char path[] = "/tmp/check_driver_graph_XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) throw NotRun{"no temporary file can be made"};
  close(file);
  const int32_t status = CALL_GROUP(b.graph, dump, 0, recording, path);
  std::string text;
  if (FILE* in = fopen(path, "r")) {
    char part[4096];
    while (const size_t n = fread(part, 1, sizeof part, in)) text.append(part, n);
    fclose(in);
  }
  unlink(path);
  if (!(b.graph.head.flags & BP_GRAPH_DUMP))
    return c.expect(status, BP_UNSUPPORTED, "An entry that head.flags do not name exists and returns UNSUPPORTED");
  c.expect(status, BP_OK, rule);
  c.require(text.find("digraph") != std::string::npos, rule, "the file does not hold a digraph but %zu bytes: %.60s", text.size(),
            text.c_str());
  c.expect(CALL_GROUP(b.graph, dump, 0, recording, "/no/such/folder/graph.dot"), BP_INVALID_ARGUMENT,
           "errors: INVALID_ARGUMENT: the file cannot be written");
}

}  // namespace graph_impl

// In checks_graph_rules.cpp.
namespace graph_impl {
void illegal(Context& c);
void events(Context& c);
void modes(Context& c);
void legal(Context& c);
void arguments_of(Context& c);
void destroyed(Context& c);
}  // namespace graph_impl

Checks graph_checks() {
  using namespace graph_impl;
  constexpr uint64_t needs = needs_graph | needs_streams | needs_events | needs_pinned;
  return {
      {"graph.arguments", "wrong streams, modes, flags and ends", needs, arguments_of},
      {"graph.contents", "nothing runs before launch; a run reads memory anew", needs | needs_fill, contents},
      {"graph.order", "a run is in stream order", needs, order},
      {"graph.spread", "a stream joins by an event", needs, spread},
      {"graph.unjoined", "work that does not come back", needs, unjoined},
      {"graph.status", "who captures, and what", needs, status},
      {"graph.illegal", "what cannot be recorded is refused and named", needs, illegal},
      {"graph.events", "a recorded event belongs to its capture", needs, events},
      {"graph.modes", "whose waits make a capture invalid", needs | needs_threads, modes},
      {"graph.legal", "memory, queries and other streams go on", needs, legal},
      {"graph.two", "two captures at once", needs | needs_threads, two},
      {"graph.kernels", "arguments are those of the capture", needs | needs_module | needs_compiler, kernels},
      {"graph.host_functions", "once in each run; runs do not overlap", needs | needs_host_exec, host_functions},
      {"graph.destroyed", "recording and exec live apart", needs, destroyed},
      {"graph.dump", "a DOT text, where there is one", needs, dump},
  };
}

}  // namespace backplane::check
