// drivers/shims/fault/fault.cpp: the shim that makes a sound driver fail on request, so that what stands above it can be tested.
//
// Options; <when> is 17 (every 17th), @17 (that one), @17-19 or @17+ (from then on):
//   alloc=<when>       an allocation of device memory: OUT_OF_MEMORY
//   host_alloc=<when>  one of pinned memory: OUT_OF_MEMORY
//   copy=<when>        a copy, blocking or not: INTERNAL, and nothing is copied; not sticky
//   kernel=<when>      a piece of queued work (host function, launch, fill, copy_async, what a vendor queues by stream_native) fails when
//                      its stream reaches it: FAULT, sticky
//   lost=<when>        at an allocation, a copy or a piece of work the device is gone: DEVICE_LOST, sticky
//   hang=<when>        a piece of queued work never completes, nor does what is behind it
//   stream=<when>      stream_create: INTERNAL
//   event=<when>       event_create: INTERNAL
//   free=<when>        free: INTERNAL, and the memory stays taken
//   reserve=<when>     bp.vmm: addresses are set aside: OUT_OF_MEMORY
//   map=<when>         of it: memory is put behind them: OUT_OF_MEMORY
//   unmap=<when>       of it: memory is taken away: INTERNAL, and it stays where it is
//   compile=<when>     bp.compiler: a compilation: INTERNAL
//   load=<when>        bp.module: code is loaded: INTERNAL
//   capture=<when>     bp.graph: capture_begin: INTERNAL, and nothing is captured
//   instantiate=<when> of it: OUT_OF_MEMORY
//   collective=<when>  a queued call of bp.collective: its communicator fails with INTERNAL, and the work ends at once
//   collective_hang=<when>  such a call never ends, nor does what is behind it, until the communicator is aborted
//   profile=<when>     bp.profile: a recording is started: INTERNAL
//   device=<n>|any     whose calls are counted (any); pinned memory and compilations belong to none
//   armed_by=<file>    nothing is counted until that file exists: `touch` it when the program is where the fault is wanted
//
// It goes over a complete driver: emulate, where it is needed, stands below. Streams and events keep the handles of the driver below, so
// every group of it passes through; the SDK's are wrapped, so that their errors have a text.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

#include "communicators.h"
#include "injected.h"

namespace backplane::driver::fault {

struct Settings {
  explicit Settings(Options options)
      : alloc(options, "alloc"),
        host_alloc(options, "host_alloc"),
        copy(options, "copy"),
        kernel(options, "kernel"),
        lost(options, "lost"),
        hang(options, "hang"),
        stream(options, "stream"),
        event(options, "event"),
        free(options, "free"),
        reserve(options, "reserve"),
        map(options, "map"),
        unmap(options, "unmap"),
        compile(options, "compile"),
        load(options, "load"),
        capture(options, "capture"),
        instantiate(options, "instantiate"),
        collective(options, "collective"),
        collective_hang(options, "collective_hang"),
        profile(options, "profile"),
        armed_by(options.text("armed_by", "", "<file>")),
        armed(armed_by.empty()) {
    const std::string only = options.text("device", "any", "<n>|any");
    options.finish();
    if (only == "any") return;
    const auto [end, error] = std::from_chars(only.data(), only.data() + only.size(), device);
    if (error != std::errc() || end != only.data() + only.size() || device < 0) {
      throw Error(BP_INVALID_ARGUMENT, "options: fault.device=" + only + ": the number of a device, or any, is needed");
    }
  }

  FaultKind alloc, host_alloc, copy, kernel, lost, hang, stream, event, free, reserve, map, unmap, compile, load, capture, instantiate,
      collective, collective_hang, profile;
  const std::string armed_by;
  std::atomic<bool> armed;
  int32_t device = -1;
};

class Fault : public Driver<Fault> {
 public:
  explicit Fault(const Host& host) : Driver(host), settings_(Options(host.config())), below_(checked(host.inner())) {
    set_flags(below_.flags);
    if (!below_.memory_info) drop(&bp_driver::memory_info);
    if (!below_.set_current) drop(&bp_driver::set_current);
    if (!below_.stream_from_native) drop(&bp_driver::stream_from_native);
    if (!below_.stream_callback) drop(&bp_driver::stream_callback);
    if (!below_.pointer_info) drop(&bp_driver::pointer_info);
    if (!has_host_register(below_)) {
      drop(&bp_driver::host_register);
      drop(&bp_driver::host_unregister);
    }
  }

