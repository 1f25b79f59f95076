// drivers/shims/emulate/emulate.cpp: the shim that completes a partial driver: nine functions below, a whole table above.
//
// What the driver below has, goes through to it. Streams and events come in pairs: if it lacks either group, both are the shim's own
// (drivers/engine), its work runs on the default stream below, and groups below that take a stream are hidden or wrapped, since they
// would not know the shim's handles. Pinned memory, host_register, fill and copy_async are supplied where they are missing. A driver with
// BP_DRIVER_SERIALIZE is locked here, and is waited for outside the lock; its bp.compiler is called without the lock. bp.profile is made
// where it is missing: by the host's clock on the shim's own streams, else of timing events. bp.graph passes only where the shim supplies
// neither streams, pinned memory, fill nor the lock.
//
// Options: stream=inline|async, streams=<1..1024>. They count for the shim's own streams only.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "../../engine/engine.h"
#include "../../engine/fill.h"
#include "../../engine/host_memory.h"
#include "inner.h"
#include "modules.h"
#include "transfer.h"

namespace backplane::driver::emulate {

struct Settings {
  bool workers;
  int32_t streams;

  explicit Settings(const char* config) {
    Options options(config);
    workers = options.choice("stream", false, {{"inline", false}, {"async", true}});
    streams = static_cast<int32_t>(options.integer("streams", 32, 1, 1024));
    options.finish();
  }
};

uint64_t pack(int32_t high, int32_t low) { return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low); }
int32_t high(uint64_t word) { return static_cast<int32_t>(word >> 32); }
int32_t low(uint64_t word) { return static_cast<int32_t>(word); }

/// `now` with its record, which it takes if it is run.
template <class Now>
auto timed(Recorder::Owned& record, const Now& now) {
  return [&] {
    if (record) record->begin();
    now();
    if (record) record.release()->end(true);
  };
}

class Emulate final : public Driver<Emulate>, protected Engine {
 public:
  explicit Emulate(const Host& host)
      : Driver(host),
        inner_(host.inner()),
        settings_(host.config()),
        below_(inner_.table()),
        own_streams_(!has_streams(below_) || !has_events(below_)),
        own_pinned_(!has_pinned(below_)),
        knows_pinned_(own_streams_ || own_pinned_),
        events_({&inner_}) {
    set_flags((below_.flags & ~BP_DRIVER_SERIALIZE) | (own_streams_ ? BP_DRIVER_OWN_STREAMS : 0u));
    if (!below_.memory_info) drop(&bp_driver::memory_info);
    if (!below_.set_current) drop(&bp_driver::set_current);
    if (!below_.pointer_info) drop(&bp_driver::pointer_info);
    if (own_streams_ || !below_.stream_native) drop(&bp_driver::stream_native);
    if (!own_streams_ && !below_.stream_from_native) drop(&bp_driver::stream_from_native);
    if (!own_streams_ && !below_.stream_callback) drop(&bp_driver::stream_callback);
    if (!has_host_register(below_) && !knows_pinned_) {
      drop(&bp_driver::host_register);
      drop(&bp_driver::host_unregister);
    }
  }

  ~Emulate() {
    shutdown();
    below_.close(below_.self);
  }

  // ---- the minimum

  void device_count(int32_t* out) { inner_(&bp_driver::device_count, out); }

  void device_properties(int32_t device, bp_device_properties* out) {
    out->struct_size = sizeof *out;
    inner_(&bp_driver::device_properties, device, out);
    if (!own_streams_) return;
    out->stream_limit = settings_.streams;
    out->priority_least = kPriorityLeast;
    out->priority_greatest = kPriorityGreatest;
  }

