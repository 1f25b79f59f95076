// tests/driver/engine_test/support.h: what the cases of engine_test.cpp share: the drivers in the program, streams that are held up.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/host_exec.h>
#include <backplane/driver/host_view.h>
#include <backplane/driver/peer.h>

#include "../instance.h"

namespace {

constexpr uint64_t kMs = 1000000;

/// A driver between emulate and another one: takes groups away, or asks for more care.
struct Filter {
  bp_driver table;
  const bp_driver* inner;
};

/// Holds a stream up until it is opened. The work runs on a separate thread, since an inline stream runs it on the caller's.
class Gate {
 public:
  Gate(Instance& instance, bp_stream* stream, int32_t device = 0) {
    submitter_ = std::thread([state = state_, &instance, stream, device] {
      instance.call(
          stream,
          [state](int32_t) {
            std::unique_lock lock(state->mutex);
            state->entered = true;
            state->changed.notify_all();
            state->changed.wait(lock, [&] { return state->open; });
          },
          device);
    });
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->entered; });
  }
  ~Gate() {
    open();
    submitter_.join();
  }
  void open() {
    std::lock_guard lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool entered = false, open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // a worker may look at it when the gate is gone
  std::thread submitter_;
};

}  // namespace
