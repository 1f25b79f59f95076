// drivers/cuda/device.cpp: contexts, streams and failures of one GPU.
#include "device.h"

#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/table.hpp>

namespace backplane::driver::cuda {

Device::Device(const Library& cuda, int32_t ordinal)
    : events([&cuda](Event* event) {
        cuda.cuEventDestroy_v2(event->native);
        delete event;
      }),
      cuda_(cuda),
      ordinal_(ordinal) {
  cuda_.check(cuda_.cuDeviceGet(&handle_, ordinal), "cuDeviceGet");
}

Device::~Device() {
  CUcontext context = context_if_any();
  if (!context) return;
  {
    const Current current(cuda_, context);
    events.destroy_all();
    for (CUstream stream : own_) cuda_.cuStreamDestroy_v2(stream);
  }
  cuda_.cuDevicePrimaryCtxRelease_v2(handle_);
  // Where nobody else holds it the context is gone, and the thread must not keep it.
  unsigned flags = 0;
  int active = 0;
  CUcontext now = nullptr;
  cuda_.cuDevicePrimaryCtxGetState(handle_, &flags, &active);
  if (!active && cuda_.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context) cuda_.cuCtxSetCurrent(nullptr);
}

int Device::attribute(Attribute which) const {
  int value = 0;
  cuda_.check(cuda_.cuDeviceGetAttribute(&value, which, handle_), "cuDeviceGetAttribute");
  return value;
}

CUcontext Device::context() {
  if (CUcontext known = context_if_any()) return known;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (CUcontext known = context_if_any()) return known;
  CUcontext context = nullptr;
  cuda_.check(cuda_.cuDevicePrimaryCtxRetain(&context, handle_), "cuDevicePrimaryCtxRetain");
  context_.store(context, std::memory_order_release);
  return context;
}

void Device::keep_failure(bp_status status, const std::string& text) noexcept {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  if (failure_.load() != BP_OK) return;
  failure_text_ = text;
  failure_.store(status, std::memory_order_release);
}

void Device::fail(CUresult result, const char* call) {
  const bp_status status = status_of(result);
  const std::string text = cuda_.text(call, result);
  if (is_sticky(status)) keep_failure(status, "device " + std::to_string(ordinal_) + " has failed: " + text);
  throw Error(status, text);
}

void Device::note(CUresult result) noexcept {
  const bp_status status = status_of(result);
  if (is_sticky(status)) keep_failure(status, "device " + std::to_string(ordinal_) + " has failed: " + cuda_.text("a release", result));
}

void Device::throw_failure() const {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  throw Error(static_cast<bp_status>(failure_.load()), failure_text_);
}

CUstream Device::make_stream(int priority) {
  CUstream stream = nullptr;
  check(cuda_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority), "cuStreamCreateWithPriority");
  const std::lock_guard<std::mutex> lock(mutex_);
  own_.insert(stream);
  return stream;
}

void Device::destroy_stream(CUstream stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!own_.count(stream)) throw Error(BP_INVALID_ARGUMENT, "stream_destroy: no live stream of this device");
  }
  note(cuda_.cuStreamSynchronize(stream));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (own_.erase(stream) != 0) cuda_.cuStreamDestroy_v2(stream);
}

void Device::adopt(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  adopted_.insert(stream);
}

bool Device::knows(CUstream stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return own_.count(stream) != 0 || adopted_.count(stream) != 0;
}

void Device::complete() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  cuda_.cuStreamSynchronize(nullptr);
  for (CUstream stream : own_) cuda_.cuStreamSynchronize(stream);
}

int32_t Device::query_all() {
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result = cuda_.cuStreamQuery(nullptr);
    for (const auto* set : {&own_, &adopted_}) {
      for (auto stream = set->begin(); stream != set->end() && result == CUDA_SUCCESS; ++stream) result = cuda_.cuStreamQuery(*stream);
    }
  }
  return query(result, "cuStreamQuery");
}

}  // namespace backplane::driver::cuda
