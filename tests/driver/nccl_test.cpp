// tests/driver/nccl_test.cpp: what check-driver does not hold of bp.collective over NCCL: which calls of NCCL an entry makes, what older
// versions lack, NCCL's errors one by one, and ends that NCCL holds up. nccl_test DRIVER CUDA NCCL; prints a line for each case.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include <backplane/driver/collective.h>
#include <backplane/driver/graph.h>

#include "../../drivers/cuda/nccl_api.h"
#include "cuda_test.h"
#include "report.h"

namespace {

std::string nccl_path;
constexpr uint64_t kSecond = 1'000'000'000;

struct FakeNccl {
  FakeNccl() : library(dlopen(nccl_path.c_str(), RTLD_NOW)) {
    if (!library) throw std::runtime_error(dlerror());
  }
  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  void* library;
  void (*record)() = get<void()>("fake_nccl_record");
  const char* (*calls)() = get<const char*()>("fake_nccl_calls");
  void (*fail)(const char*, int) = get<void(const char*, int)>("fake_nccl_fail");
  void (*break_)(int, const char*) = get<void(int, const char*)>("fake_nccl_break");
  void (*hold)(int, int) = get<void(int, int)>("fake_nccl_hold");
};
const FakeNccl& nccl() {
  static const FakeNccl one;
  return one;
}

const bp_collective* collective_of(const bp_driver* driver) {
  const bp_ext* group = nullptr;
  const int32_t status = driver->query_ext(driver->self, BP_COLLECTIVE_ID, BP_COLLECTIVE_VERSION, &group);
  CHECK(status == (group ? BP_OK : BP_UNSUPPORTED));
  return reinterpret_cast<const bp_collective*>(group);
}

/// An opened instance with communicators.
struct Ranks : Gpus {
  Ranks() : Gpus("nccl=" + nccl_path), g(*collective_of(d)) {}

  bp_comm_config config(int32_t rank, int32_t size, uint64_t timeout_ns = 5 * kSecond) const {
    bp_comm_config made{};
    made.struct_size = sizeof made;
    made.id = id;
    made.name = "the test's";
    made.timeout_ns = timeout_ns;
    made.rank = rank;
    made.size = size;
    return made;
  }
  /// As rank of size, on the device of that number.
  bp_comm* join(int32_t rank = 0, int32_t size = 1, uint64_t timeout_ns = 5 * kSecond) {
    if (rank == 0 && size == 1) make_id();
    const bp_comm_config made = config(rank, size, timeout_ns);
    bp_comm* comm = nullptr;
    OK(g.create(g.head.self, rank, &made, &comm));
    return comm;
  }
  /// Two ranks, which join from a thread each.
  void join_both(bp_comm* out[2], uint64_t timeout_ns = 5 * kSecond) {
    make_id();
    auto other = std::async(std::launch::async, [&] { return join(1, 2, timeout_ns); });
    out[0] = join(0, 2, timeout_ns);
    out[1] = other.get();
  }
  void make_id() { OK(g.make_id(g.head.self, 0, id)); }
  int32_t sum(bp_comm* comm, uint64_t at, uint64_t count = 1, bp_stream* stream = nullptr) {
    return g.all_reduce(g.head.self, comm, stream, at, at, count, BP_DTYPE_FLOAT32, BP_REDUCE_SUM);
  }
  int32_t state(bp_comm* comm, std::string* why = nullptr) {
    char text[200] = "";
    int32_t status = -1;
    OK(g.status(g.head.self, comm, &status, text, sizeof text));
    if (why) *why = text;
    return status;
  }
  int32_t destroy(bp_comm* comm, uint64_t timeout_ns = 5 * kSecond) { return g.destroy(g.head.self, comm, timeout_ns); }
  uint64_t number(float value, int32_t device = 0) {
    const uint64_t at = alloc(512, device);
    put(at, &value, sizeof value, device);
    return at;
  }
  float number_at(uint64_t at, int32_t device = 0) {
    float value = 0;
    std::memcpy(&value, take(at, sizeof value, device).data(), sizeof value);
    return value;
  }

