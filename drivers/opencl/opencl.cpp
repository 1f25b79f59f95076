// drivers/opencl/opencl.cpp: the driver's table: entries of the ABI in terms of OpenCL. README.md lists the call of each entry.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "graph.h"
#include "instance.h"
#include "module_entries.h"

namespace backplane::driver::opencl {

/// Of memory of a fine grain, which the host and the device share.
struct HostViewEntries {
  Instance& instance;

  void map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    need(out, "host_view.map: out");
    if (access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) throw Error(BP_INVALID_ARGUMENT, "host_view.map: unknown access");
    instance.runtime_of(device).memory->range({address, device}, bytes, "host_view.map");
    *out = reinterpret_cast<void*>(address);
  }
  void unmap(int32_t device, uint64_t, void*) { instance.info_of(device); }
};

/// One context spans the devices.
struct PeerEntries {
  Instance& instance;

  void can_access(int32_t device, int32_t peer, int32_t* out) {
    instance.info_of(device), instance.info_of(peer);
    need(out, "peer.can_access: out");
    *out = 1;
  }
  void enable(int32_t device, int32_t peer) { instance.info_of(device), instance.info_of(peer); }
};

class OpenCl final : public Driver<OpenCl>, public Instance {
 public:
  explicit OpenCl(const Host& host) : Driver(host), Instance(host.config(), table()) {
    if (survey.devices[0].memory_kind == MemoryKind::fine) {
      offer<bp_host_view>(host_view_, BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ);
    }
    offer<bp_peer>(peer_);
    offer<bp_compiler>(compiler_entries_);
    offer<bp_module>(modules_);
    offer<bp_profile>(profile, BP_PROFILE_NAMES);
    offer<bp_graph>(graphs_, BP_GRAPH_DUMP);
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
    out->priority_least = info.has_priorities ? 1 : 0;
    out->priority_greatest = info.has_priorities ? -1 : 0;
    out->capability_major = info.version_major;
    out->capability_minor = info.version_minor;
    out->compute_units = static_cast<int32_t>(info.units);
    out->threads_per_unit = static_cast<int32_t>(info.max_group);
    out->warp_size = static_cast<int32_t>(info.warp);
    out->clock_khz = info.clock_mhz * 1000;
  }

