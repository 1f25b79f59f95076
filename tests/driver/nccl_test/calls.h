// tests/driver/nccl_test/calls.h: cases of nccl_test.cpp: what NCCL is asked for each entry, and what it is not asked.
#pragma once

#include <backplane/driver/graph.h>
#include <backplane/driver/profile.h>

#include "support.h"

namespace {

void life() {
  Ranks r;
  nccl().record();
  bp_comm* comm = r.join();
  const uint64_t at = r.number(3);
  bp_stream* stream = r.stream();
  OK(r.sum(comm, at, 1, stream));
  HAS(nccl().calls(), "ncclAllReduce count 1 dtype 7 op 0 stream " + format("%p", static_cast<void*>(stream)));
  OK(r.d->stream_synchronize(r.self, 0, stream, kSecond));
  CHECK(r.number_at(at) == 3);
  OK(r.destroy(comm));
  SAME(calls(),
       "ncclGetUniqueId\nncclCommInitRankConfig 0 of 1, the test's\nncclAllReduce count 1 dtype 7 op 0\nncclCommFinalize\n"
       "ncclCommDestroy\n");
  CHECK(r.destroy(comm) == BP_INVALID_ARGUMENT);
  HAS(r.error(), "no live communicator");
}

// A record for each call, and one for a group, of what is queued.
void recorded() {
  Ranks r;
  const bp_profile profile = *find_group<bp_profile>(*r.d);
  CHECK(profile.head.flags & BP_PROFILE_COLLECTIVES);
  bp_comm* comm = r.join();
  bp_stream* stream = r.stream();
  const uint64_t at = r.number(3), other = r.number(0);
  std::vector<std::string> seen;
  const auto keep = [](void* arg, const bp_activity* const* records, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const bp_activity& one = *records[i];
      CHECK(one.kind == BP_ACTIVITY_COLLECTIVE && one.device == 0 && one.begin_ns != 0 && one.end_ns >= one.begin_ns);
      static_cast<std::vector<std::string>*>(arg)->push_back(
          format("%s %d of %d", one.name, static_cast<int>(one.bytes), static_cast<int>(one.correlation)));
    }
  };
  OK(r.sum(comm, at, 1, stream));  // before it is on
  OK(profile.start(profile.head.self, 1 << BP_ACTIVITY_COLLECTIVE, keep, &seen));
  OK(profile.tag(profile.head.self, 7));
  OK(r.sum(comm, at, 1, stream));
  CHECK(r.g.all_reduce(r.g.head.self, comm, stream, at, at, 1, BP_DTYPE_INT32, BP_REDUCE_BXOR) != BP_OK);
  OK(r.g.group_begin(r.g.head.self));
  OK(r.sum(comm, at, 1, stream));
  OK(r.g.broadcast(r.g.head.self, comm, stream, other, at, 8, 0));
  OK(r.g.group_end(r.g.head.self));
  nccl().fail("ncclAllReduce", ncclInternalError);
  CHECK(r.sum(comm, at, 1, stream) != BP_OK);
  nccl().fail("ncclAllReduce", 0);
  OK(r.d->stream_synchronize(r.self, 0, stream, kSecond));
  uint64_t dropped = 0;
  OK(profile.stop(profile.head.self, &dropped));
  CHECK((seen == std::vector<std::string>{"all_reduce 4 of 7", "all_reduce 12 of 7"}) && dropped == 0);
}

struct Pair {
  int32_t op;
  uint64_t dtype;
  const char* call;
};

