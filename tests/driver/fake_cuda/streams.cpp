// tests/driver/fake_cuda/streams.cpp: streams as threads, events as numbered records, and the work between them.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>

#include "fake.h"

namespace backplane::driver::cuda {
namespace {

int64_t now() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool live(CUevent event) {
  const std::lock_guard lock(state().mutex);
  return state().events.count(event) != 0;
}

/// Queues work that is skipped after a failure.
CUresult queue(StreamObject& stream, std::function<void()> work) {
  return submit(stream, [work = std::move(work)](CUresult error) {
    if (error == CUDA_SUCCESS) work();
  });
}

template <class T>
CUresult set_all(StreamObject* stream, CUdeviceptr dst, T value, size_t count) {
  if (dst % sizeof(T) != 0 || (count && !on_device(dst, count * sizeof(T)))) return CUDA_ERROR_INVALID_VALUE;
  return queue(*stream, [=] { std::fill_n(reinterpret_cast<T*>(dst), count, value); });
}

CUresult copy_bytes(StreamObject* stream, uint64_t dst, uint64_t src, size_t bytes) {
  return queue(*stream, [=] { std::memcpy(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes); });
}

}  // namespace

StreamObject::~StreamObject() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StreamObject::push(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

bool StreamObject::idle() {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && !busy_;
}

void StreamObject::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
}

void StreamObject::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !jobs_.empty() || ending_; });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    job(context.error);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

CUresult stream_of(CUstream handle, StreamObject** out) {
  ContextObject* context = nullptr;
  if (const CUresult result = current(&context)) return result;
  const std::lock_guard lock(state().mutex);
  if (!handle) return *out = context->legacy.get(), CUDA_SUCCESS;
  if (!context->streams.count(handle)) return CUDA_ERROR_INVALID_HANDLE;
  *out = handle;
  return CUDA_SUCCESS;
}

FAKE(cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority) {
  ENTER_CONTEXT();
  record("  flags " + std::to_string(flags) + " priority " + std::to_string(priority));
  auto made = std::make_unique<StreamObject>(*context);
  const std::lock_guard lock(state().mutex);
  *stream = made.get();
  context->streams.emplace(made.get(), std::move(made));
  return CUDA_SUCCESS;
}

