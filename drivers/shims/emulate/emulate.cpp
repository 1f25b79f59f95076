// drivers/shims/emulate/emulate.cpp: the shim that makes a complete driver of a partial one.
//
// What the inner driver has passes through to it. Streams and events come in pairs: if it has not both groups, both are the shim's own
// (drivers/engine), their work runs on the inner driver's default stream, and its groups that take a stream are hidden or wrapped, since
// they would not know the shim's handles. Pinned memory, host_register, fill and copy_async are supplied where they are missing. A driver
// with BP_DRIVER_SERIALIZE is locked here, and is waited for outside the lock; its bp.compiler is called without the lock. bp.profile is
// made where it is missing: by the host's clock on the shim's own streams, else of timing events. bp.graph passes only where the shim
// supplies neither streams, pinned memory, fill nor the lock.
#include <cstring>
#include <mutex>
#include <string>

#include "../../engine/fill.h"
#include "host_exec.h"
#include "modules.h"
#include "profile.h"
#include "state.h"
#include "transfer.h"

namespace backplane::driver::emulate {

struct VmmEntries : Intercepted<bp_vmm> {
  using InterceptedGroup::InterceptedGroup;

  // What takes memory says that the device is in error, as alloc does.
  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    state.check(device);
    (*this)(&bp_vmm::reserve, device, bytes, out);
  }
  void map(int32_t device, uint64_t address, uint64_t bytes) {
    state.check(device);
    (*this)(&bp_vmm::map, device, address, bytes);
  }
};

struct GraphEntries : Intercepted<bp_graph> {
  using InterceptedGroup::InterceptedGroup;

  /// One record of a run, where the records are the shim's: what it holds has none of its own.
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    state.events.around(Records::work(BP_ACTIVITY_KERNEL, device), stream, [&] { (*this)(&bp_graph::launch, device, stream, exec); });
  }
};

class Emulate final : public Driver<Emulate>, private State {
 public:
  explicit Emulate(const Host& host) : Driver(host), State(host) {
    set_flags((inner->flags & ~BP_DRIVER_SERIALIZE) | (own_streams ? BP_DRIVER_OWN_STREAMS : 0u));
    pass_through([this](auto slot) { return (*inner).*slot.value || (own_streams && has_method<Engine, decltype(slot)>); });
    if (own_streams) drop(&bp_driver::stream_native);
    if (!inner->pointer_info) drop(&bp_driver::pointer_info);
    if (!has_host_register(*inner) && !knows_pinned) {
      drop(&bp_driver::host_register);
      drop(&bp_driver::host_unregister);
    }
  }

  ~Emulate() {
    engine.shutdown();
    inner.close();
  }

  /// An entry without a method: of the shim's own streams, or the inner driver's.
  template <class Slot, class... Args>
  int32_t pass(Args... args) {
    if constexpr (has_method<Engine, Slot>) {
      if (own_streams) return (engine.*Slot::template method<Engine>())(args...);
    }
    return inner(Slot::value, args...);
  }

  // ---- the minimum

  void device_properties(int32_t device, bp_device_properties* out) {
    inner(&bp_driver::device_properties, device, out);
    if (!own_streams) return;
    out->stream_limit = settings.streams;
    out->priority_least = Engine::kPriorityLeast;
    out->priority_greatest = Engine::kPriorityGreatest;
  }

