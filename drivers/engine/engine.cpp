// drivers/engine/engine.cpp: the stream and event slots over Stream and Completion.
#include "engine.h"

#include <algorithm>
#include <utility>

#include <backplane/driver/cxx/table.hpp>

namespace backplane::driver {
namespace {

/// A reference that is given back.
struct Unref {
  void operator()(Completion* completion) const { completion->unref(); }
};
using CompletionRef = std::unique_ptr<Completion, Unref>;

/// The record completes after a fault, too: a wait in another process ends.
void record_shared(Stream& stream, const std::shared_ptr<SharedEvent>& event) {
  stream.submit_owned([event, number = event->begin()](int32_t) { event->complete(number); });
}

void wait_for_shared(Stream& stream, const std::shared_ptr<SharedEvent>& event) {
  const uint64_t number = event->latest();
  if (event->wait(number, Deadline(0))) return;
  stream.submit_owned([event, number](int32_t) { event->wait(number, Deadline(BP_NO_TIMEOUT)); });
}

}  // namespace

EngineDevice::EngineDevice(int32_t index, bool workers, int32_t stream_limit, const std::string& name)
    : index_(index),
      workers_(workers),
      stream_limit_(stream_limit),
      name_(name + std::to_string(index)),
      default_(std::make_shared<Stream>(*this, workers, 0, name_)) {}

EngineDevice::~EngineDevice() {
  for (auto& event : events_) {
    if (event->latest) event->latest->unref();
  }
}

void EngineDevice::fault(int32_t status, const std::string& text) noexcept {
  std::lock_guard lock(mutex_);
  if (sticky() != BP_OK) return;
  fault_ = text;
  sticky_.store(status == BP_DEVICE_LOST ? BP_DEVICE_LOST : BP_FAULT, std::memory_order_release);
}

void EngineDevice::throw_sticky() const {
  std::lock_guard lock(mutex_);
  throw Error(static_cast<bp_status>(sticky()), "device " + std::to_string(index_) + " is not usable any more: " + fault_);
}

Stream* EngineDevice::create_stream(int32_t priority) {
  std::lock_guard lock(mutex_);
  if (static_cast<int32_t>(streams_.size()) >= stream_limit_) {
    throw Error(BP_UNSUPPORTED, "stream_create: device " + std::to_string(index_) + " has all of its " + std::to_string(stream_limit_) +
                                    " streams in use; destroy one, or raise the option 'streams'");
  }
  streams_.reserve(streams_.size() + 1);
  streams_.push_back(std::make_shared<Stream>(*this, workers_, priority, name_ + ":" + std::to_string(++created_)));
  return streams_.back().get();
}

void EngineDevice::destroy_stream(Stream* stream) {
  std::shared_ptr<Stream> last;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& one) { return one.get() == stream; });
    if (found == streams_.end()) throw Error(BP_INVALID_ARGUMENT, "stream_destroy: no stream of device " + std::to_string(index_));
    last = std::move(*found);
    streams_.erase(found);
  }
  // Here, since a thread in synchronize() may keep the object itself a little longer.
  last->wait(last->submitted(), Deadline(BP_NO_TIMEOUT));
}

Stream* EngineDevice::find_stream(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto is_it = [&](const auto& one) { return reinterpret_cast<uint64_t>(one.get()) == address; };
  if (is_it(default_)) return default_.get();
  const auto found = std::find_if(streams_.begin(), streams_.end(), is_it);
  return found == streams_.end() ? nullptr : found->get();
}

bool EngineDevice::synchronize(const Deadline& deadline) {
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> busy;
  {
    std::lock_guard lock(mutex_);
    const auto add = [&](const std::shared_ptr<Stream>& stream) {
      if (!stream->idle()) busy.emplace_back(stream, stream->submitted());
    };
    add(default_);
    for (const auto& stream : streams_) add(stream);
  }
  return std::all_of(busy.begin(), busy.end(), [&](const auto& one) { return one.first->wait(one.second, deadline); });
}

EngineEvent* EngineDevice::create_event(uint32_t flags, std::shared_ptr<SharedEvent> shared) {
  auto event = std::make_unique<EngineEvent>(*this, flags, std::move(shared));
  std::lock_guard lock(mutex_);
  event->index = events_.size();
  events_.push_back(std::move(event));
  return events_.back().get();
}

void EngineDevice::destroy_event(EngineEvent* event) {
  std::unique_ptr<EngineEvent> last;
  {
    std::lock_guard lock(mutex_);
    last = std::move(events_[event->index]);
    if (last.get() != events_.back().get() && events_.back()) {
      events_.back()->index = last->index;
      events_[last->index] = std::move(events_.back());
    }
    events_.pop_back();
  }
  if (last->latest) last->latest->unref();
}

void Engine::configure(const Config& config) {
  config_ = config;
  devices_ = std::vector<std::atomic<EngineDevice*>>(static_cast<size_t>(config.devices));
}