  const bp_collective g;
  char id[128] = {};
};

/// What NCCL was asked since the record began, without the addresses of streams.
std::string calls() {
  std::string text = nccl().calls();
  for (size_t at = text.find(" stream "); at != std::string::npos; at = text.find(" stream ", at)) text.erase(at, text.find('\n', at) - at);
  return text;
}
void eventually(const std::string& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!has(nccl().calls(), call) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  HAS(std::string(nccl().calls()), call);
}

#define SAME(text, want)                                                                                                         \
  do {                                                                                                                           \
    const std::string text_ = text;                                                                                              \
    if (text_ != (want)) throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": it is\n" + text_); \
  } while (0)

// ---- what is loaded

void absent() {
  const auto told = [](const std::string& nccl_option, const char* why) {
    const bp_driver* driver = get(entry(), over_the_fake("nccl=" + nccl_option).c_str());
    CHECK(driver && !collective_of(driver));
    HAS(last_error_text(*driver), "bp.collective: ");
    HAS(last_error_text(*driver), why);
    const bp_ext* other = nullptr;  // the other groups are there
    OK(driver->query_ext(driver->self, BP_VMM_ID, BP_VMM_VERSION, &other));
    OK(driver->close(driver->self));
  };
  told("off", "nccl=off");
  told("/no/such/libnccl.so.2", "Looked for: /no/such/libnccl.so.2 (");
  told("libc.so.6", "it has no ncclGetVersion");
  setenv("FAKE_NCCL_VERSION", "21210", 1);
  told(nccl_path, "version 21210 is too old: 2.14 or newer is needed");
  unsetenv("FAKE_NCCL_VERSION");
}

void versions() {
  const auto flags = [](const char* version) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    Ranks r;
    unsetenv("FAKE_NCCL_VERSION");
    bp_comm* comm = r.join();
    const uint64_t at = r.alloc(512);
    bp_comm_memory* memory = nullptr;
    bp_comm* part = nullptr;
    const bp_comm_config config = r.config(0, 1);
    const int32_t split = r.g.split(r.g.head.self, comm, 0, &config, &part);
    const int32_t registered = r.g.memory_register(r.g.head.self, comm, at, 512, &memory);
    CHECK(split == (r.g.head.flags & BP_COLLECTIVE_SPLIT ? BP_OK : BP_UNSUPPORTED));
    CHECK(registered == (r.g.head.flags & BP_COLLECTIVE_REGISTER ? BP_OK : BP_UNSUPPORTED));
    if (registered == BP_OK) OK(r.g.memory_unregister(r.g.head.self, comm, memory));
    bp_collective_properties properties{};
    properties.struct_size = sizeof properties;
    OK(r.g.properties(r.g.head.self, 0, &properties));
    CHECK(properties.id_bytes == 128);
    return std::pair(r.g.head.flags & (BP_COLLECTIVE_SPLIT | BP_COLLECTIVE_REGISTER),
                     (properties.reduces[BP_REDUCE_SUM] & BP_DTYPE_FLOAT8_E4M3) != 0);
  };
  CHECK(flags("21405") == std::pair(0u, false));
  CHECK(flags("21805") == std::pair(BP_COLLECTIVE_SPLIT, false));
  CHECK(flags("22304") == std::pair(BP_COLLECTIVE_SPLIT | BP_COLLECTIVE_REGISTER, false));
  CHECK(flags("22403") == std::pair(BP_COLLECTIVE_SPLIT | BP_COLLECTIVE_REGISTER, true));
  setenv("FAKE_CUDA_CAPABILITY", "80", 1);  // a GPU that reduces no float8
  CHECK(!flags("22403").second);
  unsetenv("FAKE_CUDA_CAPABILITY");
}

// The name is in the config from the version on that reads it.
void configs() {
  for (const auto& [version, line] :
       {std::pair("22605", "ncclCommInitRankConfig 0 of 1, -\n"), std::pair("22703", "ncclCommInitRankConfig 0 of 1, the test's\n")}) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    Ranks r;
    unsetenv("FAKE_NCCL_VERSION");
    nccl().record();
    r.join();
    SAME(calls(), std::string("ncclGetUniqueId\n") + line);
  }
}

