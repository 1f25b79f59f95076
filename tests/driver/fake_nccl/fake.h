// tests/driver/fake_nccl/fake.h: a libnccl.so.2 for machines without a GPU: what drivers/cuda calls, between processes, over the fake
// libcuda.so.1 that FAKE_CUDA names, with the simulator's communicators for what is computed. As strict as NCCL about the order of calls:
// while a communicator is busy with one no other is taken.
//
// Environment: FAKE_NCCL_VERSION (22900), FAKE_NCCL_LOG: a file that gets a line for each call, FAKE_NCCL_FAIL="ncclAllReduce=6": calls
// that fail. Functions for tests stand at the end of calls.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "../../../drivers/cuda/nccl_api.h"
#include "../../../drivers/sim/communicator.h"
#include "../fake_library.h"

/// A function of libnccl.so.2.
#define FAKE_NCCL(name, ...) extern "C" BP_EXPORT backplane::driver::cuda::ncclResult_t name(__VA_ARGS__)

namespace fake_nccl {

using namespace backplane::driver::cuda;
namespace sim = backplane::driver::sim;
using backplane::driver::Error;

// Their types are those that the driver calls.
#define DECLARE(name, ...) FAKE_NCCL(name, __VA_ARGS__);
BP_NCCL_FUNCTIONS(DECLARE)
BP_NCCL_NEWER_FUNCTIONS(DECLARE)
#undef DECLARE

/// A communicator as the thread that makes it, and those that end it, share it.
struct Comm {
  int rank = 0, size = 0;
  void* context = nullptr;  // that was current when it was made
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> dead{false};  // destroyed or aborted
  std::mutex mutex;               // over rendezvous
  std::shared_ptr<sim::Communicator> rendezvous;

  std::shared_ptr<sim::Communicator> met() {
    const std::lock_guard lock(mutex);
    return rendezvous;
  }
};
using Shared = std::shared_ptr<Comm>;

/// Work of one communicator on one stream: reductions of types that the simulator has not are made in float, `before` and `after` it.
struct Part {
  Shared comm;
  void* stream;
  sim::Batch batch;
  std::vector<std::function<void()>> before, after;
};

struct State {
  std::recursive_mutex mutex;  // over all that follows
  std::map<ncclComm_t, Shared> comms;
  std::vector<sim::File> made;  // where ids meet
  std::map<std::string, ncclResult_t> failures;
  std::string calls, last_error;
  bool recording = false, holds_calls = false, holds_destroy = false;
};
State& state();

/// Records a call, and returns the failure that was asked for.
ncclResult_t enter(const char* name, const std::string& arguments);
/// The same of a communicator that must be live and, but for `busy_too`, not in the middle of another call.
ncclResult_t enter(const char* name, const std::string& arguments, ncclComm_t comm, Shared* out, bool busy_too = false);
ncclResult_t refuse(ncclResult_t result, const std::string& why);
/// Runs body on a separate thread, with the communicator's context; what it throws is the communicator's state, else `success`.
void in_background(const Shared& comm, std::function<void()> body);

/// Returns when what fake_nccl_hold holds up is let go.
void pass(const bool State::* held);

/// Adds a call to the thread's group, or makes one of it alone.
ncclResult_t add(const Shared& comm, void* stream, const std::function<void(Part&)>& fill);

}  // namespace fake_nccl
