// tests/driver/fake_nccl/calls.cpp: groups, what NCCL computes, and what tests ask of the fake.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../../../drivers/sim/reduce.h"
#include "fake.h"

namespace fake_nccl {
namespace {

using backplane::driver::format;

struct Dtype {
  uint64_t dtype, bytes;
  int exponent, fraction;  // bits of a float8
};
// [ncclDataType_t]
constexpr Dtype kDtypes[] = {{BP_DTYPE_INT8, 1, 0, 0},        {BP_DTYPE_UINT8, 1, 0, 0},
                             {BP_DTYPE_INT32, 4, 0, 0},       {},
                             {BP_DTYPE_INT64, 8, 0, 0},       {},
                             {BP_DTYPE_FLOAT16, 2, 0, 0},     {BP_DTYPE_FLOAT32, 4, 0, 0},
                             {BP_DTYPE_FLOAT64, 8, 0, 0},     {BP_DTYPE_BFLOAT16, 2, 0, 0},
                             {BP_DTYPE_FLOAT8_E4M3, 1, 4, 3}, {BP_DTYPE_FLOAT8_E5M2, 1, 5, 2}};
// [ncclRedOp_t]
constexpr int32_t kOps[] = {BP_REDUCE_SUM, BP_REDUCE_PRODUCT, BP_REDUCE_MAX, BP_REDUCE_MIN, BP_REDUCE_AVG};

// Normal numbers and 0 alone.
float from_float8(const Dtype& d, uint8_t bits) {
  const int bias = (1 << (d.exponent - 1)) - 1, exponent = (bits & 0x7f) >> d.fraction, fraction = bits & ((1 << d.fraction) - 1);
  if ((bits & 0x7f) == 0) return 0;
  const float magnitude = std::ldexp(1.0f + std::ldexp(static_cast<float>(fraction), -d.fraction), exponent - bias);
  return bits & 0x80 ? -magnitude : magnitude;
}
uint8_t to_float8(const Dtype& d, float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent) * 2 - 1;
  const int bias = (1 << (d.exponent - 1)) - 1;
  const int bits = ((exponent - 1 + bias) << d.fraction) + static_cast<int>(std::lround(std::ldexp(fraction, d.fraction)));
  return static_cast<uint8_t>(bits | (value < 0 ? 0x80 : 0));
}

struct Group {
  int depth = 0;
  std::vector<Part> parts;
  ncclResult_t error = ncclSuccess;
};
thread_local Group group;

/// Queues a group's work on its streams. As NCCL, on another thread, while its communicators are busy.
ncclResult_t launch(std::vector<Part> parts) {
  if (parts.empty()) return ncclSuccess;
  for (Part& part : parts) part.comm->state = ncclInProgress;
  for (Part& part : parts) {
    auto work = std::make_shared<Part>(std::move(part));
    const auto rendezvous = work->comm->met();
    const uint64_t turn = rendezvous->take_turn();
    in_background(work->comm, [work, rendezvous, turn] {
      pass(&State::holds_calls);
      const auto run = [work, rendezvous, turn](int error) {
        if (error) rendezvous->abort();
        for (const auto& one : work->before) one();
        rendezvous->run(work->batch, turn);
        for (const auto& one : work->after) one();
      };
      using Run = decltype(run);
      const auto add = fake::cuda<int(void*, void (*)(void*, int, void*), const void*, unsigned)>("cuStreamAddCallback");
      const auto call = [](void*, int error, void* arg) {
        const std::unique_ptr<Run> owned(static_cast<Run*>(arg));
        (*owned)(error);
      };
      if (add(work->stream, call, new Run(run), 0) != 0) throw Error(BP_INVALID_ARGUMENT, "the stream takes no work");
    });
  }
  return ncclInProgress;
}

ncclResult_t reduction(const char* name, sim::Collective kind, const void* in, void* out, size_t count, int dtype, int op, int root,
                       ncclComm_t handle, CUstream stream) {
  Shared comm;
  const std::string arguments = format(" count %zu dtype %d op %d", count, dtype, op) + (root < 0 ? "" : format(" root %d", root)) +
                                format(" stream %p", static_cast<void*>(stream));
  if (const ncclResult_t result = enter(name, arguments, handle, &comm)) return result;
  if (dtype < 0 || dtype > ncclFloat8e5m2 || kDtypes[dtype].bytes == 0 || op < 0 || op > ncclAvg)
    return refuse(ncclInvalidArgument, "no such type");
  const Dtype& d = kDtypes[dtype];
  const int32_t reduce = kOps[op];
  return add(comm, stream, [&](Part& part) {
    if (d.exponent == 0) {
      const sim::Call call{static_cast<uint32_t>(kind), reduce, d.dtype, count, root};
      part.batch.exchanges.push_back(sim::Exchange(call, static_cast<const char*>(in), static_cast<char*>(out)));
      return;
    }
    const size_t inputs = count * (kind == sim::Collective::reduce_scatter ? static_cast<size_t>(comm->size) : 1);
    auto given = std::make_shared<std::vector<float>>(inputs), got = std::make_shared<std::vector<float>>(count);
    const bool writes = root < 0 || root == comm->rank;
    part.before.push_back([=] {
      for (size_t i = 0; i < inputs; ++i) (*given)[i] = from_float8(d, static_cast<const uint8_t*>(in)[i]);
    });
    part.after.push_back([=] {
      for (size_t i = 0; writes && i < count; ++i) static_cast<uint8_t*>(out)[i] = to_float8(d, (*got)[i]);
    });
    const sim::Call call{static_cast<uint32_t>(kind), reduce, BP_DTYPE_FLOAT32, count, root};
    part.batch.exchanges.push_back(sim::Exchange(call, reinterpret_cast<const char*>(given->data()), reinterpret_cast<char*>(got->data())));
  });
}

ncclResult_t move(const char* name, sim::Collective kind, const void* in, void* out, size_t count, int dtype, int root, ncclComm_t handle,
                  CUstream stream) {
  Shared comm;
  const std::string arguments = format(" count %zu dtype %d", count, dtype) + (root < 0 ? "" : format(" root %d", root)) +
                                format(" stream %p", static_cast<void*>(stream));
  if (const ncclResult_t result = enter(name, arguments, handle, &comm)) return result;
  return add(comm, stream, [&](Part& part) {
    const sim::Call call{static_cast<uint32_t>(kind), 0, 0, count * kDtypes[dtype].bytes, root};
    part.batch.exchanges.push_back(sim::Exchange(call, static_cast<const char*>(in), static_cast<char*>(out)));
  });
}

ncclResult_t message(const char* name, bool sends, void* data, size_t count, int dtype, int peer, ncclComm_t handle, CUstream stream) {
  Shared comm;
  const std::string arguments = format(" count %zu dtype %d peer %d stream %p", count, dtype, peer, static_cast<void*>(stream));
  if (const ncclResult_t result = enter(name, arguments, handle, &comm)) return result;
  return add(comm, stream, [&](Part& part) {
    const sim::Collective kind = sends ? sim::Collective::send : sim::Collective::recv;
    part.batch.messages.push_back({kind, sends, peer, static_cast<char*>(data), count * kDtypes[dtype].bytes});
  });
}

}  // namespace