// ---- what is called

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

// What only moves goes as bytes; what NCCL lacks, as sends and receives.
void moves() {
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t in = r.alloc(512), out = r.alloc(512), eight = 8, zero = 0;
  void* self = r.g.head.self;
  nccl().record();
  OK(r.g.broadcast(self, comm, nullptr, out, in, 12, 0));
  OK(r.g.all_gather(self, comm, nullptr, out, in, 12));
  SAME(calls(), "ncclBroadcast count 12 dtype 1 root 0\nncclAllGather count 12 dtype 1\n");
  const std::string pair = "ncclGroupStart\nncclSend count 8 dtype 1 peer 0\nncclRecv count 8 dtype 1 peer 0\nncclGroupEnd\n";
  const auto is_pair = [&](const char* data, const std::function<int32_t()>& call) {
    r.put(in, data, 8);
    nccl().record();
    OK(call());
    SAME(calls(), pair);
    CHECK(std::memcmp(r.take(out, 8).data(), data, 8) == 0);
  };
  is_pair("one ....", [&] { return r.g.all_to_all(self, comm, nullptr, out, in, 8); });
  is_pair("two ....", [&] { return r.g.all_to_all_v(self, comm, nullptr, out, &eight, &zero, in, &eight, &zero); });
  is_pair("three ..", [&] { return r.g.gather(self, comm, nullptr, out, in, 8, 0); });
  is_pair("four ...", [&] { return r.g.scatter(self, comm, nullptr, out, in, 8, 0); });
  CHECK(r.g.barrier(self, comm, nullptr) == BP_UNSUPPORTED);
}