// Each dtype and op as NCCL's; bool by MIN and MAX, complex numbers as pairs.
void reductions() {
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t at = r.alloc(1024);
  constexpr Pair pairs[] = {{BP_REDUCE_SUM, BP_DTYPE_INT8, "count 6 dtype 0 op 0"},
                            {BP_REDUCE_PRODUCT, BP_DTYPE_UINT8, "count 6 dtype 1 op 1"},
                            {BP_REDUCE_MAX, BP_DTYPE_INT32, "count 6 dtype 2 op 2"},
                            {BP_REDUCE_MIN, BP_DTYPE_INT64, "count 6 dtype 4 op 3"},
                            {BP_REDUCE_AVG, BP_DTYPE_FLOAT16, "count 6 dtype 6 op 4"},
                            {BP_REDUCE_SUM, BP_DTYPE_FLOAT32, "count 6 dtype 7 op 0"},
                            {BP_REDUCE_SUM, BP_DTYPE_FLOAT64, "count 6 dtype 8 op 0"},
                            {BP_REDUCE_SUM, BP_DTYPE_BFLOAT16, "count 6 dtype 9 op 0"},
                            {BP_REDUCE_MAX, BP_DTYPE_FLOAT8_E4M3, "count 6 dtype 10 op 2"},
                            {BP_REDUCE_SUM, BP_DTYPE_FLOAT8_E5M2, "count 6 dtype 11 op 0"},
                            {BP_REDUCE_SUM, BP_DTYPE_COMPLEX64, "count 12 dtype 7 op 0"},
                            {BP_REDUCE_AVG, BP_DTYPE_COMPLEX128, "count 12 dtype 8 op 4"},
                            {BP_REDUCE_SUM, BP_DTYPE_BOOL, "count 6 dtype 1 op 2"},
                            {BP_REDUCE_BOR, BP_DTYPE_BOOL, "count 6 dtype 1 op 2"},
                            {BP_REDUCE_PRODUCT, BP_DTYPE_BOOL, "count 6 dtype 1 op 3"},
                            {BP_REDUCE_BAND, BP_DTYPE_BOOL, "count 6 dtype 1 op 3"},
                            {BP_REDUCE_SUM, BP_DTYPE_INT16, nullptr},
                            {BP_REDUCE_AVG, BP_DTYPE_INT32, nullptr},
                            {BP_REDUCE_BXOR, BP_DTYPE_INT32, nullptr},
                            {BP_REDUCE_BXOR, BP_DTYPE_BOOL, nullptr},
                            {BP_REDUCE_AVG, BP_DTYPE_BOOL, nullptr},
                            {BP_REDUCE_PRODUCT, BP_DTYPE_COMPLEX64, nullptr}};
  bp_collective_properties properties{};
  properties.struct_size = sizeof properties;
  OK(r.g.properties(r.g.head.self, 0, &properties));
  for (const auto& [op, dtype, call] : pairs) {
    nccl().record();
    CHECK(((properties.reduces[op] & dtype) != 0) == (call != nullptr));
    const int32_t status = r.g.all_reduce(r.g.head.self, comm, nullptr, at, at, 6, dtype, op);
    CHECK(status == (call ? BP_OK : BP_INVALID_ARGUMENT));
    SAME(calls(), call ? std::string("ncclAllReduce ") + call + "\n" : "");
  }
  nccl().record();
  OK(r.g.reduce(r.g.head.self, comm, nullptr, at, at, 5, BP_DTYPE_FLOAT32, BP_REDUCE_SUM, 0));
  OK(r.g.reduce_scatter(r.g.head.self, comm, nullptr, at, at, 5, BP_DTYPE_COMPLEX64, BP_REDUCE_SUM));
  SAME(calls(), "ncclReduce count 5 dtype 7 op 0 root 0\nncclReduceScatter count 10 dtype 7 op 0\n");
}

// What only moves goes as bytes. What NCCL does not support is UNSUPPORTED, as check-driver requires.
void moves() {
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t in = r.alloc(512), out = r.alloc(512);
  void* self = r.g.head.self;
  CHECK(!(r.g.head.flags & (BP_COLLECTIVE_ALL_TO_ALL | BP_COLLECTIVE_ALL_TO_ALL_V | BP_COLLECTIVE_GATHER | BP_COLLECTIVE_BARRIER)));
  nccl().record();
  OK(r.g.broadcast(self, comm, nullptr, out, in, 12, 0));
  OK(r.g.all_gather(self, comm, nullptr, out, in, 12));
  SAME(calls(), "ncclBroadcast count 12 dtype 1 root 0\nncclAllGather count 12 dtype 1\n");
}