  void open() {}

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    Device& on = at(device);
    need_no_flags("alloc", flags);
    need(out, "alloc: out");
    *out = runtime().memory->alloc(on, bytes);
  }

  int32_t free(int32_t device, uint64_t address) {
    return released(at(device), [&] { runtime().memory->free(device, address); });
  }

  int32_t copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
               uint32_t flags) {
    Device& on = at(device);
    captures.check_stream("copy", stream);
    captures.check_wait("copy");
    const Event done = queue_copy(device, stream, dst, dst_device, src, src_device, bytes, flags);
    if (!done) return on.stream(stream)->wait(Deadline(BP_NO_TIMEOUT));
    return on.wait(done, Deadline(BP_NO_TIMEOUT));
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
    const int32_t range = on.info().has_priorities ? 1 : 0;
    if (priority < -range || priority > range) {
      throw Error(BP_INVALID_ARGUMENT, format("stream_create: priority %d is not in [%d, %d]", priority, -range, range));
    }
    *out = reinterpret_cast<bp_stream*>(on.create_queue(priority));
  }
  int32_t stream_destroy(int32_t device, bp_stream* stream) {
    Device& on = at(device);
    captures.drop(stream);
    return released(on, [&] { on.destroy_queue(stream); });
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
    queue_copy(device, stream, dst, dst_device, src, src_device, bytes, flags);
  }

  // ---- events

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    at(device).check();
    need(out, "event_create: out");
    constexpr uint32_t kKnown = BP_EVENT_TIMING | BP_EVENT_BLOCKING;
    if (flags & BP_EVENT_IPC) throw Error(BP_UNSUPPORTED, "event_create: OpenCL has no events between processes");
    if (flags & ~kKnown) throw Error(BP_INVALID_ARGUMENT, format("event_create: unknown flags 0x%x", flags & ~kKnown));
    *out = reinterpret_cast<bp_event*>(runtime().records.add(std::make_unique<Record>(flags).release()));
  }
  int32_t event_destroy(int32_t device, bp_event* event) {
    return released(at(device), [&] { runtime().records.destroy(reinterpret_cast<Record*>(event), "event_destroy"); });
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    const auto queue = at(device).stream(stream);
    need_no_flags("event_record", flags);
    Record& record = live(event, "event_record");
    queue->device().check();
    if (captures.record_event(stream, record.point)) return;
    Event marker = queue->marker();
    std::lock_guard lock(record.mutex);
    record.latest = std::move(marker);
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
    const auto queue = at(device).stream(stream);
    queue->device().check();
    Record& record = live(event, "stream_wait");
    if (captures.wait(stream, stream ? &queue->device() : nullptr, record.point)) return;
    if (const Event latest = record.get()) queue->wait_for(latest);
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    Device& on = at(device);
    need(ns, "event_elapsed: ns");
    cl_ulong times[2] = {};
    for (int i = 0; i < 2; ++i) {
      Record& record = ran(i == 0 ? start : end, "event_elapsed");
      const Event latest = record.get();
      if (!(record.flags & BP_EVENT_TIMING)) throw Error(BP_INVALID_ARGUMENT, "event_elapsed: an event was made without BP_EVENT_TIMING");
      if (!latest) throw Error(BP_INVALID_ARGUMENT, "event_elapsed: an event was never recorded");
      if (const int32_t status = on.status(latest)) return status;
      const cl_int code = on.api().clGetEventProfilingInfo(latest.get(), CL_PROFILING_COMMAND_END, sizeof times[i], &times[i], nullptr);
      if (code == CL_PROFILING_INFO_NOT_AVAILABLE) {
        throw Error(BP_INVALID_ARGUMENT, "event_elapsed: recorded on a queue that was made without CL_QUEUE_PROFILING_ENABLE");
      }
      check(code, "clGetEventProfilingInfo");
    }
    *ns = static_cast<int64_t>(times[1] - times[0]);
    return BP_OK;
  }

  // ---- pinned memory, and single entries

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    need_no_flags("host_alloc", flags);
    need(out, "host_alloc: out");
    at(0);
    *out = runtime().pinned->alloc(bytes);
  }
  void host_free(void* memory) {
    at(0);
    runtime().pinned->free(memory);
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const auto queue = at(device).stream(stream);
    need_no_flags("fill", flags);
    const bp_activity what = EventProfile<>::work(BP_ACTIVITY_FILL, device, count * pattern_size);
    const auto recorded = [&]() -> Recorded {
      runtime().memory->check_fill(queue->device(), dst, pattern, pattern_size, count);
      uint64_t word = 0;
      std::memcpy(&word, pattern, pattern_size);
      return {"fill", what, [&memory = *runtime().memory, dst, word, pattern_size, count](Queue& on) {
                memory.fill(on, dst, &word, pattern_size, count);
              }};
    };
    if (captured(stream, recorded)) return;
    profile.around(what, stream, [&] { runtime().memory->fill(*queue, dst, pattern, pattern_size, count); });
  }

  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    const auto queue = at(device).stream(stream);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    captures.check_stream("stream_callback", stream);
    queue->callback(fn, arg);
  }

  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    const auto queue = at(device).stream(stream);
    need(out, "stream_native: out");
    queue->expose();
    *out = reinterpret_cast<uint64_t>(queue->native());
  }
  void stream_from_native(int32_t device, uint64_t native, bp_stream** out) {
    Device& on = at(device);
    need(out, "stream_from_native: out");
    *out = on.stream_of(reinterpret_cast<cl_command_queue>(native));
  }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    out->kind = BP_MEMORY_UNKNOWN;
    out->device = BP_HOST_DEVICE;
    Runtime* const runtime = runtime_if_any();
    if (!runtime) return;  // nothing was allocated yet
    if (const auto found = runtime->memory->find(address)) {
      out->kind = BP_MEMORY_DEVICE;
      out->device = found->handle.device->index();
      out->base = found->base;
      out->bytes = found->bytes;
    } else if (const auto pinned = runtime->pinned->find(address)) {
      out->kind = BP_MEMORY_PINNED;
      out->base = pinned->base;
      out->bytes = pinned->bytes;
    }
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
  Event queue_copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                   uint32_t flags) {
    const auto queue = at(device).stream(stream);
    need_no_flags("copy", flags);
    for (const int32_t side : {dst_device, src_device}) {
      if (side != BP_HOST_DEVICE) info_of(side);
    }
    const Place to{dst, dst_device}, from{src, src_device};
    const bp_activity what = EventProfile<>::copy(device, dst_device, src_device, bytes);
    const auto recorded = [&]() -> Recorded {
      runtime().memory->check_copy(to, from, bytes);
      return {"copy", what, [&memory = *runtime().memory, to, from, bytes](Queue& on) { memory.copy(on, to, from, bytes); }};
    };
    if (captured(stream, recorded)) return {};
    Event done;
    profile.around(what, stream, [&] { done = runtime().memory->copy(*queue, to, from, bytes); });
    return done;
  }

  HostViewEntries host_view_{*this};
  PeerEntries peer_{*this};
  CompilerEntries<Compiler> compiler_entries_{compiler};
  ModuleEntries modules_{*this};
  Graphs graphs_{*this};
};

}  // namespace backplane::driver::opencl

BP_DEFINE_DRIVER(backplane::driver::opencl::OpenCl)