// Groups nest, and go out as one.
void groups() {
  Ranks r;
  bp_comm* comm = r.join();
  void* self = r.g.head.self;
  const uint64_t in = r.number(5), out = r.number(0);
  nccl().record();
  OK(r.g.group_begin(self));
  OK(r.g.all_to_all(self, comm, nullptr, out, in, 4));
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
  is_refused(r.g.gather(self, comm, nullptr, at, at, 8, 1), "root is 1, there are ranks 0 to 0");
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

// ---- two ranks

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

void both_ranks() {
  Ranks r;
  bp_comm* comms[2];
  r.join_both(comms);
  const uint64_t at[2] = {r.number(1, 0), r.number(10, 1)};
  bp_stream* streams[2] = {r.stream(0), r.stream(1)};
  OK(r.g.group_begin(r.g.head.self));
  for (int rank : {1, 0}) OK(r.sum(comms[rank], at[rank], 1, streams[rank]));
  OK(r.g.group_end(r.g.head.self));
  for (int rank : {0, 1}) {
    OK(r.d->stream_synchronize(r.self, rank, streams[rank], 5 * kSecond));
    CHECK(r.number_at(at[rank], rank) == 11);
  }
  // The other way round, into one communicator of both.
  bp_comm* parts[2] = {nullptr, nullptr};
  auto other = std::async(std::launch::async, [&] {
    const bp_comm_config config = r.config(0, 2);
    return r.g.split(r.g.head.self, comms[1], 4, &config, &parts[1]);
  });
  const bp_comm_config config = r.config(1, 2);
  OK(r.g.split(r.g.head.self, comms[0], 4, &config, &parts[0]));
  OK(other.get());
  const uint64_t own[2] = {r.number(3, 0), r.number(7, 1)};
  for (int rank : {0, 1}) OK(r.g.broadcast(r.g.head.self, parts[rank], streams[rank], own[rank], own[rank], 4, 0));
  for (int rank : {0, 1}) {
    OK(r.d->stream_synchronize(r.self, rank, streams[rank], 5 * kSecond));
    CHECK(r.number_at(own[rank], rank) == 7);
  }
  // Ranks that do not fit the part.
  auto wrong = std::async(std::launch::async, [&] {
    const bp_comm_config too_many = r.config(1, 3);
    bp_comm* part = nullptr;
    return r.g.split(r.g.head.self, comms[1], 0, &too_many, &part);
  });
  const bp_comm_config too_many = r.config(0, 3);
  bp_comm* part = nullptr;
  CHECK(r.g.split(r.g.head.self, comms[0], 0, &too_many, &part) == BP_INVALID_ARGUMENT);
  HAS(r.error(), "rank 0 of 2, config has rank 0 of 3");
  CHECK(wrong.get() == BP_INVALID_ARGUMENT && part == nullptr);
}

// An abort ends work that waits for a peer, and the peer's communicator.
void aborts() {
  Ranks r;
  bp_comm* comms[2];
  r.join_both(comms);
  bp_stream* stream = r.stream();
  const uint64_t at = r.number(1);
  OK(r.sum(comms[0], at, 1, stream));
  CHECK(r.d->stream_synchronize(r.self, 0, stream, 20'000'000) == BP_TIMEOUT);
  CHECK(r.destroy(comms[0], 1'000'000) == BP_TIMEOUT);
  CHECK(r.state(comms[0]) == BP_OK);
  nccl().record();
  std::thread([&] { OK(r.g.abort(r.g.head.self, comms[0])); }).join();
  OK(r.g.abort(r.g.head.self, comms[0]));
  OK(r.d->stream_synchronize(r.self, 0, stream, 5 * kSecond));
  std::string why;
  CHECK(r.state(comms[0], &why) == BP_INTERNAL);
  SAME(why, "the test's: it was aborted");
  CHECK(r.sum(comms[0], at) == BP_INTERNAL);
  HAS(r.error(), "the communicator has failed: the test's: it was aborted");
  CHECK(r.state(comms[1], &why) == BP_DEVICE_LOST);
  HAS(why, "the test's: NCCL: remote process exited (6): ");
  OK(r.destroy(comms[0]));
  OK(r.destroy(comms[1]));
  SAME(calls(), "ncclCommAbort\nncclCommAbort\n");  // one each
}

// ---- errors

void errors() {
  constexpr struct {
    int result;
    int32_t status;
  } meanings[] = {{ncclSystemError, BP_INTERNAL},
                  {ncclInternalError, BP_INTERNAL},
                  {ncclInvalidArgument, BP_INVALID_ARGUMENT},
                  {ncclInvalidUsage, BP_INVALID_ARGUMENT},
                  {99, BP_INTERNAL}};
  Ranks r;
  bp_comm* comm = r.join();
  const uint64_t at = r.number(1);
  for (const auto& [result, status] : meanings) {
    nccl().fail("ncclAllReduce", result);
    CHECK(r.sum(comm, at) == status);
    SAME(r.error(), "ncclAllReduce: some other error (" + std::to_string(result) + "): the test lets ncclAllReduce fail");
  }
  nccl().fail("ncclAllReduce", ncclUnhandledCudaError);
  CHECK(r.sum(comm, at) == BP_INTERNAL);  // of which CUDA itself knows nothing
  HAS(r.error(), "ncclAllReduce: unhandled cuda error (1): ");
  nccl().fail("ncclAllReduce", 0);
  nccl().fail("ncclGroupEnd", ncclSystemError);
  CHECK(r.g.all_to_all(r.g.head.self, comm, nullptr, at, at, 4) == BP_INTERNAL);
  HAS(r.error(), "ncclGroupEnd: ");
  nccl().fail("ncclGroupEnd", 0);
  nccl().fail("ncclGetUniqueId", ncclSystemError);
  CHECK(r.g.make_id(r.g.head.self, 0, r.id) == BP_INTERNAL);
  nccl().fail("ncclGetUniqueId", 0);
  nccl().fail("ncclCommInitRankConfig", ncclSystemError);
  bp_comm* other = nullptr;
  const bp_comm_config config = r.config(0, 1);
  CHECK(r.g.create(r.g.head.self, 0, &config, &other) == BP_INTERNAL && !other);
  nccl().fail("ncclCommInitRankConfig", 0);
  OK(r.sum(comm, at));
  // What the device has is told as the device's.
  fake().break_(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  nccl().fail("ncclAllReduce", ncclUnhandledCudaError);
  CHECK(r.sum(comm, at) == BP_FAULT);
  nccl().fail("ncclAllReduce", 0);
  std::string why;
  CHECK(r.state(comm, &why) == BP_INTERNAL);
  HAS(why, "device 0 is in error");
  OK(r.destroy(comm));
}

void failures_of_communicators() {
  constexpr struct {
    int result;
    int32_t status;
  } meanings[] = {
      {ncclRemoteError, BP_DEVICE_LOST}, {kNcclTimeout, BP_TIMEOUT}, {ncclSystemError, BP_INTERNAL}, {ncclInternalError, BP_INTERNAL}};
  for (const auto& [result, status] : meanings) {
    Ranks r;
    bp_comm* comm = r.join();
    nccl().record();
    nccl().break_(result, "a cable was pulled");
    std::string why;
    CHECK(r.state(comm, &why) == status);
    HAS(why, "(" + std::to_string(result) + "): a cable was pulled");
    eventually("ncclCommAbort");  // so that what is queued ends
    OK(r.g.abort(r.g.head.self, comm));
    CHECK(r.state(comm) == status);  // what it was first
    CHECK(r.sum(comm, r.number(1)) == BP_INTERNAL);
    OK(r.destroy(comm));
  }
}

// ---- what takes long

void peers_that_do_not_come() {
  Ranks r;
  r.make_id();
  const bp_comm_config config = r.config(0, 2, 30'000'000);
  bp_comm* comm = nullptr;
  nccl().record();
  CHECK(r.g.create(r.g.head.self, 0, &config, &comm) == BP_TIMEOUT && !comm);
  HAS(r.error(), "not all ranks came within 0.030 s");
  eventually("ncclCommAbort");
  // Ranks that NCCL connects in the first call.
  comm = r.join(0, 1, 30'000'000);
  nccl().hold(1, 0);
  CHECK(r.sum(comm, r.number(1)) == BP_TIMEOUT);
  HAS(r.error(), "ncclAllReduce: not all ranks came");
  CHECK(r.state(comm) == BP_TIMEOUT);
  nccl().hold(0, 0);
  OK(r.destroy(comm));
  comm = r.join();
  nccl().hold(1, 0);
  auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    OK(r.g.abort(r.g.head.self, comm));
  });
  CHECK(r.sum(comm, r.number(1)) == BP_INTERNAL);  // while it waits
  other.get();
  nccl().hold(0, 0);
  OK(r.destroy(comm));
}

