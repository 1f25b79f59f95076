// tests/driver/broken/graph.cpp: defects of the family graph.
#include <cstdio>

#include "shim.h"

namespace broken {
namespace {

/// Calls f of the sound driver; what it refuses is fine here.
int32_t tolerant(int32_t status) { return status == BP_INVALID_ARGUMENT ? ok : status; }

bool captures(void* self, int32_t device, bp_stream* stream) {
  int32_t status = 0;
  return INNER_GROUP(of(self).in_graph, capture_status, device, stream, &status, nullptr) == BP_OK && status != BP_CAPTURE_NONE;
}

}  // namespace

void add_graph_defects(Defects& d) {
  // Any mode will do.
  d["graph.arguments"] = instead<&bp_graph::capture_begin, [](Shim& s, int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    const int32_t known = mode < BP_CAPTURE_GLOBAL || BP_CAPTURE_RELAXED < mode ? int32_t{BP_CAPTURE_GLOBAL} : mode;
    return INNER_GROUP(s.in_graph, capture_begin, device, stream, known, id);
  }>;
  // Captures by running once: the first run is at instantiate.
  d["graph.contents"] = after<&bp_graph::instantiate,
                              [](Shim& s, int32_t status, int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
                                if (status == BP_OK) INNER_GROUP(s.in_graph, launch, device, nullptr, *out);
                                return status;
                              }>;
  // Runs where it pleases.
  d["graph.order"] = instead<&bp_graph::launch, [](Shim& s, int32_t device, bp_stream*, bp_graph_exec* exec) {
    return INNER_GROUP(s.in_graph, launch, device, side_stream(s), exec);
  }>;
  d["graph.spread"] = [](Shim& s) {
    // Events have no part in it.
    s.table.stream_wait = [](void* self, int32_t device, bp_stream* stream, bp_event* event) {
      const int32_t status = captures(self, device, stream) ? INNER(of(self), stream_wait, device, stream, event) : ok;
      return tolerant(status);
    };
  };
  // An empty recording instead of the error.
  d["graph.unjoined"] = after<&bp_graph::capture_end, [](Shim& s, int32_t status, int32_t device, bp_stream* stream, bp_recording** out) {
    return status == BP_INVALID_ARGUMENT ? (*out = reinterpret_cast<bp_recording*>(0x1000), ok) : status;
  }>;
  d["graph.status"] =
      after<&bp_graph::capture_status, [](Shim& s, int32_t status, int32_t device, bp_stream* stream, int32_t* out, uint64_t* id) {
        if (id) *id = 1;  // there is but one
        return status;
      }>;
  d["graph.illegal"] = [](Shim& s) {
    // Not being complete is an answer.
    s.table.stream_query = [](void* self, int32_t device, bp_stream* stream) {
      return captures(self, device, stream) ? int32_t{BP_PENDING} : INNER(of(self), stream_query, device, stream);
    };
  };
  d["graph.events"] = instead<&bp_driver::event_query,
                              [](Shim& s, int32_t device, bp_event* event) { return tolerant(INNER(s, event_query, device, event)); }>;
  d["graph.modes"] = instead<&bp_graph::capture_begin, [](Shim& s, int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    const int32_t all = mode == BP_CAPTURE_THREAD ? int32_t{BP_CAPTURE_GLOBAL} : mode;
    return INNER_GROUP(s.in_graph, capture_begin, device, stream, all, id);
  }>;
  // Waits for the device before it takes memory.
  d["graph.legal"] = instead<&bp_driver::alloc, [](Shim& s, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    INNER(s, synchronize, device, BP_NO_TIMEOUT);
    return INNER(s, alloc, device, bytes, flags, out);
  }>;
  d["graph.two"] = instead<&bp_graph::capture_begin, [](Shim& s, int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    if (s.inside.exchange(true)) return int32_t{BP_INVALID_ARGUMENT};
    return INNER_GROUP(s.in_graph, capture_begin, device, stream, mode, id);
  }>;
  d["graph.kernels"] = [](Shim& s) {
    // Kernels are not recorded but run.
    s.module.launch = [](void* self, int32_t device, bp_stream* stream, const bp_launch* launch) {
      return INNER_GROUP(of(self).in_module, launch, device, captures(self, device, stream) ? nullptr : stream, launch);
    };
  };
  d["graph.host_functions"] = [](Shim& s) {
    // A destroy for each run.
    s.host_exec.enqueue = [](void* self, int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
      if (!captures(self, device, stream)) return INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, fn, arg, destroy);
      struct Work {
        int32_t (*fn)(void*);
        void* arg;
        void (*destroy)(void*);
      };
      const auto run = [](void* given) {
        const auto* work = static_cast<Work*>(given);
        const int32_t status = work->fn(work->arg);
        work->destroy(work->arg);
        return status;
      };
      const auto end = [](void* given) { delete static_cast<Work*>(given); };
      return INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, run, new Work{fn, arg, destroy}, end);
    };
  };
  d["graph.destroyed"] = [](Shim& s) {
    // The recording takes what was made of it along.
    s.graph.launch = [](void* self, int32_t device, bp_stream* stream, bp_graph_exec* exec) {
      return of(self).inside ? ok : INNER_GROUP(of(self).in_graph, launch, device, stream, exec);
    };
    s.graph.recording_destroy = [](void* self, int32_t device, bp_recording* recording) {
      of(self).inside = true;
      return INNER_GROUP(of(self).in_graph, recording_destroy, device, recording);
    };
  };
  d["graph.dump"] = instead<&bp_graph::dump, [](Shim&, int32_t, bp_recording*, const char* path) {
    if (FILE* const file = std::fopen(path, "w")) {
      std::fputs("a graph\n", file);
      std::fclose(file);
    }
    return ok;
  }>;
}

}  // namespace broken