void Engine::shutdown() {
  // First all work, since a stream may wait for another device's; then the threads.
  for (auto& device : devices_) {
    if (EngineDevice* one = device.load()) one->synchronize(Deadline(BP_NO_TIMEOUT));
  }
  for (auto& device : devices_) delete device.exchange(nullptr);
}

EngineDevice& Engine::make(int32_t device) {
  if (!opened_.load(std::memory_order_acquire)) throw Error(BP_INVALID_ARGUMENT, "open must be called before the device is used");
  std::lock_guard lock(mutex_);
  auto& slot = devices_[static_cast<size_t>(device)];
  if (!slot.load()) slot.store(new EngineDevice(device, config_.workers, config_.stream_limit, config_.name), std::memory_order_release);
  return *slot.load();
}

EngineEvent& Engine::resolve(int32_t device, bp_event* event) {
  check_index(device);
  need(event, "event");
  EngineEvent& found = *reinterpret_cast<EngineEvent*>(event);
  if (found.device.index() != device) throw_other_device("event", found.device, device);
  return found;
}

void Engine::throw_no_device(int32_t device) const {
  throw Error(BP_INVALID_DEVICE, "no device " + std::to_string(device) + ": there are " + std::to_string(devices_.size()));
}

void Engine::throw_other_device(const char* what, const EngineDevice& found, int32_t asked) {
  throw Error(BP_INVALID_ARGUMENT, std::string("the ") + what + " is of device " + std::to_string(found.index()) +
                                       ", the call names device " + std::to_string(asked));
}

int32_t Engine::synchronize(int32_t device, uint64_t timeout_ns) {
  EngineDevice& found = at(device);
  captures_.check_device("synchronize", &found);
  captures_.check_wait("synchronize", timeout_ns);
  if (!found.synchronize(Deadline(timeout_ns))) {
    throw Error(BP_TIMEOUT,
                "synchronize: device " + std::to_string(device) + " still has work after " + std::to_string(timeout_ns) + " ns");
  }
  found.check();
  return BP_OK;
}

int32_t Engine::stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
  need(out, "out");
  need_no_flags("stream_create", flags);
  if (priority < kPriorityGreatest || priority > kPriorityLeast) {
    throw Error(BP_INVALID_ARGUMENT, "stream_create: priority " + std::to_string(priority) + " is not in " +
                                         std::to_string(kPriorityGreatest) + ".." + std::to_string(kPriorityLeast));
  }
  EngineDevice& owner = at(device);
  owner.check();
  *out = reinterpret_cast<bp_stream*>(owner.create_stream(priority));
  return BP_OK;
}

int32_t Engine::stream_destroy(int32_t device, bp_stream* stream) {
  need(stream, "stream");
  Stream& found = resolve(device, stream);
  captures_.drop(&found);
  at(device).destroy_stream(&found);
  return BP_OK;
}

int32_t Engine::stream_query(int32_t device, bp_stream* stream) {
  Stream& found = usable(device, stream);
  captures_.check_stream("stream_query", &found);
  return found.idle() ? BP_OK : BP_PENDING;
}

int32_t Engine::stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
  Stream& found = resolve(device, stream);
  captures_.check_stream("stream_synchronize", &found);
  captures_.check_wait("stream_synchronize", timeout_ns);
  if (!found.wait(found.submitted(), Deadline(timeout_ns))) {
    throw Error(BP_TIMEOUT, "stream_synchronize: a stream of device " + std::to_string(device) + " still has work after " +
                                std::to_string(timeout_ns) + " ns");
  }
  found.device().check();
  return BP_OK;
}

int32_t Engine::stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
  need(reinterpret_cast<const void*>(fn), "fn");
  Stream& found = resolve(device, stream);
  captures_.check_stream("stream_callback", &found);
  // Also after a fault: the caller may wait for the callback.
  found.submit(job_of([fn, arg](int32_t status) { fn(arg, status); }));
  return BP_OK;
}

int32_t Engine::stream_from_native(int32_t device, uint64_t native, bp_stream** out) {
  need(out, "out");
  EngineDevice& owner = at(device);
  Stream* found = owner.find_stream(native);
  if (!found) {
    throw Error(BP_INVALID_ARGUMENT, format("stream_from_native: 0x%llx is no stream of device %d", wide(native), device));
  }
  *out = found == &owner.default_stream() ? nullptr : reinterpret_cast<bp_stream*>(found);
  return BP_OK;
}

