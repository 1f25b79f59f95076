// drivers/vulkan/vulkan.cpp: the driver's table: entries of the ABI in terms of Vulkan. README.md lists the call of each entry.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "graph.h"
#include "instance.h"
#include "module_entries.h"

namespace backplane::driver::vulkan {

/// Of unified memory.
struct HostViewEntries {
  Instance& instance;

  void map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    need(out, "host_view.map: out");
    if (access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) throw Error(BP_INVALID_ARGUMENT, "host_view.map: unknown access");
    *out = Memory::host(instance.runtime_of(device).memory.range({address, device}, bytes, "host_view.map"));
  }
  void unmap(int32_t device, uint64_t, void*) { instance.info_of(device); }
};

class Vulkan final : public Driver<Vulkan>, public Instance {
 public:
  explicit Vulkan(const Host& host) : Driver(host, BP_DRIVER_OWN_STREAMS), Instance(host.config(), table()) {
    const auto all = [this](auto&& has) { return std::all_of(survey.devices.begin(), survey.devices.end(), has); };
    if (all([](const DeviceInfo& one) { return one.memory_kind == MemoryKind::unified; })) {
      const bool same = all([](const DeviceInfo& one) { return one.same_address; });
      offer<bp_host_view>(host_view_, BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ | (same ? BP_HOST_VIEW_SAME_ADDRESS : 0));
    }
    if (all([](const DeviceInfo& one) { return one.int64; })) {
      offer<bp_compiler>(compiler_entries_);
      offer<bp_module>(modules_);
    }
    offer<bp_profile>(profile, BP_PROFILE_NAMES);
    offer<bp_graph>(graphs_, BP_GRAPH_DUMP);
    if (!all([](const DeviceInfo& one) { return one.has_budget; })) drop(&bp_driver::memory_info);
  }

  // ---- the minimum

  void device_count(int32_t* out) {
    need(out, "device_count: out");
    *out = count();
  }

  void device_properties(int32_t device, bp_device_properties* out) {
    const DeviceInfo& info = info_of(device);
    std::memcpy(out->name, info.name, sizeof out->name);
    std::memcpy(out->vendor, info.vendor, sizeof out->vendor);
    std::memcpy(out->driver_version, info.driver_version, sizeof out->driver_version);
    std::memcpy(out->bus_id, info.bus_id, sizeof out->bus_id);
    std::memcpy(out->uuid, info.uuid, sizeof out->uuid);
    out->total_memory = info.memory;
    out->max_allocation = info.max_allocation;
    out->dtypes = compiler.target(device).dtypes;
    out->alignment = BP_MIN_ALIGNMENT;
    out->copy_alignment = 1;
    out->priority_greatest = info.queues > 1 ? -1 : 0;
    out->capability_major = static_cast<int32_t>(major_of(info.api_version));
    out->capability_minor = static_cast<int32_t>(minor_of(info.api_version));
    out->threads_per_unit = static_cast<int32_t>(info.max_group);
    out->warp_size = static_cast<int32_t>(info.warp);
  }

