// check_driver/busy_stream.cpp: the gate (a host function that waits) and its substitute, a series of copies.
#include "busy_stream.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace backplane::check {

struct BusyStream::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;
  bool expired = false;
};

namespace busy_stream_impl {

using Clock = std::chrono::steady_clock;
constexpr auto longest = std::chrono::seconds(4);

constexpr char not_held[] = "could not be held: ";

int attempt = 0;

// How long copies are to last when the last of them has been queued. The second attempt is longer than any machine keeps a thread waiting.
std::chrono::milliseconds wanted() { return std::chrono::milliseconds(attempt == 0 ? 80 : 500); }

int32_t wait_for_release(void* arg) {
  BusyStream::Gate& gate = **static_cast<std::shared_ptr<BusyStream::Gate>*>(arg);
  std::unique_lock lock(gate.mutex);
  if (!gate.changed.wait_for(lock, longest, [&] { return gate.released; })) gate.expired = true;
  return BP_OK;
}

void drop_gate(void* arg) { delete static_cast<std::shared_ptr<BusyStream::Gate>*>(arg); }

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

}  // namespace busy_stream_impl

BusyStream::BusyStream(Context& context, int32_t device, bp_stream* stream) : context_(context), device_(device), stream_(stream) {
  const std::optional<bp_host_exec> exec = context.group<bp_host_exec>();
  if (!exec) {
    queue_copies();
    return;
  }
  if (busy_stream_impl::runs_inline(context, *exec, device, stream)) {
    throw NotRun{std::string(busy_stream_impl::not_held) + "host functions run inside enqueue"};
  }
  gate_ = std::make_shared<Gate>();
  context.expect(CALL_GROUP(*exec, enqueue, device, stream, busy_stream_impl::wait_for_release, new std::shared_ptr<Gate>(gate_),
                            busy_stream_impl::drop_gate),
                 BP_OK, "Queues fn(arg) on the stream");
  not_waited_for("Queues fn(arg) on the stream");
}

BusyStream::~BusyStream() {
  release();
  if (timer_.joinable()) timer_.join();
}

void BusyStream::release() {
  if (!gate_) return;
  {
    std::lock_guard lock(gate_->mutex);
    gate_->released = true;
  }
  gate_->changed.notify_all();
}

void BusyStream::release_later() {
  if (!gate_) return;
  timer_ = std::thread([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    release();
  });
}

bool BusyStream::held() const {
  if (!gate_) {
    const bool pending = ask() == BP_PENDING;
    if (pending) last_seen_ = busy_stream_impl::Clock::now();
    return pending;
  }
  std::lock_guard lock(gate_->mutex);
  return !gate_->released && !gate_->expired;
}

int32_t BusyStream::ask() const {
  const bp_driver& t = context_.table();
  return marker_ ? t.event_query(t.self, device_, marker_) : t.stream_query(t.self, device_, stream_);
}

void BusyStream::not_waited_for(const char* rule) const {
  const auto waited = [&] {
    context_.fail(rule, std::string(traced_call()) + " returned only when the work before it on the stream had ended");
  };
  if (!gate_) {
    const auto before_the_call = last_seen_;
    if (held()) return;
    if (busy_stream_impl::attempt > 0 && (busy_stream_impl::Clock::now() - before_the_call) * 2 > busy_stream_impl::wanted()) waited();
    ended();
  }
  std::lock_guard lock(gate_->mutex);
  if (gate_->expired) waited();
}

void BusyStream::still_held() const {
  if (!gate_ && !held()) ended();
}

void BusyStream::ended() const {
  if (busy_stream_impl::attempt > 0) {
    // A wait that takes longer shows that the answer was wrong.
    const auto start = busy_stream_impl::Clock::now();
    busy_stream_impl::wait_for(context_, device_, stream_);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(busy_stream_impl::Clock::now() - start);
    if (took * 2 > busy_stream_impl::wanted()) {
      context_.fail(rules::query, format("%s said that the copies before it were complete, and they went on for %lld ms",
                                         marker_ ? "event_query" : "stream_query", wide(took.count())));
    }
  }
  throw NotRun{std::string(busy_stream_impl::not_held) + "the copies on the stream had ended before they could be looked at", true};
}