int32_t Engine::event_create(int32_t device, uint32_t flags, bp_event** out) {
  need(out, "out");
  if (flags & ~(BP_EVENT_TIMING | BP_EVENT_BLOCKING | BP_EVENT_IPC)) {
    throw Error(BP_INVALID_ARGUMENT, "event_create: unknown flags " + std::to_string(flags));
  }
  const bool shared = (flags & BP_EVENT_IPC) != 0;
  if (shared && !config_.share_event) throw Error(BP_UNSUPPORTED, "event_create: events are not shared between processes");
  if (shared && (flags & BP_EVENT_TIMING)) {
    throw Error(BP_INVALID_ARGUMENT, "event_create: an event with BP_EVENT_IPC has no timing");
  }
  EngineDevice& owner = at(device);
  owner.check();
  *out = reinterpret_cast<bp_event*>(owner.create_event(flags, shared ? config_.share_event() : nullptr));
  return BP_OK;
}

bp_event* Engine::open_event(int32_t device, std::shared_ptr<SharedEvent> shared) {
  EngineDevice& owner = at(device);
  owner.check();
  return reinterpret_cast<bp_event*>(owner.create_event(BP_EVENT_IPC, std::move(shared)));
}

SharedEvent& Engine::shared_event(int32_t device, bp_event* event) {
  EngineEvent& found = resolve(device, event);
  if (!found.shared) throw Error(BP_INVALID_ARGUMENT, "the event was made without BP_EVENT_IPC");
  return *found.shared;
}

int32_t Engine::event_destroy(int32_t device, bp_event* event) {
  EngineEvent& found = resolve(device, event);
  found.device.destroy_event(&found);
  return BP_OK;
}

int32_t Engine::event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
  need_no_flags("event_record", flags);
  EngineEvent& found = resolve(device, event);
  Stream& on = usable(device, stream);
  if (captures_.record_event(&on, found.point)) return BP_OK;
  std::lock_guard lock(found.mutex);
  if (found.shared) {
    record_shared(on, found.shared);
    return BP_OK;
  }
  // Nobody else looks at the last record: use its memory again.
  const bool reuse = found.latest && found.latest->unique();
  CompletionRef record(reuse ? std::exchange(found.latest, nullptr) : Completion::create());
  if (reuse) record->reset();
  if (on.idle()) {
    record->complete_unshared(found.flags & BP_EVENT_TIMING ? now_ns() : 0);
  } else {
    on.record(*record);
  }
  if (found.latest) found.latest->unref();
  found.latest = record.release();
  return BP_OK;
}

int32_t Engine::event_query(int32_t device, bp_event* event) {
  EngineEvent& found = resolve(device, event);
  found.device.check();
  captures_.check_event("event_query", found.point);
  if (found.shared) return found.shared->wait(found.shared->latest(), Deadline(0)) ? BP_OK : BP_PENDING;
  std::lock_guard lock(found.mutex);
  return !found.latest || found.latest->done() ? BP_OK : BP_PENDING;
}

int32_t Engine::event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
  EngineEvent& found = resolve(device, event);
  captures_.check_event("event_synchronize", found.point);
  captures_.check_wait("event_synchronize", timeout_ns);
  const bool pending = found.shared && !found.shared->wait(found.shared->latest(), Deadline(timeout_ns));
  if (CompletionRef record{found.take()}; pending || (record && !record->wait(Deadline(timeout_ns), !(found.flags & BP_EVENT_BLOCKING)))) {
    throw Error(BP_TIMEOUT, "event_synchronize: the event is not complete after " + std::to_string(timeout_ns) + " ns");
  }
  found.device.check();
  return BP_OK;
}

int32_t Engine::stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
  need(event, "event");
  Stream& waiting = usable(device, stream);
  EngineDevice& owner = waiting.device();
  const bool is_default = &waiting == &owner.default_stream();
  if (captures_.wait(&waiting, is_default ? nullptr : &owner, reinterpret_cast<EngineEvent*>(event)->point)) return BP_OK;
  if (const auto& shared = reinterpret_cast<EngineEvent*>(event)->shared) {
    wait_for_shared(waiting, shared);
    return BP_OK;
  }
  if (CompletionRef record{reinterpret_cast<EngineEvent*>(event)->take()}; record && !record->done()) waiting.wait_for(*record);
  return BP_OK;
}

int32_t Engine::event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
  need(ns, "ns");
  EngineEvent& first = resolve(device, start);
  EngineEvent& second = resolve(device, end);
  if (!(first.flags & second.flags & BP_EVENT_TIMING)) {
    throw Error(BP_INVALID_ARGUMENT, "event_elapsed: both events must be made with BP_EVENT_TIMING");
  }
  captures_.check_event("event_elapsed", first.point);
  captures_.check_event("event_elapsed", second.point);
  CompletionRef from{first.take()}, to{second.take()};
  if (!from || !to) throw Error(BP_INVALID_ARGUMENT, "event_elapsed: an event was never recorded");
  first.device.check();
  if (!from->done() || !to->done()) return BP_PENDING;
  *ns = to->time_ns() - from->time_ns();
  return BP_OK;
}

}  // namespace backplane::driver