  ~Fault() {
    communicators_.release_all();
    below_.close(below_.self);  // first: work that ends there still asks for the state of its device
  }

  void device_count(int32_t* out) { pass(&bp_driver::device_count, out); }
  void device_properties(int32_t device, bp_device_properties* out) {
    out->struct_size = sizeof *out;
    pass(&bp_driver::device_properties, device, out);
  }

  void open() {
    int32_t count = 0;
    device_count(&count);
    for (int32_t i = 0; i < count; ++i) devices_.push_back(std::make_unique<DeviceFault>());
    pass(&bp_driver::open);
  }

  // ---- memory

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    DeviceFault& state = alive(device);
    if (strikes(settings_.alloc, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.alloc.text("alloc: no room for " + std::to_string(bytes) + " bytes"));
    }
    pass(&bp_driver::alloc, device, bytes, flags, out);
    state.check();
  }

  void free(int32_t device, uint64_t address) {
    if (state(device).sticky() == BP_DEVICE_LOST) {
      below_.free(below_.self, device, address);
      return;
    }
    if (strikes(settings_.free, device)) throw Error(BP_INTERNAL, settings_.free.text("free: the memory could not be returned"));
    pass(&bp_driver::free, device, address);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (strikes(settings_.host_alloc, settings_.device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.host_alloc.text("host_alloc: no pinned memory for " + std::to_string(bytes) + " bytes"));
    }
    pass(&bp_driver::host_alloc, bytes, flags, out);
  }
  void host_free(void* ptr) { pass(&bp_driver::host_free, ptr); }
  void host_register(void* ptr, uint64_t bytes) { pass(&bp_driver::host_register, ptr, bytes); }
  void host_unregister(void* ptr) { pass(&bp_driver::host_unregister, ptr); }
  void pointer_info(uint64_t address, bp_pointer_info* out) {
    out->struct_size = sizeof *out;
    pass(&bp_driver::pointer_info, address, out);
  }
  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    state(device).check();
    pass(&bp_driver::memory_info, device, free_bytes, total_bytes);
  }
  void set_current(int32_t device) { pass(&bp_driver::set_current, device); }

  // ---- work

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (state.hangs(stream)) state.wait_in_vain(BP_NO_TIMEOUT);
    pass(&bp_driver::copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    state.check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (queue(state, device, stream, "a copy")) {
      pass(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    }
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a fill")) pass(&bp_driver::fill, device, stream, dst, pattern, pattern_size, count, flags);
  }

  void exec_enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    std::unique_ptr<Work> work(new Work{nullptr, fn, arg, destroy, false, this});  // destroys also where the next lines throw
    DeviceFault& state = alive(device);
    work->state = &state;
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
    if (!captures(device, stream) && strikes(settings_.hang, device)) state.hang(stream);
    if (state.hangs(stream)) {
      state.hold(stream, [kept = std::shared_ptr<Work>(std::move(work))] {});
      return;
    }
    work->fails = !captures(device, stream) && strikes(settings_.kernel, device);
    Work* task = work.release();  // the driver below calls destroy in any case
    const auto run = [](void* given) -> int32_t { return static_cast<Work*>(given)->run(); };
    pass_group<&bp_host_exec::enqueue>(device, stream, run, static_cast<void*>(task),
                                       [](void* given) { delete static_cast<Work*>(given); });
  }

  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a kernel")) pass_group<&bp_module::launch>(device, stream, launch);
  }

  // ---- waits and queries

  void synchronize(int32_t device, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs()) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::synchronize, device, timeout_ns);
    found.check();
  }

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    state(device).check();
    if (strikes(settings_.stream, device)) throw Error(BP_INTERNAL, settings_.stream.text("stream_create: the device refused a queue"));
    pass(&bp_driver::stream_create, device, priority, flags, out);
  }
  void stream_destroy(int32_t device, bp_stream* stream) {
    state(device).forget(stream);
    release(device, below_.stream_destroy(below_.self, device, stream));
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) return BP_PENDING;
    const int32_t status = pass(&bp_driver::stream_query, device, stream);
    found.check();
    return status;
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::stream_synchronize, device, stream, timeout_ns);
    found.check();
  }
  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    DeviceFault& found = state(device);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    if (found.hangs(stream)) {
      found.hold(stream, [fn, arg] { fn(arg, BP_FAULT); });
      return;
    }
    struct Call {
      DeviceFault* state;
      bp_callback fn;
      void* arg;
    };
    auto call = std::make_unique<Call>(Call{&found, fn, arg});
    const auto run = [](void* given, int32_t status) {
      const std::unique_ptr<Call> one(static_cast<Call*>(given));
      const int32_t sticky = one->state->sticky();
      one->fn(one->arg, sticky == BP_OK ? status : sticky);
    };
    checked_call(below_.stream_callback(below_.self, device, stream, run, call.get()));
    static_cast<void>(call.release());
  }
  /// Asked for each launch of a vendor's own, which passes the driver by: it counts as a piece of work, and fails or hangs like one.
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    queue(alive(device), device, stream, "a vendor's kernel");
    if (below_.stream_native) {
      pass(&bp_driver::stream_native, device, stream, out);
    } else {
      *out = reinterpret_cast<uint64_t>(stream);
    }
  }
  void stream_from_native(int32_t device, uint64_t native, bp_stream** out) { pass(&bp_driver::stream_from_native, device, native, out); }

  // ---- events

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    state(device).check();
    if (strikes(settings_.event, device)) throw Error(BP_INTERNAL, settings_.event.text("event_create: the device refused an event"));
    pass(&bp_driver::event_create, device, flags, out);
  }
  void event_destroy(int32_t device, bp_event* event) {
    state(device).set_hangs(event, false);
    release(device, below_.event_destroy(below_.self, device, event));
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    DeviceFault& found = state(device);
    found.check();
    const bool hangs = found.hangs(stream);
    if (found.hangs()) found.set_hangs(event, hangs);
    if (!hangs) pass(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) return BP_PENDING;
    const int32_t status = pass(&bp_driver::event_query, device, event);
    found.check();
    return status;
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) found.wait_in_vain(timeout_ns);
    pass(&bp_driver::event_synchronize, device, event, timeout_ns);
    found.check();
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    for (const auto& owner : devices_) {  // the event may be another device's
      if (owner->hangs(event)) return found.hang(stream);
    }
    if (!found.hangs(stream)) pass(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(start) || found.hangs(end)) return BP_PENDING;
    return pass(&bp_driver::event_elapsed, device, start, end, ns);
  }

  // ---- groups

  void query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    if (!below_.query_ext) throw Error(BP_UNSUPPORTED, "the driver has no groups");
    std::call_once(found_, [this] { find_groups(); });
    const bp_ext* found = nullptr;
    const auto look = [&](const auto& group) {
      if (std::strcmp(id, group.id) != 0) return;
      if (!group.below || version != group.version) {
        throw Error(BP_UNSUPPORTED, "no group " + std::string(id) + " version " + std::to_string(version));
      }
      found = &group.offered.head;
    };
    std::apply([&](const auto&... group) { (look(group), ...); }, groups_);
    if (!found) return static_cast<void>(pass(&bp_driver::query_ext, id, version, out));
    *out = found;
  }

  void vmm_reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    alive(device);
    if (strikes(settings_.reserve, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.reserve.text("vmm.reserve: no addresses for " + std::to_string(bytes) + " bytes"));
    }
    pass_group<&bp_vmm::reserve>(device, bytes, out);
  }
  void vmm_release(int32_t device, uint64_t address, uint64_t bytes) { release_group<&bp_vmm::release>(device, address, bytes); }
  void vmm_map(int32_t device, uint64_t address, uint64_t bytes) {
    alive(device);
    if (strikes(settings_.map, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.map.text("vmm.map: no room for " + std::to_string(bytes) + " bytes"));
    }
    pass_group<&bp_vmm::map>(device, address, bytes);
  }
  void vmm_unmap(int32_t device, uint64_t address, uint64_t bytes) {
    if (state(device).sticky() != BP_DEVICE_LOST && strikes(settings_.unmap, device)) {
      throw Error(BP_INTERNAL, settings_.unmap.text("vmm.unmap: the memory could not be returned"));
    }
    release_group<&bp_vmm::unmap>(device, address, bytes);
  }

  void compiler_compile(const bp_compile_request* request, bp_compile_result* out) {
    if (strikes(settings_.compile, settings_.device)) {
      throw Error(BP_INTERNAL, settings_.compile.text("compiler.compile: the compiler broke"));
    }
    pass_group<&bp_compiler::compile>(request, out);
  }

  void module_load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    alive(device);
    if (strikes(settings_.load, device)) throw Error(BP_INTERNAL, settings_.load.text("module.load: the device refused the code"));
    pass_group<&bp_module::load>(device, code, bytes, out);
  }
  void module_unload(int32_t device, bp_module_code* module) { release_group<&bp_module::unload>(device, module); }

  void graph_capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    alive(device);
    if (strikes(settings_.capture, device)) throw Error(BP_INTERNAL, settings_.capture.text("graph.capture_begin: the stream refused"));
    captured_ = true;
    pass_group<&bp_graph::capture_begin>(device, stream, mode, id);
  }
  void graph_instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
    alive(device);
    if (strikes(settings_.instantiate, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.instantiate.text("graph.instantiate: no room for the graph"));
    }
    pass_group<&bp_graph::instantiate>(device, recording, flags, out);
  }
  void graph_launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a graph")) pass_group<&bp_graph::launch>(device, stream, exec);
  }
  void graph_recording_destroy(int32_t device, bp_recording* recording) { release_group<&bp_graph::recording_destroy>(device, recording); }
  void graph_exec_destroy(int32_t device, bp_graph_exec* exec) { release_group<&bp_graph::exec_destroy>(device, exec); }

  void collective_create(int32_t device, const bp_comm_config* config, bp_comm** out) {
    alive(device);
    pass_group<&bp_collective::create>(device, config, out);
    communicators_.add(*out, device);
  }
  void collective_split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
    const int32_t device = communicators_.find(comm)->device();
    pass_group<&bp_collective::split>(comm, color, config, out);
    if (*out) communicators_.add(*out, device);
  }
  void collective_destroy(bp_comm* comm, uint64_t timeout_ns) {
    const auto found = communicators_.find(comm);
    if (!found->wait(timeout_ns)) throw Error(BP_TIMEOUT, settings_.collective_hang.text("collective.destroy: its work is not complete"));
    release(found->device(), call_group<&bp_collective::destroy>(&bp_collective::destroy, comm, timeout_ns));
    communicators_.remove(comm);
  }
  void collective_abort(bp_comm* comm) {
    const auto found = communicators_.find(comm);
    pass_group<&bp_collective::abort>(comm);
    found->release();
  }
  void collective_status(bp_comm* comm, int32_t* out, char* text, uint64_t size) {
    const std::string failure = communicators_.find(comm)->failure();
    pass_group<&bp_collective::status>(comm, out, text, size);
    if (failure.empty()) return;
    *out = BP_INTERNAL;
    if (size) std::snprintf(text, size, "%s", failure.c_str());
  }
  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    if (strikes(settings_.profile, settings_.device))
      throw Error(BP_INTERNAL, settings_.profile.text("profile.start: no counters are free"));
    pass_group<&bp_profile::start>(kinds, fn, arg);
  }
  /// Every call that queues.
  template <auto Slot, class... Args>
  void collective_queue(bp_comm* comm, bp_stream* stream, Args... args) {
    const auto found = communicators_.find(comm);
    if (!found->failure().empty()) throw Error(BP_INTERNAL, "the communicator has failed: " + found->failure());
    const int32_t device = found->device();
    DeviceFault& state = alive(device);
    if (strikes(settings_.collective, device)) return fail_communicator(comm, settings_.collective.text("a transfer between ranks failed"));
    if (strikes(settings_.collective_hang, device)) return hang_communicator(state, found, stream);
    if (!queue(state, device, stream, "a collective")) {
      if (!state.hangs(stream)) fail_communicator(comm, settings_.kernel.text("its device is in error"));
      return;
    }
    if (settings_.kernel.armed() && below_.stream_callback) gate(comm, found, state, stream);
    pass_group<Slot>(comm, stream, args...);
  }

 private:
  /// The peers see an abort, where the driver below has one.
  void fail_communicator(bp_comm* comm, const std::string& text) { fail_communicator(comm, *communicators_.find(comm), text); }
  void fail_communicator(bp_comm* comm, CommunicatorFault& known, const std::string& text) {
    known.fail(text);
    call_group<&bp_collective::abort>(&bp_collective::abort, comm);
  }
  /// Before a collective on its stream: a device that has failed by then takes part in nothing, as none that is really in error does.
  void gate(bp_comm* comm, const Communicators::Known& known, DeviceFault& state, bp_stream* stream) {
    struct Gate {
      Fault* owner;
      bp_comm* comm;
      Communicators::Known known;
      DeviceFault* state;
    };
    auto kept = std::make_unique<Gate>(Gate{this, comm, known, &state});
    const auto pass_if_well = [](void* given, int32_t) {
      const std::unique_ptr<Gate> one(static_cast<Gate*>(given));
      if (one->state->sticky() == BP_OK) return;
      one->owner->fail_communicator(one->comm, *one->known, one->owner->settings_.kernel.text("its device is in error"));
    };
    checked_call(below_.stream_callback(below_.self, known->device(), stream, pass_if_well, kept.get()));
    static_cast<void>(kept.release());
  }
  /// Where the driver below has no callbacks nothing can let the stream go on.
  void hang_communicator(DeviceFault& state, const Communicators::Known& comm, bp_stream* stream) {
    if (!below_.stream_callback) return state.hang(stream);
    comm->hang();
    auto kept = std::make_unique<Communicators::Known>(comm);
    const auto stand_still = [](void* given, int32_t) {
      const std::unique_ptr<Communicators::Known> one(static_cast<Communicators::Known*>(given));
      (*one)->stand_still();
    };
    checked_call(below_.stream_callback(below_.self, comm->device(), stream, stand_still, kept.get()));
    static_cast<void>(kept.release());
  }

  /// A host function on its way: skipped after a fault, its destroy runs once.
  struct Work {
    DeviceFault* state;
    int32_t (*fn)(void*);
    void* arg;
    void (*destroy)(void*);
    bool fails;
    Fault* owner;

    ~Work() {
      if (destroy) destroy(arg);
    }
    int32_t run() {
      if (state->sticky() != BP_OK) return BP_OK;
      if (!fails) return fn(arg);
      state->suffer(BP_FAULT, owner->settings_.kernel.text("a kernel failed: bad address"));
      return BP_OK;
    }
  };

  static bp_driver checked(const bp_driver* table) {
    if (!table) throw Error(BP_INVALID_ARGUMENT, "fault is a shim: it needs a driver below it");
    if (auto mismatch = abi_mismatch(table->abi_major, table->abi_minor)) throw Error(BP_UNSUPPORTED, "the driver below has " + *mismatch);
    const bp_driver copy = normalised(*table);
    if (!is_complete(copy)) throw Error(BP_UNSUPPORTED, "fault needs a complete driver below it: put the shim emulate between them");
    return copy;
  }

  /// Returns BP_OK or BP_PENDING; throws the rest with the words of the driver below.
  int32_t checked_call(int32_t status) {
    if (status == BP_OK || status == BP_PENDING) [[likely]]
      return status;
    throw Error(checked_status(status), last_error_text(below_));
  }
  template <class... Params, class... Args>
  int32_t pass(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) {
    return checked_call((below_.*slot)(below_.self, args...));
  }
  template <auto Slot, class Group, class... Params, class... Args>
  int32_t call_group(int32_t (*Group::*)(void*, Params...), Args... args) {
    const Group& below = *std::get<Wrapped<Group>>(groups_).below;
    return (below.*Slot)(below.head.self, args...);
  }
  /// The entry of a group below.
  template <auto Slot, class... Args>
  void pass_group(Args... args) {
    checked_call(call_group<Slot>(Slot, args...));
  }
  /// A destroy: a lost device has nothing left to complain about.
  void release(int32_t device, int32_t status) {
    if (state(device).sticky() != BP_DEVICE_LOST) checked_call(status);
  }
  template <auto Slot, class... Args>
  void release_group(int32_t device, Args... args) {
    release(device, call_group<Slot>(Slot, device, args...));
  }

  /// A group of the SDK's, as the driver below has it and as the shim offers it.
  template <class Group>
  struct Wrapped : GroupTraits<Group> {
    std::optional<Group> below;
    Group offered{};
  };
  template <class, class... Each>
  using Tuple = std::tuple<Wrapped<Each>...>;