void set_hold_attempt(int attempt) { busy_stream_impl::attempt = attempt; }

namespace busy_stream_impl {

// Copies that last, queued one behind the other; a count of 0 if none do.
struct Row {
  uint64_t bytes = 0;
  int64_t count = 0;
  bool at_once = false;  // they are complete when they are queued, however many
};

// Two blocks of device memory, and copies from one to the other.
struct Blocks {
  Blocks(Context& c, int32_t device, bp_stream* stream, uint64_t bytes)
      : c(c), device(device), stream(stream), bytes(bytes), from(c.alloc(device, bytes)), to(c.alloc(device, bytes)) {}
  void queue(int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      c.expect(CALL(c, copy_async, device, stream, to, device, from, device, bytes, 0u), BP_OK, rules::copy_async);
    }
  }
  void drop() const {
    c.free(device, from);
    c.free(device, to);
  }
  Context& c;
  int32_t device;
  bp_stream* stream;
  uint64_t bytes, from, to;
};

struct Measured {
  Clock::duration queueing, remaining;  // until the last one was queued; from then until a wait came back
};

Measured measure(const Blocks& blocks, int64_t count) {
  const auto start = Clock::now();
  blocks.queue(count);
  const auto queued = Clock::now();
  wait_for(blocks.c, blocks.device, blocks.stream);
  return {queued - start, Clock::now() - queued};
}

// A measurement takes twice as long as the one before, up to two seconds, so that neither a slow device nor one with a short queue is
// missed.
Row fitting(const Blocks& blocks) {
  blocks.queue(1);  // the first one may set things up
  wait_for(blocks.c, blocks.device, blocks.stream);
  int complete = 0;
  for (int64_t count = 2; count <= 1 << 16; count *= 2) {
    const Measured m = measure(blocks, count);
    if (m.remaining >= wanted()) return {blocks.bytes, count};
    // Three times in a row, and each for longer than a busy machine keeps this thread waiting.
    complete = m.remaining * 8 < m.queueing && m.queueing > std::chrono::milliseconds(20) ? complete + 1 : 0;
    if (complete == 3) return {blocks.bytes, 0, true};
    if (m.queueing + m.remaining > std::chrono::seconds(2)) break;
  }
  return {blocks.bytes, 0};
}

// Small copies first; where a device is so fast, or its queue so short, that these do not last, large ones.
Row calibrated(Context& c, int32_t device, bp_stream* stream) {
  for (uint64_t bytes : {uint64_t{16} << 20, uint64_t{256} << 20}) {
    const Blocks blocks(c, device, stream, c.at_most(device, bytes));
    const Row row = fitting(blocks);
    blocks.drop();
    if (row.count || row.at_once) return row;
  }
  return {};
}

}  // namespace busy_stream_impl

void BusyStream::queue_copies() {
  Context& c = context_;
  const bp_driver& t = c.table();
  if (!t.copy_async) throw NotOffered{"no streams"};
  static const busy_stream_impl::Row row = busy_stream_impl::calibrated(c, device_, stream_);  // this process runs one check
  if (!row.count) {
    const std::string held = busy_stream_impl::not_held;
    if (!c.own_streams()) throw NotOffered{held + "copies on emulate's streams are complete when they are queued"};
    throw NotRun{held + "copies are complete when they are queued"};
  }
  const busy_stream_impl::Blocks blocks(c, device_, stream_, row.bytes);
  if (t.event_create) marker_ = c.event(device_);
  blocks.queue(row.count);
  last_seen_ = busy_stream_impl::Clock::now();
  const char* rule = "The event completes when all work queued so far on the stream has";
  if (marker_) c.expect(CALL(c, event_record, device_, stream_, marker_, 0u), BP_OK, rule);
  not_waited_for(rule);
}

}  // namespace backplane::check