// NCCL may wait for the other ranks of the machine in its last step: the caller does not.
void late_ranks() {
  Ranks r;
  bp_comm* comm = r.join();
  OK(r.sum(comm, r.number(1)));
  nccl().record();
  nccl().hold(0, 1);
  OK(r.destroy(comm, 50'000'000));
  CHECK(r.destroy(comm) == BP_INVALID_ARGUMENT);
  eventually("ncclCommDestroy");
  r.close();  // nor does this
  nccl().hold(0, 0);
}

// What is left at close is ended, also in the middle of work.
void left() {
  nccl().record();
  {
    Ranks r;
    bp_comm* comms[2];
    r.join_both(comms);
    OK(r.sum(comms[0], r.number(1), 1, r.stream()));
  }
  const std::string all = calls();
  CHECK(all.find("ncclCommAbort") != all.rfind("ncclCommAbort"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  driver_path = argv[1], fake_path = argv[2], nccl_path = argv[3];
  setenv("FAKE_CUDA", fake_path.c_str(), 1);
  report("absent", absent);
  report("versions", versions);
  report("configs", configs);
  report("life", life);
  report("reductions", reductions);
  report("moves", moves);
  report("groups", groups);
  report("refused", refused);
  report("captured", captured);
  report("both ranks", both_ranks);
  report("aborts", aborts);
  report("errors", errors);
  report("failures of communicators", failures_of_communicators);
  report("peers that do not come", peers_that_do_not_come);
  report("late ranks", late_ranks);
  report("left", left);
  return failures;
}