State& state() {
  static State* const one = [] {
    auto* made = new State;
    const std::string text = std::getenv("FAKE_NCCL_FAIL") ? std::getenv("FAKE_NCCL_FAIL") : "";
    const size_t equals = text.find('=');
    if (equals != std::string::npos) made->failures[text.substr(0, equals)] = std::atoi(text.c_str() + equals + 1);
    return made;
  }();
  return *one;
}

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  const std::lock_guard lock(state().mutex);
  state().last_error = why;
  return result;
}

ncclResult_t enter(const char* name, const std::string& arguments) {
  const std::lock_guard lock(state().mutex);
  if (state().recording) state().calls += name + arguments + "\n";
  fake::log("FAKE_NCCL_LOG", "%s%s\n", name, arguments.c_str());
  const auto found = state().failures.find(name);
  if (found == state().failures.end()) return ncclSuccess;
  return refuse(found->second, std::string("the test lets ") + name + " fail");
}

ncclResult_t enter(const char* name, const std::string& arguments, ncclComm_t comm, Shared* out, bool busy_too) {
  if (const ncclResult_t result = enter(name, arguments)) return result;
  const std::lock_guard lock(state().mutex);
  const auto found = state().comms.find(comm);
  if (found == state().comms.end() || found->second->dead)
    return refuse(ncclInvalidArgument, std::string(name) + " of a communicator that is gone");
  if (!busy_too && found->second->state == ncclInProgress)
    return refuse(ncclInvalidUsage, std::string(name) + " of a communicator that is busy");
  *out = found->second;
  return ncclSuccess;
}

void pass(const bool State::* held) {
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const std::lock_guard lock(state().mutex);
    if (!(state().*held)) return;
  }
}

void in_background(const Shared& comm, std::function<void()> body) {
  std::thread([comm, body = std::move(body)] {
    fake::cuda<int(void*)>("cuCtxSetCurrent")(comm->context);
    ncclResult_t result = ncclSuccess;
    try {
      body();
    } catch (const Error& error) {
      result = refuse(error.status() == BP_INVALID_ARGUMENT ? ncclInvalidArgument
                      : error.status() == BP_INTERNAL       ? ncclRemoteError
                                                            : ncclSystemError,
                      error.what());
    }
    comm->state = result;
  }).detach();
}