// Groups nest, and go out as one.
void groups() {
  Ranks r;
  bp_comm* comm = r.join();
  void* self = r.g.head.self;
  const uint64_t in = r.number(5), out = r.number(0);
  nccl().record();
  OK(r.g.group_begin(self));
  OK(r.g.group_begin(self));
  OK(r.g.send(self, comm, nullptr, in, 4, 0));
  OK(r.g.group_end(self));
  OK(r.g.recv(self, comm, nullptr, out, 4, 0));
  OK(r.sum(comm, in));
  OK(r.g.group_end(self));
  SAME(calls(),
       "ncclGroupStart\nncclSend count 4 dtype 1 peer 0\nncclRecv count 4 dtype 1 peer 0\nncclAllReduce count 1 dtype 7 op 0\n"
       "ncclGroupEnd\n");
  CHECK(r.number_at(out) == 5);
  OK(r.g.group_begin(self));
  OK(r.sum(comm, in));
  CHECK(r.sum(comm, in, 1, r.stream()) == BP_INVALID_ARGUMENT);
  HAS(r.error(), "name the same stream");
  const bp_comm_config config = r.config(0, 1);
  bp_comm* other = nullptr;
  CHECK(r.g.create(self, 0, &config, &other) == BP_INVALID_ARGUMENT);
  HAS(r.error(), "a group is open");
  OK(r.g.group_end(self));  // a call that fails leaves the group open
  CHECK(r.g.group_end(self) == BP_INVALID_ARGUMENT);
}

void refused() {
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t at = r.alloc(512);
  void* self = r.g.head.self;
  nccl().record();
  const auto is_refused = [&](int32_t status, const char* why) {
    CHECK(status == BP_INVALID_ARGUMENT);
    HAS(r.error(), why);
  };
  is_refused(r.sum(comm, at, 1, r.stream(1)), "not of the communicator's device");
  is_refused(r.sum(comm, at + 2), "not aligned");
  is_refused(r.sum(comm, at, UINT64_MAX / 2), "overflows");
  is_refused(r.sum(comm, 0), "an address is 0");
  is_refused(r.g.send(self, comm, nullptr, at, 8, 0), "in a group alone");
  is_refused(r.g.broadcast(self, comm, nullptr, at, at, 8, 1), "root is 1, there are ranks 0 to 0");
  is_refused(r.sum(reinterpret_cast<bp_comm*>(&r), at), "no live communicator");
  uint64_t hole = 0;
  const bp_ext* ext = nullptr;
  OK(r.d->query_ext(r.self, BP_VMM_ID, BP_VMM_VERSION, &ext));
  const auto& vmm = *reinterpret_cast<const bp_vmm*>(ext);
  uint64_t unit = 0;
  OK(vmm.granularity(vmm.head.self, 0, &unit));
  OK(vmm.reserve(vmm.head.self, 0, unit, &hole));
  is_refused(r.sum(comm, hole), "all_reduce");  // where nothing is mapped
  SAME(calls(), "");
  OK(r.sum(comm, at));
  CHECK(r.state(comm) == BP_OK);
}

// A graph cannot hold a collective: NCCL's threads make the calls. The capture is refused at the call, and NCCL is asked nothing.
void captured() {
  Ranks g;
  bp_comm* comm = g.join();
  bp_stream* stream = g.stream();
  const uint64_t at = g.number(2);
  const bp_graph graph = *find_group<bp_graph>(*g.d);
  OK(graph.capture_begin(graph.head.self, 0, stream, BP_CAPTURE_THREAD, nullptr));
  nccl().record();
  CHECK(g.sum(comm, at, 1, stream) == BP_INVALID_ARGUMENT);
  HAS(g.error(), "a call of bp.collective: the stream captures a graph");
  SAME(calls(), "");
  OK(g.sum(comm, at));  // on another stream
  bp_recording* out = nullptr;
  CHECK(graph.capture_end(graph.head.self, 0, stream, &out) == BP_INVALID_ARGUMENT);
  HAS(g.error(), "a call of bp.collective");
  OK(g.sum(comm, at, 1, stream));
  OK(g.destroy(comm));
}

}  // namespace
