// drivers/shims/fault/fault.cpp: the shim that makes a working driver fail on request, so that its callers can be tested.
//
// Its inner driver is complete: emulate, where it is needed, is further in. Streams and events keep the handles of the inner driver, so
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
    refuse(settings.alloc, device, BP_OUT_OF_MEMORY, "alloc: no room for ", bytes, " bytes");
    inner(&bp_driver::alloc, device, bytes, flags, out);
    state.check();
  }

  void free(int32_t device, uint64_t address) {
    if (of(device).sticky() == BP_DEVICE_LOST) {
      inner.status(&bp_driver::free, device, address);
      return;
    }
    refuse(settings.free, device, BP_INTERNAL, "free: the memory could not be returned");
    inner(&bp_driver::free, device, address);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    refuse(settings.host_alloc, settings.device, BP_OUT_OF_MEMORY, "host_alloc: no pinned memory for ", bytes, " bytes");
    inner(&bp_driver::host_alloc, bytes, flags, out);
  }
  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    of(device).check();
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
    DeviceFault& found = of(device);
    found.check();
    if (found.hangs()) found.wait_without_end(timeout_ns);
    inner(&bp_driver::synchronize, device, timeout_ns);
    found.check();
  }

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    of(device).check();
    refuse(settings.stream, device, BP_INTERNAL, "stream_create: the device refused a queue");
    inner(&bp_driver::stream_create, device, priority, flags, out);
  }
  void stream_destroy(int32_t device, bp_stream* stream) {
    of(device).forget(stream);
    release(device, [&] { inner(&bp_driver::stream_destroy, device, stream); });
  }
  int32_t stream_query(int32_t device, bp_stream* stream) { return query(&bp_driver::stream_query, device, stream); }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    wait(&bp_driver::stream_synchronize, device, stream, timeout_ns);
  }
  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    DeviceFault& found = of(device);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    if (found.hangs(stream)) {
      found.hold(stream, [fn, arg] { fn(arg, BP_FAULT); });
      return;
    }
    inner.callback(device, stream, [fault = &found, fn, arg](int32_t status) {
      const int32_t sticky = fault->sticky();
      fn(arg, sticky == BP_OK ? status : sticky);
    });
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
    of(device).check();
    refuse(settings.event, device, BP_INTERNAL, "event_create: the device refused an event");
    inner(&bp_driver::event_create, device, flags, out);
  }
  void event_destroy(int32_t device, bp_event* event) {
    of(device).set_hangs(event, false);
    release(device, [&] { inner(&bp_driver::event_destroy, device, event); });
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    DeviceFault& found = of(device);
    found.check();
    const bool hangs = found.hangs(stream);
    if (found.hangs()) found.set_hangs(event, hangs);
    if (!hangs) inner(&bp_driver::event_record, device, stream, event, flags);
  }
  int32_t event_query(int32_t device, bp_event* event) { return query(&bp_driver::event_query, device, event); }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    wait(&bp_driver::event_synchronize, device, event, timeout_ns);
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    DeviceFault& found = of(device);
    found.check();
    for (const auto& owner : devices) {  // the event may be another device's
      if (owner->hangs(event)) return found.hang(stream);
    }
    if (!found.hangs(stream)) inner(&bp_driver::stream_wait, device, stream, event);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    DeviceFault& found = of(device);
    found.check();
    if (found.hangs(start) || found.hangs(end)) return BP_PENDING;
    return inner(&bp_driver::event_elapsed, device, start, end, ns);
  }

 private:
  /// Of a stream or an event, which may hang.
  template <class Slot, class Handle>
  int32_t query(Slot slot, int32_t device, Handle* handle) {
    DeviceFault& found = of(device);
    found.check();
    if (found.hangs(handle)) return BP_PENDING;
    const int32_t status = inner(slot, device, handle);
    found.check();
    return status;
  }
  template <class Slot, class Handle>
  void wait(Slot slot, int32_t device, Handle* handle, uint64_t timeout_ns) {
    DeviceFault& found = of(device);
    found.check();
    if (found.hangs(handle)) found.wait_without_end(timeout_ns);
    inner(slot, device, handle, timeout_ns);
    found.check();
  }

  void fail_copy(int32_t device, uint64_t bytes) {
    refuse(settings.copy, device, BP_INTERNAL, "the transfer of ", bytes, " bytes was aborted");
  }

  template <class Group, class Entries>
  void offer_found(Entries& entries, PassingGroup<Group>& group) {
    if (group.find()) offer<Group>(entries, group.flags(), group.version());
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