ncclResult_t add(const Shared& comm, void* stream, const std::function<void(Part&)>& fill) {
  const bool alone = group.depth == 0;
  auto part =
      std::find_if(group.parts.begin(), group.parts.end(), [&](const Part& one) { return one.comm == comm && one.stream == stream; });
  if (part == group.parts.end()) part = group.parts.insert(part, Part{comm, stream, {}, {}, {}});
  fill(*part);
  return alone ? launch(std::exchange(group.parts, {})) : ncclSuccess;
}

FAKE_NCCL(ncclGroupStart) {
  if (const ncclResult_t result = enter("ncclGroupStart", "")) return result;
  ++group.depth;
  return ncclSuccess;
}

FAKE_NCCL(ncclGroupEnd) {
  const ncclResult_t result = enter("ncclGroupEnd", "");
  if (group.depth == 0) return refuse(ncclInvalidUsage, "no group was begun");
  if (--group.depth != 0) return result;
  auto parts = std::exchange(group.parts, {});
  return result ? result : launch(std::move(parts));
}

FAKE_NCCL(ncclAllReduce, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return reduction("ncclAllReduce", sim::Collective::all_reduce, in, out, count, dtype, op, -1, comm, stream);
}
FAKE_NCCL(ncclReduce, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root, ncclComm_t comm,
          CUstream stream) {
  return reduction("ncclReduce", sim::Collective::reduce, in, out, count, dtype, op, root, comm, stream);
}
FAKE_NCCL(ncclReduceScatter, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
          CUstream stream) {
  return reduction("ncclReduceScatter", sim::Collective::reduce_scatter, in, out, count, dtype, op, -1, comm, stream);
}
FAKE_NCCL(ncclBroadcast, const void* in, void* out, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm, CUstream stream) {
  return move("ncclBroadcast", sim::Collective::broadcast, in, out, count, dtype, root, comm, stream);
}
FAKE_NCCL(ncclAllGather, const void* in, void* out, size_t count, ncclDataType_t dtype, ncclComm_t comm, CUstream stream) {
  return move("ncclAllGather", sim::Collective::all_gather, in, out, count, dtype, -1, comm, stream);
}
FAKE_NCCL(ncclSend, const void* in, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, CUstream stream) {
  return message("ncclSend", true, const_cast<void*>(in), count, dtype, peer, comm, stream);
}
FAKE_NCCL(ncclRecv, void* out, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, CUstream stream) {
  return message("ncclRecv", false, out, count, dtype, peer, comm, stream);
}

FAKE_NCCL(ncclGetVersion, int* version) {
  const char* text = std::getenv("FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22900;
  return ncclSuccess;
}

extern "C" BP_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "unhandled cuda error"
         : result == ncclRemoteError      ? "remote process exited"
                                          : "some other error";
}
extern "C" BP_EXPORT const char* ncclGetLastError(ncclComm_t) {
  static thread_local std::string text;
  const std::lock_guard lock(state().mutex);
  text = state().last_error;
  return text.c_str();
}

// ---- for tests

/// Records a line for each call from now on, and forgets those before.
extern "C" BP_EXPORT void fake_nccl_record() {
  const std::lock_guard lock(state().mutex);
  state().recording = true;
  state().calls.clear();
}
/// The lines since then.
extern "C" BP_EXPORT const char* fake_nccl_calls() {
  static thread_local std::string text;
  const std::lock_guard lock(state().mutex);
  text = state().calls;
  return text.c_str();
}
/// Lets calls of a function fail; 0: no more.
extern "C" BP_EXPORT void fake_nccl_fail(const char* name, int result) {
  const std::lock_guard lock(state().mutex);
  result ? state().failures[name] = result : state().failures.erase(name);
}
/// What ncclCommGetAsyncError reports for all communicators from now on.
extern "C" BP_EXPORT void fake_nccl_break(int result, const char* why) {
  const std::lock_guard lock(state().mutex);
  state().last_error = why;
  for (auto& [handle, comm] : state().comms) comm->state = result;
}
/// Holds up work that is to be queued, as NCCL does that has ranks to connect; and ncclCommDestroy, as where another rank of the machine is
/// late.
extern "C" BP_EXPORT void fake_nccl_hold(int calls, int destroy) {
  const std::lock_guard lock(state().mutex);
  state().holds_calls = calls != 0;
  state().holds_destroy = destroy != 0;
}

}  // namespace fake_nccl