#define BP_WRAPPED(group, GROUP, about) , bp_##group
  using Groups = Tuple<void BP_DRIVER_GROUPS(BP_WRAPPED)>;
#undef BP_WRAPPED

  /// The C function for a slot that passes through, whose parameters it takes apart.
  template <auto Slot>
  struct Pass;
  template <class Group, class... Args, int32_t (*Group::*Slot)(void*, Args...)>
  struct Pass<Slot> {
    static constexpr auto entry() { return slot<&Fault::pass_group<Slot, Args...>>(); }
  };
  /// The same for a call of bp.collective that queues: it takes a communicator and a stream.
  template <auto Slot>
  struct Queue {
    static constexpr bool is = false;
  };
  template <class... Args, int32_t (*bp_collective::*Slot)(void*, bp_comm*, bp_stream*, Args...)>
  struct Queue<Slot> {
    static constexpr bool is = true;
    static constexpr auto entry() { return slot<&Fault::collective_queue<Slot, Args...>>(); }
  };
  static_assert(Queue<&bp_collective::barrier>::is && Queue<&bp_collective::all_to_all_v>::is && !Queue<&bp_collective::abort>::is);
  template <class Group>
  void find(Wrapped<Group>& group) {
    group.below = find_group<Group>(below_);
    if (!group.below) return;
    group.offered.head = group_head<Group>(group.below->head.flags);
    GroupTraits<Group>::each_slot([&](auto slot) { group.offered.*decltype(slot)::value = Pass<decltype(slot)::value>::entry(); });
  }
  /// Looks for the groups below; what may fail, or counts as work, goes by a method of the shim's.
  void find_groups() {
    std::apply([this](auto&... group) { (find(group), ...); }, groups_);
    std::get<Wrapped<bp_host_exec>>(groups_).offered.enqueue = slot<&Fault::exec_enqueue>();
    auto& vmm = std::get<Wrapped<bp_vmm>>(groups_).offered;
    vmm.reserve = slot<&Fault::vmm_reserve>();
    vmm.release = slot<&Fault::vmm_release>();
    vmm.map = slot<&Fault::vmm_map>();
    vmm.unmap = slot<&Fault::vmm_unmap>();
    std::get<Wrapped<bp_compiler>>(groups_).offered.compile = slot<&Fault::compiler_compile>();
    auto& module = std::get<Wrapped<bp_module>>(groups_).offered;
    module.load = slot<&Fault::module_load>();
    module.unload = slot<&Fault::module_unload>();
    module.launch = slot<&Fault::module_launch>();
    auto& graph = std::get<Wrapped<bp_graph>>(groups_).offered;
    graph.capture_begin = slot<&Fault::graph_capture_begin>();
    graph.instantiate = slot<&Fault::graph_instantiate>();
    graph.launch = slot<&Fault::graph_launch>();
    graph.recording_destroy = slot<&Fault::graph_recording_destroy>();
    graph.exec_destroy = slot<&Fault::graph_exec_destroy>();
    auto& collective = std::get<Wrapped<bp_collective>>(groups_).offered;
    collective.create = slot<&Fault::collective_create>();
    collective.split = slot<&Fault::collective_split>();
    collective.destroy = slot<&Fault::collective_destroy>();
    collective.abort = slot<&Fault::collective_abort>();
    collective.status = slot<&Fault::collective_status>();
    std::get<Wrapped<bp_profile>>(groups_).offered.start = slot<&Fault::profile_start>();
    GroupTraits<bp_collective>::each_slot([&](auto entry) {
      using Entry = Queue<decltype(entry)::value>;
      if constexpr (Entry::is) collective.*decltype(entry)::value = Entry::entry();
    });
  }

  DeviceFault& state(int32_t device) {
    if (static_cast<size_t>(device) >= devices_.size()) [[unlikely]] {
      throw Error(BP_INVALID_DEVICE, "no device " + std::to_string(device) + ": there are " + std::to_string(devices_.size()));
    }
    return *devices_[static_cast<size_t>(device)];
  }
  bool strikes(FaultKind& kind, int32_t device) {
    if (!kind.armed() || (settings_.device >= 0 && settings_.device != device)) return false;
    if (!settings_.armed) {
      if (access(settings_.armed_by.c_str(), F_OK) != 0) return false;
      settings_.armed = true;
    }
    return kind.strikes();
  }

  /// For every call that may lose the device.
  DeviceFault& alive(int32_t device) {
    DeviceFault& found = state(device);
    if (strikes(settings_.lost, device)) {
      found.suffer(BP_DEVICE_LOST, settings_.lost.text("device " + std::to_string(device) + " has fallen off the bus"));
    }
    found.check();
    return found;
  }

  void fail_copy(int32_t device, uint64_t bytes) {
    if (strikes(settings_.copy, device)) {
      throw Error(BP_INTERNAL, settings_.copy.text("the transfer of " + std::to_string(bytes) + " bytes was aborted"));
    }
  }

  /// True if the stream captures. What is recorded does not run, so it does not count: its launch does, as one piece of work.
  bool captures(int32_t device, bp_stream* stream) {
    if (!captured_) return false;
    int32_t status = BP_CAPTURE_NONE;
    return call_group<&bp_graph::capture_status>(&bp_graph::capture_status, device, stream, &status, nullptr) == BP_OK &&
           status != BP_CAPTURE_NONE;
  }

  /// True if work of the driver's own goes to it. A failing one goes behind a mark, which the stream comes to first; where the driver below
  /// has no callbacks, the device fails at once.
  bool queue(DeviceFault& found, int32_t device, bp_stream* stream, const char* what) {
    if (captures(device, stream)) return true;
    if (strikes(settings_.hang, device)) found.hang(stream);
    if (found.hangs(stream)) return false;
    if (!strikes(settings_.kernel, device)) return true;
    const std::string text = settings_.kernel.text(std::string(what) + " failed: bad address");
    if (!below_.stream_callback) {
      found.suffer(BP_FAULT, text);
      return false;
    }
    struct Mark {
      DeviceFault* state;
      std::string text;
    };
    auto mark = std::make_unique<Mark>(Mark{&found, text});
    const auto strike = [](void* arg, int32_t) {
      const std::unique_ptr<Mark> one(static_cast<Mark*>(arg));
      one->state->suffer(BP_FAULT, one->text);
    };
    checked_call(below_.stream_callback(below_.self, device, stream, strike, mark.get()));
    static_cast<void>(mark.release());
    return false;
  }

  Settings settings_;
  const bp_driver below_;
  std::vector<std::unique_ptr<DeviceFault>> devices_;
  Communicators communicators_;
  std::atomic<bool> captured_{false};  // something was, at some time
  std::once_flag found_;
  Groups groups_;
};

}  // namespace backplane::driver::fault

BP_DEFINE_DRIVER(backplane::driver::fault::Fault)