  void open() {}

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    Device& on = at(device);
    need_no_flags("alloc", flags);
    need(out, "alloc: out");
    *out = runtime().memory.alloc(on, bytes);
  }

  int32_t free(int32_t device, uint64_t address) {
    return released(at(device), [&] { runtime().memory.free(device, address); });
  }

  int32_t copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
               uint32_t flags) {
    Device& on = at(device);
    captures.check_stream("copy", stream);
    captures.check_wait("copy");
    const auto queue = on.stream(stream);
    const Work work = copy_work(on, {dst, dst_device}, {src, src_device}, bytes, flags, Memory::Caller::waits);
    int32_t status = BP_OK;
    profile.around(EventProfile<>::copy(device, dst_device, src_device, bytes), stream, [&] {
      if (work.record) queue->submit(work.record);
      status = queue->wait(Deadline(BP_NO_TIMEOUT));
      if (work.host) work.host();
    });
    return status;
  }

  int32_t synchronize(int32_t device, uint64_t timeout_ns) {
    Device& on = at(device);
    captures.check_device("synchronize", &on);
    captures.check_wait("synchronize", timeout_ns);
    return on.synchronize(Deadline(timeout_ns));
  }

  // ---- streams

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    Device& on = at(device);
    need_no_flags("stream_create", flags);
    need(out, "stream_create: out");
    if (priority < on.highest_priority() || priority > 0) {
      throw Error(BP_INVALID_ARGUMENT, format("stream_create: priority %d is not in [%d, 0]", priority, on.highest_priority()));
    }
    *out = reinterpret_cast<bp_stream*>(on.create_stream(priority));
  }
  int32_t stream_destroy(int32_t device, bp_stream* stream) {
    Device& on = at(device);
    captures.drop(stream);
    return released(on, [&] { on.destroy_stream(stream); });
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    captures.check_stream("stream_query", stream);
    return at(device).stream(stream)->query();
  }
  int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    captures.check_stream("stream_synchronize", stream);
    captures.check_wait("stream_synchronize", timeout_ns);
    return at(device).stream(stream)->wait(Deadline(timeout_ns));
  }
  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    Device& on = at(device);
    const auto queue = on.stream(stream);
    Work work = copy_work(on, {dst, dst_device}, {src, src_device}, bytes, flags, Memory::Caller::goes_on);
    run(*queue, stream, "copy", EventProfile<>::copy(device, dst_device, src_device, bytes), std::move(work), bytes);
  }

  // ---- events

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    at(device).check();
    need(out, "event_create: out");
    constexpr uint32_t kKnown = BP_EVENT_TIMING | BP_EVENT_BLOCKING;
    if (flags & BP_EVENT_IPC) throw Error(BP_UNSUPPORTED, "event_create: this driver has no events between processes");
    if (flags & ~kKnown) throw Error(BP_INVALID_ARGUMENT, format("event_create: unknown flags 0x%x", flags & ~kKnown));
    *out = reinterpret_cast<bp_event*>(runtime().records.add(std::make_unique<Record>(flags).release()));
  }
  int32_t event_destroy(int32_t device, bp_event* event) {
    return released(at(device), [&] { runtime().records.destroy(reinterpret_cast<Record*>(event), "event_destroy"); });
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    Device& on = at(device);
    const auto queue = on.stream(stream);
    need_no_flags("event_record", flags);
    Record& record = live(event, "event_record");
    on.check();
    if (captures.record_event(stream, record.point)) return;
    std::shared_ptr<Stamp> stamp;
    Point point;
    if (!(record.flags & BP_EVENT_TIMING)) {
      point = queue->last();
    } else {
      stamp = on.stamps().make();
      point = write(*queue, stamp);
    }
    std::lock_guard lock(record.mutex);
    record.recorded = true;
    record.latest = std::move(point);
    record.stamp = std::move(stamp);
  }
  int32_t event_query(int32_t device, bp_event* event) {
    Device& on = at(device);
    on.check();
    return on.status(ran(event, "event_query").get());
  }
  int32_t event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    Device& on = at(device);
    on.check();
    Record& record = ran(event, "event_synchronize");
    captures.check_wait("event_synchronize", timeout_ns);
    return on.wait(record.get(), Deadline(timeout_ns));
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    Device& on = at(device);
    const auto queue = on.stream(stream);
    on.check();
    Record& record = live(event, "stream_wait");
    if (captures.wait(stream, stream ? &on : nullptr, record.point)) return;
    queue->wait_for(record.get());
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    Device& on = at(device);
    need(ns, "event_elapsed: ns");
    std::shared_ptr<Stamp> stamps[2];
    for (int i = 0; i < 2; ++i) {
      Record& record = ran(i == 0 ? start : end, "event_elapsed");
      if (!(record.flags & BP_EVENT_TIMING)) throw Error(BP_INVALID_ARGUMENT, "event_elapsed: an event was made without BP_EVENT_TIMING");
      std::unique_lock lock(record.mutex);
      if (!record.recorded) throw Error(BP_INVALID_ARGUMENT, "event_elapsed: an event was never recorded");
      const Point latest = record.latest;
      stamps[i] = record.stamp;
      lock.unlock();
      if (latest && &latest.timeline->device() != &on) {
        throw Error(BP_INVALID_ARGUMENT, format("event_elapsed: an event was recorded on another device than %d", device));
      }
      if (const int32_t status = on.status(latest)) return status;
    }
    *ns = on.stamps().between(*stamps[0], *stamps[1]);
    return BP_OK;
  }

  // ---- pinned memory, and single entries

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    need_no_flags("host_alloc", flags);
    need(out, "host_alloc: out");
    *out = runtime_of(0).pinned.alloc(bytes);
  }
  void host_free(void* memory) { runtime_of(0).pinned.free(memory); }
  void host_register(void* memory, uint64_t bytes) { runtime_of(0).pinned.add(memory, bytes); }
  void host_unregister(void* memory) { runtime_of(0).pinned.remove(memory); }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    Device& on = at(device);
    const auto queue = on.stream(stream);
    need_no_flags("fill", flags);
    Work work = runtime().memory.fill(on, dst, pattern, pattern_size, count);
    run(*queue, stream, "fill", EventProfile<>::work(BP_ACTIVITY_FILL, device, count * pattern_size), std::move(work), count);
  }

  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    const auto queue = at(device).stream(stream);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    captures.check_stream("stream_callback", stream);
    queue->host([fn, arg](int32_t status) { fn(arg, status); });
  }

  /// A stream has no object of Vulkan's: its handle stands for it.
  void stream_from_native(int32_t device, uint64_t native, bp_stream** out) {
    Device& on = at(device);
    need(out, "stream_from_native: out");
    auto* const stream = reinterpret_cast<bp_stream*>(native);
    on.stream(stream);
    *out = stream;
  }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    out->kind = BP_MEMORY_UNKNOWN;
    out->device = BP_HOST_DEVICE;
    Runtime* const runtime = runtime_if_any();
    if (!runtime) return;  // nothing was allocated yet
    if (const auto found = runtime->memory.find(address)) {
      out->kind = BP_MEMORY_DEVICE;
      out->device = found->handle.device->index();
      out->base = found->base;
      out->bytes = found->bytes;
    } else if (const auto pinned = runtime->pinned.find(address)) {
      out->kind = pinned->handle->own ? BP_MEMORY_PINNED : BP_MEMORY_REGISTERED;
      out->base = pinned->base;
      out->bytes = pinned->bytes;
    }
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    Device& on = at(device);
    need(free_bytes && total_bytes, "memory_info: free_bytes and total_bytes");
    on.memory_info(free_bytes, total_bytes);
  }

 private:
  Record& live(bp_event* event, const char* call) {
    auto* record = reinterpret_cast<Record*>(event);
    if (!runtime().records.contains(record)) throw Error(BP_INVALID_ARGUMENT, std::string(call) + ": no live event of this driver");
    return *record;
  }
  /// The same for what looks at its latest record, which must not be a point of a recording.
  Record& ran(bp_event* event, const char* call) {
    Record& record = live(event, call);
    captures.check_event(call, record.point);
    return record;
  }
  /// A stream that has nothing to do is at this moment now: it does not wait in a queue behind another one's work.
  static Point write(Stream& stream, const std::shared_ptr<Stamp>& stamp) {
    Stamps& stamps = stream.device().stamps();
    const Point last = stream.last();
    if (const uint64_t now = stream.device().status(last) == BP_OK ? stamps.now() : 0) {
      stamp->set(now);
      return last;
    }
    if (!stamps.on_device()) return stream.host([&stamps, stamp](int32_t) { stamp->set(stamps.now()); });
    return stream.submit([&](Commands& commands) {
      stamp->write(commands);
      commands.keep(stamp);
    });
  }
  Work copy_work(Device& on, Place dst, Place src, uint64_t bytes, uint32_t flags, Memory::Caller caller) {
    need_no_flags("copy", flags);
    for (const int32_t side : {dst.device, src.device}) {
      if (side != BP_HOST_DEVICE) info_of(side);
    }
    return runtime().memory.copy(on, dst, src, bytes, caller);
  }
  /// Queues it, or gives it to a capture. units: 0: there is nothing to do.
  void run(Stream& queue, bp_stream* stream, const char* label, const bp_activity& what, Work&& work, uint64_t units) {
    if (captured(stream, [&]() -> Recorded { return {label, what, std::move(work)}; })) return;
    if (units == 0) return;
    profile.around(what, stream, [&] { queue.run(work); });
  }

  HostViewEntries host_view_{*this};
  CompilerEntries<Compiler> compiler_entries_{compiler};
  ModuleEntries modules_{*this};
  Graphs graphs_{*this};
};

}  // namespace backplane::driver::vulkan

BP_DEFINE_DRIVER(backplane::driver::vulkan::Vulkan)