FAKE(cuStreamDestroy_v2, CUstream stream) {
  ENTER();
  std::unique_ptr<StreamObject> ended;  // outside the lock: its thread may need it
  const std::lock_guard lock(state().mutex);
  for (auto& context : state().contexts) {
    if (const auto found = context->streams.find(stream); found != context->streams.end()) {
      if (const CUresult result = refuse_captured(*stream)) return result;
      ended = std::move(found->second);
      context->streams.erase(found);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

FAKE(cuStreamQuery, CUstream stream) {
  ENTER_STREAM(stream);
  if (const CUresult result = refuse_captured(*on)) return result;
  const bool idle = on->idle();
  if (const CUresult error = context->error) return error;
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FAKE(cuStreamSynchronize, CUstream stream) {
  ENTER();
  ContextObject* context = nullptr;
  StreamObject* on = nullptr;
  const CUresult broken = current(&context);
  if (!context) return broken;
  {
    const std::lock_guard lock(state().mutex);
    on = !stream ? context->legacy.get() : context->streams.count(stream) ? stream : nullptr;
  }
  if (!on) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = refuse_captured(*on)) return result;
  on->wait();
  return context->error;
}

FAKE(cuStreamGetCtx, CUstream stream, CUcontext* context) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  for (auto& one : state().contexts) {
    if (one->streams.count(stream)) return *context = one.get(), CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

FAKE(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void* arg, unsigned) {
  ENTER_STREAM(stream);
  if (const CUresult result = refuse_captured(*on)) return result;
  on->push([=](CUresult error) { callback(stream, error, arg); });
  return CUDA_SUCCESS;
}

EventObject* make_event(ContextObject& context, unsigned flags, int file) {
  auto made = std::make_unique<EventObject>(EventObject{&context, flags, file >= 0, file, nullptr, 0, {}});
  if (flags & CU_EVENT_INTERPROCESS) {
    void* page = map_file(&made->file, sizeof(Records));
    if (!page) return nullptr;
    const int shared = made->file;
    made->records = std::shared_ptr<Records>(static_cast<Records*>(page), [shared](Records* records) {
      munmap(static_cast<void*>(records), sizeof(Records));
      close(shared);
    });
  } else {
    made->records = std::shared_ptr<Records>(new Records());
  }
  const std::lock_guard lock(state().mutex);
  return *state().events.insert(made.release()).first;
}

FAKE(cuEventCreate, CUevent* event, unsigned flags) {
  ENTER_CONTEXT();
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  *event = make_event(*context, flags, -1);
  return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE(cuEventDestroy_v2, CUevent event) {
  ENTER();
  const std::lock_guard lock(state().mutex);
  if (state().events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

FAKE(cuEventRecord, CUevent event, CUstream stream) {
  ENTER_STREAM(stream);
  if (!live(event) || event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result; record_captured(*on, *event, &result)) return result;
  const auto records = event->records;
  const uint64_t number = records->asked.fetch_add(1) + 1;
  on->push([records, number](CUresult) {
    records->time[number % Records::kKept] = now();
    records->done[number % Records::kKept] = number;
  });
  return CUDA_SUCCESS;
}

FAKE(cuEventQuery, CUevent event) {
  ENTER_CONTEXT();
  if (!live(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = refuse_captured(*event)) return result;
  const bool complete = event->records->complete(event->records->asked);
  if (const CUresult error = context->error) return error;
  return complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FAKE(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags) {
  ENTER_STREAM(stream);
  if (!live(event) || flags != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result; wait_captured(*on, *event, &result)) return result;
  const auto records = event->records;
  return queue(*on, [records, number = records->asked.load()] {
    while (!records->complete(number)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
}

FAKE(cuEventElapsedTime, float* milliseconds, CUevent start, CUevent end) {
  ENTER_CONTEXT();
  int64_t times[2];
  for (const CUevent event : {start, end}) {
    if (!live(event) || (event->flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = refuse_captured(*event)) return result;
    if (event->records->asked == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  for (const CUevent event : {start, end}) {
    const uint64_t last = event->records->asked;
    if (!event->records->complete(last)) return CUDA_ERROR_NOT_READY;
    times[event == end] = event->records->time[last % Records::kKept];
  }
  *milliseconds = static_cast<float>(static_cast<double>(start == end ? 0 : times[1] - times[0]) * 1e-6);
  return CUDA_SUCCESS;
}

FAKE(cuMemcpyHtoDAsync_v2, CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  ENTER_STREAM(stream);
  return on_device(dst, bytes) ? copy_bytes(on, dst, reinterpret_cast<uint64_t>(src), bytes) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemcpyDtoHAsync_v2, void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  ENTER_STREAM(stream);
  return on_device(src, bytes) ? copy_bytes(on, reinterpret_cast<uint64_t>(dst), src, bytes) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemcpyDtoDAsync_v2, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  ENTER_STREAM(stream);
  return on_device(dst, bytes) && on_device(src, bytes) ? copy_bytes(on, dst, src, bytes) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemcpyPeerAsync, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, CUstream stream) {
  ENTER_STREAM(stream);
  if (!dst_context || !src_context || dst_context->retained == 0 || src_context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return on_device(dst, bytes) && on_device(src, bytes) ? copy_bytes(on, dst, src, bytes) : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemsetD8Async, CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  ENTER_STREAM(stream);
  return set_all(on, dst, value, count);
}

FAKE(cuMemsetD16Async, CUdeviceptr dst, unsigned short value, size_t count, CUstream stream) {
  ENTER_STREAM(stream);
  return set_all(on, dst, value, count);
}

FAKE(cuMemsetD32Async, CUdeviceptr dst, unsigned value, size_t count, CUstream stream) {
  ENTER_STREAM(stream);
  return set_all(on, dst, value, count);
}

FAKE(cuMemsetD2D32Async, CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream) {
  ENTER_STREAM(stream);
  if (pitch < width * 4 || !on_device(dst, (height - 1) * pitch + width * 4)) return CUDA_ERROR_INVALID_VALUE;
  return queue(*on, [=] {
    for (size_t row = 0; row < height; ++row) std::fill_n(reinterpret_cast<unsigned*>(dst + row * pitch), width, value);
  });
}

}  // namespace backplane::driver::cuda
