// drivers/cuda/device.h: one GPU of an instance: its primary context from the first use on, its streams, and whether it has failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>

#include <backplane/driver.h>
#include <backplane/driver/cxx/captures.hpp>
#include <backplane/driver/cxx/live.hpp>

#include "library.h"

namespace backplane::driver::cuda {

/// What a bp_event is here.
struct Event {
  Event(CUevent of, bool between_processes) : native(of), point(between_processes) {}
  const CUevent native;
  EventPoint point;  // of the latest record
};

class Device {
 public:
  Device(const Library& cuda, int32_t ordinal);
  /// Destroys what is left, and gives the context back.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t ordinal() const { return ordinal_; }
  CUdevice handle() const { return handle_; }
  int attribute(Attribute which) const;

  /// The primary context, which the CUDA runtime of this process uses as well; retained at the first call.
  CUcontext context();
  CUcontext context_if_any() const { return context_.load(std::memory_order_acquire); }

  /// Throws the failure that the device has had, if any.
  void check_sound() const {
    if (failure_.load(std::memory_order_acquire) != BP_OK) throw_failure();
  }
  bool failed() const { return failure_.load(std::memory_order_acquire) != BP_OK; }

  /// Throws Error with what the result means, and keeps it if that is sticky. Of calls with this device's context.
  void check(CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) fail(result, call);
  }
  /// BP_OK or BP_PENDING, for queries; else as check().
  int32_t query(CUresult result, const char* call) {
    if (result == CUDA_ERROR_NOT_READY) return BP_PENDING;
    check(result, call);
    return BP_OK;
  }
  /// For what gives something back: nothing is thrown, and errors of a device that has failed are ignored.
  void note(CUresult result) noexcept;

  // Streams. NULL, the default one, is CUDA's legacy stream, which is also torch.cuda's default stream.
  CUstream make_stream(int priority);
  void destroy_stream(CUstream stream);
  /// Takes in a stream that others have made.
  void adopt(CUstream stream);
  bool knows(CUstream stream) const;
  /// BP_OK if all work of all of them is complete, else BP_PENDING.
  int32_t query_all();
  /// Waits for all work of the streams that are its own. For close, which no failure keeps from going on.
  void complete() noexcept;

  LiveHandles<Event*> events;

 private:
  [[noreturn]] void fail(CUresult result, const char* call);
  [[noreturn]] void throw_failure() const;
  void keep_failure(bp_status status, const std::string& text) noexcept;

  const Library& cuda_;
  const int32_t ordinal_;
  CUdevice handle_ = 0;
  std::atomic<CUcontext> context_{nullptr};
  std::atomic<int32_t> failure_{BP_OK};
  mutable std::mutex failure_mutex_;
  std::string failure_text_;
  mutable std::mutex mutex_;  // of the context's making and of the two sets; no callback takes it
  std::unordered_set<CUstream> own_, adopted_;
};

/// Makes a context the calling thread's current one, and puts back the one that others had there.
class Current {
 public:
  Current(const Library& cuda, CUcontext context) : cuda_(cuda) {
    cuda_.cuCtxGetCurrent(&before_);
    switched_ = before_ != context;
    if (switched_) cuda_.cuCtxSetCurrent(context);
  }
  ~Current() {
    // A thread without a context keeps ours: its next call is cheaper.
    if (switched_ && before_) cuda_.cuCtxSetCurrent(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Library& cuda_;
  CUcontext before_ = nullptr;
  bool switched_;
};

}  // namespace backplane::driver::cuda