  void open() {
    int32_t devices = 0;
    inner_(&bp_driver::device_count, &devices);
    inner_(&bp_driver::open);
    configure({"emulate", devices, settings_.workers, settings_.streams});
    open_engine();
  }

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    check(device);
    inner_(&bp_driver::alloc, device, bytes, flags, out);
  }
  void free(int32_t device, uint64_t address) { inner_(&bp_driver::free, device, address); }

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (!own_streams_) {
      drain_outside_lock(device, stream);
      return events_.around(Records::copy(device, dst_device, src_device, bytes), stream,
                            [&] { copy_below(inner_, device, stream, copy); });
    }
    Stream& on = usable(device, stream);
    auto record = bytes ? recorder_.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr;
    on.run_blocking([&] {
      if (record) record->begin();
      watched(device, [&] { copy_below(inner_, device, nullptr, copy); });
      if (record) record.release()->end(true);
    });
    on.device().check();
  }

  void synchronize(int32_t device, uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    if (own_streams_) Engine::synchronize(device, timeout_ns);
    inner_.wait(&bp_driver::synchronize, deadline.left_ns(), device);
  }

  // ---- streams

  int32_t stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    if (own_streams_) return Engine::stream_create(device, priority, flags, out);
    return inner_(&bp_driver::stream_create, device, priority, flags, out);
  }
  int32_t stream_destroy(int32_t device, bp_stream* stream) {
    if (own_streams_) return Engine::stream_destroy(device, stream);
    drain_outside_lock(device, stream);
    return inner_(&bp_driver::stream_destroy, device, stream);
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    if (own_streams_) return Engine::stream_query(device, stream);
    return inner_(&bp_driver::stream_query, device, stream);
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    if (own_streams_) {
      Engine::stream_synchronize(device, stream, timeout_ns);
    } else {
      inner_.wait(&bp_driver::stream_synchronize, timeout_ns, device, stream);
    }
  }
  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (knows_pinned_) {
      if (copy.from_host()) pinned_.check(src, bytes);
      if (copy.to_host()) pinned_.check(dst, bytes);
    }
    if (!own_streams_) {
      return events_.around(Records::copy(device, dst_device, src_device, bytes), stream, [&] {
        // The driver below does not know the shim's pinned memory: for it that is pageable.
        if (own_pinned_ && !copy.between_devices()) return copy_below(inner_, device, stream, copy);
        inner_(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
      });
    }
    need_no_flags("copy_async", flags);  // here: what a queued call refuses would be a fault of the device
    queue(
        usable(device, stream), device, [&] { copy_below(inner_, device, nullptr, copy); },
        {[](Job& job, int32_t status) {
           const auto& [self, to, from, size, on, devices] = job.words;
           if (status != BP_OK) return;
           copy_below(reinterpret_cast<Emulate*>(self)->inner_, static_cast<int32_t>(on), nullptr,
                      {to, high(devices), from, low(devices), size, 0});
         },
         {reinterpret_cast<uint64_t>(this), dst, src, bytes, static_cast<uint64_t>(device), pack(dst_device, src_device)}},
        bytes ? recorder_.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr);
  }

  // ---- events

  int32_t event_create(int32_t device, uint32_t flags, bp_event** out) {
    if (own_streams_) return Engine::event_create(device, flags, out);
    return inner_(&bp_driver::event_create, device, flags, out);
  }
  int32_t event_destroy(int32_t device, bp_event* event) {
    if (own_streams_) return Engine::event_destroy(device, event);
    return inner_(&bp_driver::event_destroy, device, event);
  }
  int32_t event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    if (own_streams_) return Engine::event_record(device, stream, event, flags);
    return inner_(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    if (own_streams_) return Engine::event_query(device, event);
    return inner_(&bp_driver::event_query, device, event);
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    if (own_streams_) {
      Engine::event_synchronize(device, event, timeout_ns);
    } else {
      inner_.wait(&bp_driver::event_synchronize, timeout_ns, device, event);
    }
  }
  int32_t stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    if (own_streams_) return Engine::stream_wait(device, stream, event);
    return inner_(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    if (own_streams_) return Engine::event_elapsed(device, start, end, ns);
    return inner_(&bp_driver::event_elapsed, device, start, end, ns);
  }

  // ---- host memory

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (own_pinned_) {
      if (!out || flags != 0) throw Error(BP_INVALID_ARGUMENT, "host_alloc: out must not be NULL, flags must be 0");
      *out = pinned_.alloc(bytes);
    } else {
      inner_(&bp_driver::host_alloc, bytes, flags, out);
      if (knows_pinned_) pinned_.adopt(*out, bytes);
    }
  }
  void host_free(void* ptr) {
    if (own_pinned_) return pinned_.free(ptr);
    if (knows_pinned_) pinned_.disown(ptr);
    inner_(&bp_driver::host_free, ptr);
  }
  void host_register(void* ptr, uint64_t bytes) {
    if (knows_pinned_) pinned_.add(ptr, bytes);
    if (!has_host_register(below_)) return;
    try {
      inner_(&bp_driver::host_register, ptr, bytes);
    } catch (...) {
      if (knows_pinned_) pinned_.remove(ptr);
      throw;
    }
  }
  void host_unregister(void* ptr) {
    if (knows_pinned_) pinned_.remove(ptr);
    if (has_host_register(below_)) inner_(&bp_driver::host_unregister, ptr);
  }

  // ---- single entries

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const FillPattern row(pattern, pattern_size, count, dst);
    if (own_streams_ || !below_.fill) need_no_flags("fill", flags);
    if (!own_streams_) {
      return events_.around(Records::work(BP_ACTIVITY_FILL, device, row.bytes), stream,
                            [&] { fill_below(device, stream, dst, row, flags); });
    }
    queue(
        usable(device, stream), device, [&] { fill_below(device, nullptr, dst, row, 0); },
        {[](Job& job, int32_t status) {
           if (status != BP_OK) return;
           const auto& [self, on, to, word, size, bytes] = job.words;
           reinterpret_cast<Emulate*>(self)->fill_below(static_cast<int32_t>(on), nullptr, to,
                                                        FillPattern(&word, static_cast<uint32_t>(size), bytes / size), 0);
         },
         {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), dst, row.word, row.size, row.bytes}},
        row.bytes ? recorder_.queue(BP_ACTIVITY_FILL, device, stream, row.bytes) : nullptr);
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    inner_(&bp_driver::memory_info, device, free_bytes, total_bytes);
  }
  void set_current(int32_t device) { inner_(&bp_driver::set_current, device); }
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) { inner_(&bp_driver::stream_native, device, stream, out); }
  int32_t stream_from_native(int32_t device, uint64_t native, bp_stream** out) {
    if (own_streams_) return Engine::stream_from_native(device, native, out);
    return inner_(&bp_driver::stream_from_native, device, native, out);
  }
  int32_t stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    if (own_streams_) return Engine::stream_callback(device, stream, fn, arg);
    return inner_(&bp_driver::stream_callback, device, stream, fn, arg);
  }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    if (const auto block = pinned_.find(address)) {
      *out = {out->struct_size, block->kind, BP_HOST_DEVICE, block->base, block->bytes};
      return;
    }
    out->struct_size = sizeof *out;
    inner_(&bp_driver::pointer_info, address, out);
  }

  // ---- groups

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    find_groups();
    const bp_ext* found = nullptr;
    const auto look = [&](const bp_ext& head) {
      if (head.struct_size && version == head.version && std::strcmp(id, head.id) == 0) found = &head;
    };
    look(exec_.head);
    std::apply([&](const auto&... group) { (look(group.offered.head), ...); }, passing_);
    if (!found) {
      if (std::strcmp(id, BP_GRAPH_ID) == 0 && hides_graphs()) {
        throw Error(BP_UNSUPPORTED,
                    "bp.graph: emulate supplies streams, copies, fills or the lock, which no capture of the driver's can hold");
      }
      if (!own_streams_ && !inner_.serialize() && below_.query_ext) return inner_(&bp_driver::query_ext, id, version, out);
      throw Error(BP_UNSUPPORTED, std::string("no group ") + id + " version " + std::to_string(version) + " can pass through emulate");
    }
    *out = found;
    return BP_OK;
  }

  /// The entry of a group that passes through.
  template <auto Slot, class Group, class... Args>
  void pass(Args... args) {
    const Group& below = *group<Group>().below;
    if constexpr (std::is_same_v<Group, bp_compiler>) {  // any number of threads at once, whatever the driver's flags say
      inner_.group_unlocked(below.head, below.*Slot, args...);
    } else {
      inner_.group(below.head, below.*Slot, args...);
    }
  }
  /// What takes memory says that the device is in error, as alloc does.
  template <auto Slot, class Group, class... Args>
  void pass_if_sound(int32_t device, Args... args) {
    check(device);
    pass<Slot, Group>(device, args...);
  }

  void exec_enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (!own_streams_) {
      return events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream,
                            [&] { inner_.group(exec_below_->head, exec_below_->enqueue, device, stream, fn, arg, destroy); });
    }
    try {
      if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
      Stream& on = usable(device, stream);
      on.submit({[](Job& job, int32_t status) {
                   const auto& [self, on, call, with, end, unused] = job.words;
                   reinterpret_cast<Emulate*>(self)->run_host_function(
                       static_cast<int32_t>(on), status, reinterpret_cast<int32_t (*)(void*)>(call), reinterpret_cast<void*>(with),
                       reinterpret_cast<void (*)(void*)>(end));
                 },
                 {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(fn),
                  reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)}},
                recorder_.queue(BP_ACTIVITY_KERNEL, device, stream));
    } catch (...) {
      if (destroy) destroy(arg);
      throw;
    }
  }

  void exec_map(int32_t device, uint64_t address, void** out) {
    if (exec_below_) {
      inner_.group(exec_below_->head, exec_below_->map, device, address, out);
      return;
    }
    // The view is coherent and at the same address, so it need not stay open; asking for it checks the address.
    void* seen = nullptr;
    pass<&bp_host_view::map, bp_host_view>(device, address, uint64_t{1}, int32_t{BP_ACCESS_READ_WRITE}, &seen);
    pass<&bp_host_view::unmap, bp_host_view>(device, address, seen);
    *out = seen;
  }

  // bp.module where the streams are the shim's: its functions know what a launch of them may say, since what the driver below refuses when
  // the job runs would be a fault of the device.

  void module_unload(int32_t device, bp_module_code* module) {
    pass<&bp_module::unload, bp_module>(device, module);
    functions_.forget(module);
  }

  void module_function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                       bp_function_properties* properties) {
    if (!out || !signature || signature->struct_size < sizeof *signature) {
      throw Error(BP_INVALID_ARGUMENT, "module.function: out and a signature of full struct_size are needed");
    }
    bp_function_properties own{};
    own.struct_size = sizeof own;
    Function made{nullptr, device, signature->pointers * sizeof(uint64_t) + signature->value_bytes, launch_limits(device),
                  name ? name : ""};
    pass<&bp_module::function, bp_module>(device, module, name, signature, &made.below, &own);
    if (own.max_group_size) made.limits.group = own.max_group_size;
    if (made.limits.local_bytes) made.limits.local_bytes -= std::min(own.local_bytes, made.limits.local_bytes - 1);
    *out = functions_.keep(module, made);
    if (!properties) return;
    own.struct_size = properties->struct_size;
    std::memcpy(static_cast<void*>(properties), &own, std::min<uint64_t>(own.struct_size, sizeof own));
  }

  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    if (!launch || launch->struct_size < sizeof *launch || !launch->function) {
      throw Error(BP_INVALID_ARGUMENT, "module.launch: a function and a bp_launch of full struct_size are needed");
    }
    Stream& on = usable(device, stream);
    const Function& function = *reinterpret_cast<const Function*>(launch->function);
    function.check(device, *launch);
    bp_launch below = *launch;
    below.struct_size = sizeof below;
    below.function = function.below;
    auto record = recorder_.queue(BP_ACTIVITY_KERNEL, device, stream, 0, function.name.c_str());
    if (ran_now(on, device, timed(record, [&] { launch_below(device, below); }))) return;
    auto kept = std::make_unique<KeptLaunch>(below);
    on.submit({[](Job& job, int32_t status) {
                 const std::unique_ptr<KeptLaunch> one(reinterpret_cast<KeptLaunch*>(job.words[2]));
                 if (status != BP_OK) return;
                 reinterpret_cast<Emulate*>(job.words[0])->launch_below(static_cast<int32_t>(job.words[1]), one->launch());
               },
               {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), reinterpret_cast<uint64_t>(kept.get())}},
              std::move(record));
    static_cast<void>(kept.release());  // the job's
  }
  /// The same where the streams are the driver's, and the records the shim's.
  void module_launch_below(int32_t device, bp_stream* stream, const bp_launch* launch) {
    events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { pass<&bp_module::launch, bp_module>(device, stream, launch); });
  }

  /// One record of a run: what it holds has none of its own.
  void graph_launch_below(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    events_.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { pass<&bp_graph::launch, bp_graph>(device, stream, exec); });
  }

  // bp.profile where it is the shim's

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    own_streams_ ? recorder_.start(kinds, fn, arg) : events_.start(kinds, fn, arg);
  }
  void profile_stop(uint64_t* dropped) { own_streams_ ? recorder_.stop(dropped) : events_.stop(dropped); }
  void profile_tag(uint64_t correlation) { own_streams_ ? recorder_.tag(correlation) : events_.tag(correlation); }
  void profile_launch_begin(int32_t device, bp_stream* stream) {
    if (!own_streams_) return events_.launch_begin(device, stream);
    Stream& on = usable(device, stream);
    if (WorkRecord* work = recorder_.open_launch(device, stream)) on.submit(begin_launch(work));
  }
  void profile_launch_end(int32_t device, bp_stream* stream, const char* name) {
    if (!own_streams_) return events_.launch_end(stream, name);
    Stream& on = resolve(device, stream);
    if (WorkRecord* work = recorder_.close_launch(name)) on.submit(end_launch(work));
  }
  int32_t profile_no_name(const char*) { return profile_no_range(); }
  int32_t profile_no_range() { return fail(BP_UNSUPPORTED, "profile: the driver below has no ranges"); }

 private:
  using Records = EventProfile<InnerCalls>;

  void check(int32_t device) {
    if (own_streams_) at(device).check();
  }

  /// Runs a call below; a sticky error makes the shim's own streams of the device report it, too.
  template <class Body>
  void watched(int32_t device, Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      if (is_sticky(error.status())) at(device).fault(error.status(), error.what());
      throw;
    }
  }

  /// Runs `now` at once if the stream is an idle inline one, so that its error is the call's own; else queues the job, whose error makes
  /// the device fault.
  template <class Now>
  void queue(Stream& stream, int32_t device, Now&& now, const Job& job, Recorder::Owned record) {
    if (!ran_now(stream, device, timed(record, now))) stream.submit(job, std::move(record));
  }
  template <class Now>
  bool ran_now(Stream& stream, int32_t device, Now&& now) {
    return !settings_.workers && stream.run_if_idle([&] { watched(device, now); });
  }

  /// Before a call that waits for the stream by itself: it would hold the lock meanwhile.
  void drain_outside_lock(int32_t device, bp_stream* stream) {
    if (!inner_.serialize()) return;
    try {
      inner_.wait(&bp_driver::stream_synchronize, BP_NO_TIMEOUT, device, stream);
    } catch (const Error&) {  // the call that follows tells it
    }
  }

  void fill_below(int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row, uint32_t flags) {
    if (below_.fill) {
      inner_(&bp_driver::fill, device, stream, dst, static_cast<const void*>(&row.word), row.size, row.bytes / row.size, flags);
      if (own_streams_) inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    fill_by_copies(inner_, device, stream, dst, row);
  }

  void run_host_function(int32_t device, int32_t status, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    if (exec_below_ && status == BP_OK) {
      // The driver below calls destroy, whatever happens.
      inner_.group(exec_below_->head, exec_below_->enqueue, device, static_cast<bp_stream*>(nullptr), fn, arg, destroy);
      inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    struct Destroy {
      void (*call)(void*);
      void* arg;
      ~Destroy() {
        if (call) call(arg);
      }
    } at_end{destroy, arg};
    if (status != BP_OK) return;
    const int32_t result = fn(arg);
    if (result != BP_OK) throw Error(BP_FAULT, std::string("a host_exec function returned ") + status_name(result));
  }

  void launch_below(int32_t device, const bp_launch& launch) {
    pass<&bp_module::launch, bp_module>(device, static_cast<bp_stream*>(nullptr), &launch);
    inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
  }
  /// What the device's target says of launches, if the driver below has a compiler.
  LaunchLimits launch_limits(int32_t device) {
    LaunchLimits found;
    const auto& compiler = group<bp_compiler>().below;
    bp_target_properties target{};
    target.struct_size = sizeof target;
    if (!compiler || compiler->target(compiler->head.self, device, &target) != BP_OK) return found;
    std::copy(std::begin(target.max_grid), std::end(target.max_grid), found.grid);
    found.group = target.max_group_size;
    found.local_bytes = target.local_bytes;
    return found;
  }

  /// What of a capture the shim does by itself, the recording would lack: work on streams of its own, copies and fills that wait; and a
  /// wait under the lock only asks, so that no capture hears of it.
  bool hides_graphs() const { return own_streams_ || own_pinned_ || !below_.fill || inner_.serialize(); }

  /// Looks once for the groups below that the shim wraps.
  void find_groups() {
    std::call_once(groups_found_, [&] {
      exec_below_ = inner_.find<bp_host_exec>();
      std::apply([this](auto&... group) { (find_passing(group), ...); }, passing_);
      auto& vmm = group<bp_vmm>().offered;
      vmm.reserve = slot<&Emulate::pass_if_sound<&bp_vmm::reserve, bp_vmm, uint64_t, uint64_t*>>();
      vmm.map = slot<&Emulate::pass_if_sound<&bp_vmm::map, bp_vmm, uint64_t, uint64_t>>();
      if (hides_graphs()) group<bp_graph>().offered.head.struct_size = 0;
      if (own_streams_ && group<bp_module>().below) {
        auto& module = group<bp_module>().offered;
        module.load = slot<&Emulate::pass_if_sound<&bp_module::load, bp_module, const void*, uint64_t, bp_module_code**>>();
        module.unload = slot<&Emulate::module_unload>();
        module.function = slot<&Emulate::module_function>();
        module.launch = slot<&Emulate::module_launch>();
      }
      find_profile();
      const auto& view = group<bp_host_view>().below;
      constexpr uint32_t in_place = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT;
      const bool host_sees = view && (view->head.flags & in_place) == in_place;
      if (exec_below_ || (own_streams_ && host_sees)) exec_.head = group_head<bp_host_exec>();
    });
  }

  /// The shim's own, where the streams are or the driver below has none.
  void find_profile() {
    auto& [below, offered] = group<bp_profile>();
    if (below && !own_streams_) return;
    const uint32_t ranges = below ? below->head.flags & BP_PROFILE_RANGES : 0;
    offered.head = group_head<bp_profile>(ranges | (own_streams_ ? BP_PROFILE_NAMES : 0));
    offered.start = slot<&Emulate::profile_start>();
    offered.stop = slot<&Emulate::profile_stop>();
    offered.tag = slot<&Emulate::profile_tag>();
    offered.launch_begin = slot<&Emulate::profile_launch_begin>();
    offered.launch_end = slot<&Emulate::profile_launch_end>();
    if (!ranges) {
      offered.range_push = offered.mark = slot<&Emulate::profile_no_name>();
      offered.range_pop = slot<&Emulate::profile_no_range>();
    }
    if (own_streams_) return;
    if (group<bp_module>().below) group<bp_module>().offered.launch = slot<&Emulate::module_launch_below>();
    if (group<bp_graph>().below) group<bp_graph>().offered.launch = slot<&Emulate::graph_launch_below>();
  }

  /// A group that passes through the shim, under its lock: as the driver below has it, and as the shim offers it.
  template <class Group>
  struct Passing {
    std::optional<Group> below;
    Group offered{};
  };
  /// The C function for a slot, whose parameters it takes apart.
  template <auto Slot>
  struct Pass;
  template <class Group, class... Args, int32_t (*Group::*Slot)(void*, Args...)>
  struct Pass<Slot> {
    static constexpr auto entry() { return slot<&Emulate::pass<Slot, Group, Args...>>(); }
  };
  template <class Group>
  Passing<Group>& group() {
    return std::get<Passing<Group>>(passing_);
  }
  template <class Group>
  void find_passing(Passing<Group>& group) {
    group.below = inner_.find<Group>();
    if (!group.below) return;
    group.offered.head = group_head<Group>(group.below->head.flags);
    GroupTraits<Group>::each_slot([&](auto slot) { group.offered.*decltype(slot)::value = Pass<decltype(slot)::value>::entry(); });
  }

  Inner inner_;
  const Settings settings_;
  const bp_driver& below_;
  const bool own_streams_;
  const bool own_pinned_;    // host_alloc is the shim's
  const bool knows_pinned_;  // pinned_ has all pinned memory of the instance; else the driver below keeps account alone
  HostMemory pinned_;
  Recorder recorder_;                // of the shim's own streams
  EventProfile<InnerCalls> events_;  // of the driver's, where it has no records

  std::once_flag groups_found_;
  std::optional<bp_host_exec> exec_below_;
  bp_host_exec exec_ = {{}, slot<&Emulate::exec_enqueue>(), slot<&Emulate::exec_map>()};
  std::tuple<Passing<bp_host_view>, Passing<bp_peer>, Passing<bp_vmm>, Passing<bp_compiler>, Passing<bp_module>, Passing<bp_profile>,
             Passing<bp_graph>>
      passing_;
  Functions functions_;
};

}  // namespace backplane::driver::emulate

BP_DEFINE_DRIVER(backplane::driver::emulate::Emulate)
