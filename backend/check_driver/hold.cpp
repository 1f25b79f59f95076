// check_driver/hold.cpp: the gate (a host function that waits) and its substitute, a row of copies.
#include "hold.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace backplane::check {

struct Hold::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;
  bool expired = false;
};

namespace hold_impl {

using Clock = std::chrono::steady_clock;
constexpr auto longest = std::chrono::seconds(4);

constexpr char inline_streams[] = "inline streams: no work is ever pending";

int32_t wait_for_release(void* arg) {
  Hold::Gate& gate = **static_cast<std::shared_ptr<Hold::Gate>*>(arg);
  std::unique_lock lock(gate.mutex);
  if (!gate.changed.wait_for(lock, longest, [&] { return gate.released; })) gate.expired = true;
  return BP_OK;
}

void drop_gate(void* arg) { delete static_cast<std::shared_ptr<Hold::Gate>*>(arg); }

int32_t note_thread(void* arg) {
  *static_cast<std::thread::id*>(arg) = std::this_thread::get_id();
  return BP_OK;
}

int32_t wait_for(Context& c, int32_t device, bp_stream* stream) {
  const bp_driver& t = c.table();
  return t.stream_synchronize ? t.stream_synchronize(t.self, device, stream, BP_NO_TIMEOUT) : t.synchronize(t.self, device, BP_NO_TIMEOUT);
}

// True if a host function runs on the thread that queues it.
bool runs_inline(Context& c, const bp_host_exec& exec, int32_t device, bp_stream* stream) {
  std::thread::id id;
  c.expect(CALL_GROUP(exec, enqueue, device, stream, note_thread, &id, nullptr), BP_OK, "Queues fn(arg) on the stream");
  wait_for(c, device, stream);
  return id == std::this_thread::get_id();
}

}  // namespace hold_impl

Hold::Hold(Context& context, int32_t device, bp_stream* stream) : context_(context), device_(device), stream_(stream) {
  const std::optional<bp_host_exec> exec = context.host_exec();
  if (!exec) {
    queue_copies(stream);
    return;
  }
  if (hold_impl::runs_inline(context, *exec, device, stream)) throw NotOffered{hold_impl::inline_streams};
  gate_ = std::make_shared<Gate>();
  context.expect(
      CALL_GROUP(*exec, enqueue, device, stream, hold_impl::wait_for_release, new std::shared_ptr<Gate>(gate_), hold_impl::drop_gate),
      BP_OK, "Queues fn(arg) on the stream");
  not_waited_for("Queues fn(arg) on the stream");
}

Hold::~Hold() {
  release();
  if (timer_.joinable()) timer_.join();
}

void Hold::release() {
  if (!gate_) return;
  {
    std::lock_guard lock(gate_->mutex);
    gate_->released = true;
  }
  gate_->changed.notify_all();
}

void Hold::release_later() {
  if (!gate_) return;
  timer_ = std::thread([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    release();
  });
}

bool Hold::held() const {
  const bp_driver& t = context_.table();
  if (!gate_) return (marker_ ? t.event_query(t.self, device_, marker_) : t.stream_query(t.self, device_, stream_)) == BP_PENDING;
  std::lock_guard lock(gate_->mutex);
  return !gate_->released && !gate_->expired;
}

void Hold::not_waited_for(const char* rule) const {
  if (!gate_) return;
  std::lock_guard lock(gate_->mutex);
  if (gate_->expired) context_.fail(rule, std::string(traced_call()) + " returned only when the work before it on the stream had ended");
}

void Hold::queue_copies(bp_stream* stream) {
  Context& c = context_;
  const bp_driver& t = c.table();
  if (!t.copy_async) throw NotOffered{"no streams, so no work is ever pending"};
  uint64_t bytes = 16 << 20;
  const bp_device_properties& p = c.properties(device_);
  for (uint64_t limit : {p.total_memory / 16, p.max_allocation}) {
    if (limit) bytes = std::min(bytes, limit);
  }
  bytes -= bytes % c.unit(device_);
  const uint64_t from = c.alloc(device_, bytes), to = c.alloc(device_, bytes);
  const auto copy = [&] {
    c.expect(CALL(c, copy_async, device_, stream, to, device_, from, device_, bytes, 0u), BP_OK, rules::copy_async);
  };
  copy();  // the first one may set things up
  hold_impl::wait_for(c, device_, stream);
  // A copy that is done when the call returns, five times out of five: the streams run inline.
  hold_impl::Clock::duration done{};
  for (int attempt = 0, inline_copies = 0; attempt == inline_copies; ++attempt) {
    const auto start = hold_impl::Clock::now();
    copy();
    const auto called = hold_impl::Clock::now() - start;
    hold_impl::wait_for(c, device_, stream);
    done = hold_impl::Clock::now() - start;
    if (called * 10 > done * 8 && ++inline_copies == 5) throw NotOffered{hold_impl::inline_streams};
  }
  int64_t count = std::clamp<int64_t>(std::chrono::milliseconds(50) / std::max(done, hold_impl::Clock::duration(1)), 2, 4096);
  for (int attempt = 0; attempt < 3; ++attempt, count *= 4) {
    for (int64_t i = 0; i < count; ++i) copy();
    if (t.stream_query(t.self, device_, stream) != BP_PENDING) continue;
    if (t.event_create && t.event_create(t.self, device_, 0, &marker_) == BP_OK) t.event_record(t.self, device_, stream, marker_, 0u);
    return;
  }
  throw NotOffered{"no work could be kept pending long enough to look at it"};
}

}  // namespace backplane::check