  void open() {
    int32_t devices = 0;
    inner(&bp_driver::device_count, &devices);
    inner(&bp_driver::open);
    engine.configure({"emulate", devices, settings.workers, settings.streams});
    engine.open_engine();
  }

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    check(device);
    inner(&bp_driver::alloc, device, bytes, flags, out);
  }
  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (!own_streams) {
      drain_outside_lock(device, stream);
      return events.around(Records::copy(device, dst_device, src_device, bytes), stream, [&] { copy_inner(inner, device, stream, copy); });
    }
    Stream& on = engine.usable(device, stream);
    auto record = bytes ? recorder.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr;
    on.run_blocking([&] {
      if (record) record->begin();
      watched(device, [&] { copy_inner(inner, device, nullptr, copy); });
      if (record) record.release()->end(true);
    });
    on.device().check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (knows_pinned) {
      if (copy.from_host()) pinned.check(src, bytes);
      if (copy.to_host()) pinned.check(dst, bytes);
    }
    if (!own_streams) {
      return events.around(Records::copy(device, dst_device, src_device, bytes), stream, [&] {
        // The inner driver does not know the shim's pinned memory: for it that is pageable.
        if (own_pinned && !copy.between_devices()) return copy_inner(inner, device, stream, copy);
        inner(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
      });
    }
    need_no_flags("copy_async", flags);  // here: what a queued call refuses would be a fault of the device
    queue(
        engine.usable(device, stream), device, [&] { copy_inner(inner, device, nullptr, copy); },
        job_of([this, device, dst_device, src_device, dst, src, bytes](int32_t status) {
          if (status == BP_OK) copy_inner(inner, device, nullptr, {dst, dst_device, src, src_device, bytes, 0});
        }),
        bytes ? recorder.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr);
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const FillPattern row(pattern, pattern_size, count, dst);
    if (own_streams || !inner->fill) need_no_flags("fill", flags);
    if (!own_streams) {
      return events.around(Records::work(BP_ACTIVITY_FILL, device, row.bytes), stream,
                           [&] { fill_inner(device, stream, dst, row, flags); });
    }
    queue(
        engine.usable(device, stream), device, [&] { fill_inner(device, nullptr, dst, row, 0); },
        job_of([this, device, dst, row](int32_t status) {
          if (status == BP_OK) fill_inner(device, nullptr, dst, row, 0);
        }),
        row.bytes ? recorder.queue(BP_ACTIVITY_FILL, device, stream, row.bytes) : nullptr);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (own_pinned) {
      if (!out || flags != 0) throw Error(BP_INVALID_ARGUMENT, "host_alloc: out must not be NULL, flags must be 0");
      *out = pinned.alloc(bytes);
    } else {
      inner(&bp_driver::host_alloc, bytes, flags, out);
      if (knows_pinned) pinned.adopt(*out, bytes);
    }
  }
  void host_free(void* ptr) {
    if (own_pinned) return pinned.free(ptr);
    if (knows_pinned) pinned.disown(ptr);
    inner(&bp_driver::host_free, ptr);
  }
  void host_register(void* ptr, uint64_t bytes) {
    if (knows_pinned) pinned.add(ptr, bytes);
    if (!has_host_register(*inner)) return;
    try {
      inner(&bp_driver::host_register, ptr, bytes);
    } catch (...) {
      if (knows_pinned) pinned.remove(ptr);
      throw;
    }
  }
  void host_unregister(void* ptr) {
    if (knows_pinned) pinned.remove(ptr);
    if (has_host_register(*inner)) inner(&bp_driver::host_unregister, ptr);
  }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    if (const auto block = pinned.find(address)) {
      *out = {sizeof *out, block->kind, BP_HOST_DEVICE, block->base, block->bytes};
      return;
    }
    inner(&bp_driver::pointer_info, address, out);
  }

  // ---- waits, outside the lock

  void synchronize(int32_t device, uint64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    if (own_streams) engine.synchronize(device, timeout_ns);
    inner.wait(&bp_driver::synchronize, deadline.left_ns(), device);
  }
  void stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    if (own_streams) {
      engine.stream_synchronize(device, stream, timeout_ns);
    } else {
      inner.wait(&bp_driver::stream_synchronize, timeout_ns, device, stream);
    }
  }
  void event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    if (own_streams) {
      engine.event_synchronize(device, event, timeout_ns);
    } else {
      inner.wait(&bp_driver::event_synchronize, timeout_ns, device, event);
    }
  }
  int32_t stream_destroy(int32_t device, bp_stream* stream) {
    if (own_streams) return engine.stream_destroy(device, stream);
    drain_outside_lock(device, stream);
    return inner(&bp_driver::stream_destroy, device, stream);
  }

  // ---- groups

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    std::call_once(groups_found_, [this] { find_groups(); });
    if (const bp_ext* found = offered(id, version)) {
      *out = found;
      return BP_OK;
    }
    if (std::strcmp(id, BP_GRAPH_ID) == 0 && hides_graphs()) {
      throw Error(BP_UNSUPPORTED,
                  "bp.graph: emulate supplies streams, copies, fills or the lock, which no capture of the driver's can hold");
    }
    if (!own_streams && !inner.serialize() && inner->query_ext) return inner(&bp_driver::query_ext, id, version, out);
    throw Error(BP_UNSUPPORTED, std::string("no group ") + id + " version " + std::to_string(version) + " can pass through emulate");
  }

 private:
  void fill_inner(int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row, uint32_t flags) {
    if (inner->fill) {
      inner(&bp_driver::fill, device, stream, dst, static_cast<const void*>(&row.word), row.size, row.bytes / row.size, flags);
      if (own_streams) inner.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    fill_by_copies(inner, device, stream, dst, row);
  }

  /// A recording would not contain what the shim does itself: work on its own streams, copies and fills that wait. And a wait under the
  /// lock only queries, which no capture notices.
  bool hides_graphs() const { return own_streams || own_pinned || !inner->fill || inner.serialize(); }

  template <class Group, class Entries>
  void offer_found(Entries& entries) {
    if (entries.find()) offer<Group>(entries, entries.flags(), entries.version());
  }

  /// Looks for the inner driver's groups that the shim wraps.
  void find_groups() {
    offer_found<bp_host_view>(host_view_);
    offer_found<bp_peer>(peer_);
    offer_found<bp_vmm>(vmm_);
    offer_found<bp_compiler>(compiler_);
    own_streams ? offer_found<bp_module>(own_modules_) : offer_found<bp_module>(modules_);
    if (!hides_graphs()) offer_found<bp_graph>(graphs_);
    if (host_exec_.find()) offer<bp_host_exec>(host_exec_);
    profile_.find();
    if (own_streams) {
      offer<bp_profile>(profile_, BP_PROFILE_NAMES | (profile_.flags() & BP_PROFILE_RANGES));
    } else if (profile_.found()) {
      offer<bp_profile>(static_cast<PassingGroup<bp_profile>&>(profile_), profile_.flags());
    } else {
      offer<bp_profile>(events);
    }
  }

  std::once_flag groups_found_;
  PassingGroup<bp_host_view> host_view_{inner};
  PassingGroup<bp_peer> peer_{inner};
  PassingGroup<bp_compiler> compiler_{inner};
  VmmEntries vmm_{*this};
  ModuleEntries modules_{*this};
  OwnModuleEntries own_modules_{*this, compiler_};
  GraphEntries graphs_{*this};
  HostExecEntries host_exec_{*this, host_view_};
  ProfileEntries profile_{*this};
};

}  // namespace backplane::driver::emulate

BP_DEFINE_DRIVER(backplane::driver::emulate::Emulate)
