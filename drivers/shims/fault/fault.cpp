// drivers/shims/fault/fault.cpp: the shim that makes a sound driver fail on request, so that what stands above it can be tested.
//
// It goes over a complete driver: emulate, where it is needed, stands below. Streams and events keep the handles of the inner driver, so
// every group of it passes through; the SDK's are wrapped, so that their errors have a text.
#include <memory>
#include <mutex>
#include <string>

#include "collectives.h"
#include "groups.h"

namespace backplane::driver::fault {

class Fault : public Driver<Fault>, private State {
 public:
  explicit Fault(const Host& host) : Driver(host), State(host) {
    set_flags(inner->flags);
    pass_through([this](auto slot) { return (*inner).*slot.value != nullptr; });
    if (!inner->memory_info) drop(&bp_driver::memory_info);
    if (!inner->stream_callback) drop(&bp_driver::stream_callback);
  }

  ~Fault() {
    collectives_.release_all();
    inner.close();  // first: work that ends there still asks for the state of its device
  }

  template <class Slot, class... Args>
  int32_t pass(Args... args) {
    return inner(Slot::value, args...);
  }

  void open() {
    int32_t count = 0;
    inner(&bp_driver::device_count, &count);
    for (int32_t i = 0; i < count; ++i) devices.push_back(std::make_unique<DeviceFault>());
    inner(&bp_driver::open);
  }

  void query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    if (!inner->query_ext) throw Error(BP_UNSUPPORTED, "the driver has no groups");
    std::call_once(found_, [this] { find_groups(); });
    bool known = false;
    for_each_group([&](auto traits) { known = known || id == std::string(traits.id); });
    if (!known) {
      inner(&bp_driver::query_ext, id, version, out);
      return;
    }
    const bp_ext* const found = offered(id, version);
    if (!found) throw Error(BP_UNSUPPORTED, "no group " + std::string(id) + " version " + std::to_string(version));
    *out = found;
  }

  // ---- memory

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    DeviceFault& state = alive(device);
    if (strikes(settings.alloc, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings.alloc.text("alloc: no room for " + std::to_string(bytes) + " bytes"));
    }
    inner(&bp_driver::alloc, device, bytes, flags, out);
    state.check();
  }

  void free(int32_t device, uint64_t address) {
    if (state(device).sticky() == BP_DEVICE_LOST) {
      inner.status(&bp_driver::free, device, address);
      return;
    }
    if (strikes(settings.free, device)) throw Error(BP_INTERNAL, settings.free.text("free: the memory could not be returned"));
    inner(&bp_driver::free, device, address);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (strikes(settings.host_alloc, settings.device)) {
      throw Error(BP_OUT_OF_MEMORY, settings.host_alloc.text("host_alloc: no pinned memory for " + std::to_string(bytes) + " bytes"));
    }
    inner(&bp_driver::host_alloc, bytes, flags, out);
  }
  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    state(device).check();
    inner(&bp_driver::memory_info, device, free_bytes, total_bytes);
  }

  // ---- work

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (state.hangs(stream)) state.wait_without_end(BP_NO_TIMEOUT);
    inner(&bp_driver::copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    state.check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (queue(state, device, stream, "a copy")) {
      inner(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    }
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a fill")) inner(&bp_driver::fill, device, stream, dst, pattern, pattern_size, count, flags);
  }

  // ---- streams and events

  void synchronize(int32_t device, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs()) found.wait_without_end(timeout_ns);
    inner(&bp_driver::synchronize, device, timeout_ns);
    found.check();
  }

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    state(device).check();
    if (strikes(settings.stream, device)) throw Error(BP_INTERNAL, settings.stream.text("stream_create: the device refused a queue"));
    inner(&bp_driver::stream_create, device, priority, flags, out);
  }
  void stream_destroy(int32_t device, bp_stream* stream) {
    state(device).forget(stream);
    release(device, [&] { inner(&bp_driver::stream_destroy, device, stream); });
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) return BP_PENDING;
    const int32_t status = inner(&bp_driver::stream_query, device, stream);
    found.check();
    return status;
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(stream)) found.wait_without_end(timeout_ns);
    inner(&bp_driver::stream_synchronize, device, stream, timeout_ns);
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
    inner(&bp_driver::stream_callback, device, stream, run, call.get());
    static_cast<void>(call.release());
  }
  /// Asked for each launch of a vendor's own, which passes the driver by: it counts as a piece of work, and fails or hangs like one.
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    queue(alive(device), device, stream, "a vendor's kernel");
    if (inner->stream_native) {
      inner(&bp_driver::stream_native, device, stream, out);
    } else {
      *out = reinterpret_cast<uint64_t>(stream);
    }
  }

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    state(device).check();
    if (strikes(settings.event, device)) throw Error(BP_INTERNAL, settings.event.text("event_create: the device refused an event"));
    inner(&bp_driver::event_create, device, flags, out);
  }
  void event_destroy(int32_t device, bp_event* event) {
    state(device).set_hangs(event, false);
    release(device, [&] { inner(&bp_driver::event_destroy, device, event); });
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    DeviceFault& found = state(device);
    found.check();
    const bool hangs = found.hangs(stream);
    if (found.hangs()) found.set_hangs(event, hangs);
    if (!hangs) inner(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) return BP_PENDING;
    const int32_t status = inner(&bp_driver::event_query, device, event);
    found.check();
    return status;
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(event)) found.wait_without_end(timeout_ns);
    inner(&bp_driver::event_synchronize, device, event, timeout_ns);
    found.check();
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    DeviceFault& found = state(device);
    found.check();
    for (const auto& owner : devices) {  // the event may be another device's
      if (owner->hangs(event)) return found.hang(stream);
    }
    if (!found.hangs(stream)) inner(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    DeviceFault& found = state(device);
    found.check();
    if (found.hangs(start) || found.hangs(end)) return BP_PENDING;
    return inner(&bp_driver::event_elapsed, device, start, end, ns);
  }

 private:
  void fail_copy(int32_t device, uint64_t bytes) {
    if (strikes(settings.copy, device)) {
      throw Error(BP_INTERNAL, settings.copy.text("the transfer of " + std::to_string(bytes) + " bytes was aborted"));
    }
  }

  template <class Group, class Entries>
  void offer_found(Entries& entries, PassingGroup<Group>& group) {
    if (group.find()) offer<Group>(entries, group.flags());
  }
  void find_groups() {
    offer_found(host_view_, host_view_);
    offer_found(peer_, peer_);
    offer_found(ipc_, ipc_);
    offer_found<bp_vmm>(vmm_, vmm_);
    offer_found<bp_host_exec>(host_exec_, host_exec_);
    offer_found<bp_compiler>(compiler_, compiler_);
    offer_found<bp_module>(modules_, modules_);
    offer_found<bp_profile>(profile_, profile_);
    offer_found<bp_collective>(collectives_, collectives_);
    offer_found<bp_graph>(graphs_, graph);
  }

  std::once_flag found_;
  PassingGroup<bp_host_view> host_view_{inner};
  PassingGroup<bp_peer> peer_{inner};
  PassingGroup<bp_ipc> ipc_{inner};
  VmmEntries vmm_{*this};
  HostExecEntries host_exec_{*this};
  CompilerEntries compiler_{*this};
  ModuleEntries modules_{*this};
  ProfileEntries profile_{*this};
  CollectiveEntries collectives_{*this};
  GraphEntries graphs_{*this};
};

}  // namespace backplane::driver::fault

BP_DEFINE_DRIVER(backplane::driver::fault::Fault)
