// acme.cpp: the imaginary chip: a queue is a thread that runs closures.
#include "acme.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace {
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t signalled = 0;
  int64_t time = 0;

  void signal(uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    signalled = std::max(signalled, number);
    time = std::chrono::steady_clock::now().time_since_epoch().count();
    changed.notify_all();
  }
  uint64_t latest() {
    const std::lock_guard<std::mutex> lock(mutex);
    return recorded;
  }
  bool wait(uint64_t number, uint64_t timeout_ns) {
    std::unique_lock<std::mutex> lock(mutex);
    const auto done = [&] { return signalled >= number; };
    if (timeout_ns == ACME_FOREVER) return changed.wait(lock, done), true;
    return changed.wait_for(lock, std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 1ull << 60)), done);
  }
};
}  // namespace

struct acme_fence {
  std::shared_ptr<State> state = std::make_shared<State>();  // queued work keeps it
};

struct acme_queue {
  struct Entry {
    std::function<void()> work;
    bool is_mark;
  };

  acme_queue() : worker([this] { run(); }) {}
  ~acme_queue() {
    push([this] { ended = true; });
    worker.join();
  }
  // A mark is no work: where it runs, all work before it is done.
  void push(std::function<void()> work, bool is_mark = false) {
    const std::lock_guard<std::mutex> lock(mutex);
    pending.push_back({std::move(work), is_mark});
    arrived.notify_one();
  }
  bool is_idle() {
    const std::lock_guard<std::mutex> lock(mutex);
    return pending.empty();
  }

 private:
  void run() {
    while (!ended) {
      std::unique_lock<std::mutex> lock(mutex);
      arrived.wait(lock, [this] { return !pending.empty(); });
      const Entry entry = std::move(pending.front());
      if (entry.is_mark) pending.pop_front();
      lock.unlock();
      entry.work();
      lock.lock();
      if (!entry.is_mark) pending.pop_front();
    }
  }

  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Entry> pending;
  bool ended = false;  // by the worker itself
  std::thread worker;
};

namespace {

acme_queue* on(acme_queue* queue) { return queue ? queue : acme_default_queue(); }

void move(char* dst, const char* src, uint32_t bytes, const acme_layout& layout, int64_t dim) {
  if (dim < 0) {
    std::memcpy(dst, src, bytes);
    return;
  }
  for (int64_t i = 0; i < layout.sizes[dim]; ++i) {
    move(dst + i * layout.dst_strides[dim], src + i * layout.src_strides[dim], bytes, layout, dim - 1);
  }
}

}  // namespace

void* acme_alloc(uint64_t bytes) { return std::aligned_alloc(512, (bytes / 512 + 1) * 512); }
void acme_free(void* memory) { std::free(memory); }

acme_queue* acme_queue_create(void) { return new acme_queue; }
void acme_queue_destroy(acme_queue* queue) { delete queue; }
acme_queue* acme_default_queue(void) {
  static acme_queue* const queue = new acme_queue;  // a process may end while it works
  return queue;
}

int acme_queue_idle(acme_queue* queue) { return on(queue)->is_idle(); }

acme_fence* acme_fence_create(void) { return new acme_fence; }
void acme_fence_destroy(acme_fence* fence) { delete fence; }
void acme_fence_record(acme_queue* queue, acme_fence* fence) {
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(fence->state->mutex);
    number = ++fence->state->recorded;
  }
  on(queue)->push([state = fence->state, number] { state->signal(number); }, /*is_mark=*/true);
}
void acme_fence_wait_on_queue(acme_queue* queue, acme_fence* fence) {
  on(queue)->push([state = fence->state, number = fence->state->latest()] { state->wait(number, ACME_FOREVER); });
}
int acme_fence_wait(acme_fence* fence, uint64_t timeout_ns) { return fence->state->wait(fence->state->latest(), timeout_ns); }
int64_t acme_fence_time(acme_fence* fence) {
  const std::lock_guard<std::mutex> lock(fence->state->mutex);
  return fence->state->time;
}

void acme_copy(acme_queue* queue, void* dst, const void* src, uint64_t bytes) {
  on(queue)->push([=] { std::memcpy(dst, src, bytes); });
}
void acme_fill(acme_queue* queue, void* dst, const void* pattern, uint32_t pattern_size, uint64_t count) {
  uint64_t element = 0;
  std::memcpy(&element, pattern, pattern_size);
  on(queue)->push([=] {
    for (uint64_t i = 0; i < count; ++i) std::memcpy(static_cast<char*>(dst) + i * pattern_size, &element, pattern_size);
  });
}
void acme_add(acme_queue* queue, float* out, const float* a, const float* b, float alpha, int64_t count) {
  on(queue)->push([=] {
    for (int64_t i = 0; i < count; ++i) out[i] = a[i] + alpha * b[i];
  });
}
void acme_relu(acme_queue* queue, float* out, const float* in, int64_t count) {
  on(queue)->push([=] {
    for (int64_t i = 0; i < count; ++i) out[i] = in[i] > 0 || in[i] != in[i] ? in[i] : 0;
  });
}
void acme_move(acme_queue* queue, void* dst, const void* src, uint32_t element_bytes, const acme_layout* layout) {
  on(queue)->push(
      [=, layout = *layout] { move(static_cast<char*>(dst), static_cast<const char*>(src), element_bytes, layout, layout.dims - 1); });
}
