// drivers/opencl/opencl.cpp: the driver's table: entries of the ABI in terms of OpenCL. README.md has the list of which is which.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "code.h"
#include "compiler_entries.h"
#include "entry.h"
#include "graph.h"
#include "instance.h"

namespace backplane::driver::opencl {

class OpenCl final : public Driver<OpenCl>, public CompilerEntries, public Graphs {
 public:
  explicit OpenCl(const Host& host) : Driver(host), CompilerEntries(host.config()) {
    if (survey_.devices[0].memory_kind == MemoryKind::fine) offer(host_view_.head);
    offer(peer_.head);
    offer(compiler_group_.head);
    offer(module_group_.head);
    offer(profile_group_.head);
    offer(graph_group_.head);
  }

  ~OpenCl() { release_graphs(); }

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
    out->dtypes = compiler_.target(device).dtypes;
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
    *out = runtime_->memory->alloc(on, bytes);
  }

  int32_t free(int32_t device, uint64_t address) {
    return released(at(device), [&] { runtime_->memory->free(device, address); });
  }

  int32_t copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
               uint32_t flags) {
    Device& on = at(device);
    captures_.check_stream("copy", stream);
    captures_.check_wait("copy");
    const Event done = queue_copy(device, stream, dst, dst_device, src, src_device, bytes, flags);
    if (!done) return on.queue(stream)->wait(Deadline(BP_NO_TIMEOUT));
    return on.wait(done, Deadline(BP_NO_TIMEOUT));
  }

  int32_t synchronize(int32_t device, uint64_t timeout_ns) {
    Device& on = at(device);
    captures_.check_device("synchronize", &on);
    captures_.check_wait("synchronize", timeout_ns);
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
    captures_.drop(stream);
    return released(on, [&] { on.destroy_queue(stream); });
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    captures_.check_stream("stream_query", stream);
    return at(device).queue(stream)->query();
  }
  int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    captures_.check_stream("stream_synchronize", stream);
    captures_.check_wait("stream_synchronize", timeout_ns);
    return at(device).queue(stream)->wait(Deadline(timeout_ns));
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
    *out = reinterpret_cast<bp_event*>(runtime_->records.add(std::make_unique<Record>(flags).release()));
  }
  int32_t event_destroy(int32_t device, bp_event* event) {
    return released(at(device), [&] { runtime_->records.destroy(reinterpret_cast<Record*>(event), "event_destroy"); });
  }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    const auto queue = at(device).queue(stream);
    need_no_flags("event_record", flags);
    Record& record = live(event, "event_record");
    queue->device().check();
    if (captures_.record_event(stream, record.point)) return;
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
    captures_.check_wait("event_synchronize", timeout_ns);
    return on.wait(record.get(), Deadline(timeout_ns));
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    const auto queue = at(device).queue(stream);
    queue->device().check();
    Record& record = live(event, "stream_wait");
    if (captures_.wait(stream, stream ? &queue->device() : nullptr, record.point)) return;
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
    *out = runtime_->pinned->alloc(bytes);
  }
  void host_free(void* memory) {
    at(0);
    runtime_->pinned->free(memory);
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const auto queue = at(device).queue(stream);
    need_no_flags("fill", flags);
    const bp_activity what = EventProfile<>::work(BP_ACTIVITY_FILL, device, count * pattern_size);
    const auto recorded = [&]() -> Recorded {
      runtime_->memory->check_fill(queue->device(), dst, pattern, pattern_size, count);
      uint64_t word = 0;
      std::memcpy(&word, pattern, pattern_size);
      return {"fill", what, [&memory = *runtime_->memory, dst, word, pattern_size, count](Queue& on) {
                memory.fill(on, dst, &word, pattern_size, count);
              }};
    };
    if (captured(stream, recorded)) return;
    profile_.around(what, stream, [&] { runtime_->memory->fill(*queue, dst, pattern, pattern_size, count); });
  }

  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    const auto queue = at(device).queue(stream);
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "stream_callback: fn must not be NULL");
    captures_.check_stream("stream_callback", stream);
    queue->callback(fn, arg);
  }

  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    const auto queue = at(device).queue(stream);
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
    if (!runtime_made_) return;  // nothing was allocated yet
    if (const auto found = runtime_->memory->find(address)) {
      out->kind = BP_MEMORY_DEVICE;
      out->device = found->handle.device->index();
      out->base = found->base;
      out->bytes = found->bytes;
    } else if (const auto pinned = runtime_->pinned->find(address)) {
      out->kind = BP_MEMORY_PINNED;
      out->base = pinned->base;
      out->bytes = pinned->bytes;
    }
  }

  // ---- bp.host_view: of memory of a fine grain, which the host and the device share

  void view_map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    need(out, "host_view.map: out");
    if (access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) throw Error(BP_INVALID_ARGUMENT, "host_view.map: unknown access");
    runtime_of(device).memory->range({address, device}, bytes, "host_view.map");
    *out = reinterpret_cast<void*>(address);
  }
  void view_unmap(int32_t device, uint64_t, void*) { info_of(device); }

  // ---- bp.peer: one context spans the devices

  void peer_can_access(int32_t device, int32_t peer, int32_t* out) {
    info_of(device), info_of(peer);
    need(out, "peer.can_access: out");
    *out = 1;
  }
  void peer_enable(int32_t device, int32_t peer) { info_of(device), info_of(peer); }

  // ---- bp.module

  void module_load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    Device& on = at(device);
    need(code, "module.load: code");
    need(out, "module.load: out");
    on.check();
    const std::string_view binary = binary_of({static_cast<const char*>(code), bytes}, on.info().target);
    *out = reinterpret_cast<bp_module_code*>(runtime_->modules.add(std::make_unique<Module>(on, binary).release()));
  }
  int32_t module_unload(int32_t device, bp_module_code* module) {
    return released(at(device), [&] {
      module_of(device, module, "module.unload");
      runtime_->modules.destroy(reinterpret_cast<Module*>(module), "module.unload");
    });
  }
  void module_function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                       bp_function_properties* properties) {
    Module& from = module_of(device, module, "module.function");
    need(name, "module.function: name");
    need(out, "module.function: out");
    if (!signature || signature->struct_size < sizeof(bp_signature)) {
      throw Error(BP_INVALID_ARGUMENT, "module.function: the signature, with its struct_size, is needed");
    }
    Kernel& kernel = from.kernel(name, *signature, compiler_.target(device).parameter_bytes);
    if (properties) hand_out(properties, kernel.properties(), "module.function: properties");
    *out = reinterpret_cast<bp_function*>(&kernel);
  }
  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    const auto queue = at(device).queue(stream);
    queue->device().check();
    if (!launch || !launch->function || launch->struct_size < sizeof(bp_launch)) {
      throw Error(BP_INVALID_ARGUMENT, "module.launch: launch, with its function and struct_size, is needed");
    }
    Kernel& kernel = *reinterpret_cast<Kernel*>(launch->function);
    if (kernel.device().index() != device) {
      throw Error(BP_INVALID_ARGUMENT, format("module.launch: a function of device %d, on device %d", kernel.device().index(), device));
    }
    const bp_activity what = EventProfile<>::work(BP_ACTIVITY_KERNEL, device);
    if (captured(stream, [&]() -> Recorded { return {kernel.name(), what, kernel.recorded(*runtime_->memory, *launch)}; })) return;
    profile_.around(what, stream, [&] { kernel.launch(*queue, *runtime_->memory, *launch); }, kernel.name().c_str());
  }

  // bp.profile, of timing events

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) { profile_.start(kinds, fn, arg); }
  void profile_stop(uint64_t* dropped) { profile_.stop(dropped); }
  void profile_tag(uint64_t correlation) { profile_.tag(correlation); }
  void profile_launch_begin(int32_t device, bp_stream* stream) {
    at(device).queue(stream);
    profile_.launch_begin(device, stream);
  }
  void profile_launch_end(int32_t device, bp_stream* stream, const char* name) {
    at(device).queue(stream);
    profile_.launch_end(stream, name);
  }
  int32_t profile_no_range(const char*) { return fail(BP_UNSUPPORTED, "profile: there are no ranges"); }
  int32_t profile_no_pop() { return fail(BP_UNSUPPORTED, "profile: there are no ranges"); }

 private:
  int32_t count() const { return static_cast<int32_t>(survey_.devices.size()); }
  const DeviceInfo& info_of(int32_t device) const {
    if (device < 0 || device >= count()) throw Error(BP_INVALID_DEVICE, format("no device %d; there are %d", device, count()));
    return survey_.devices[static_cast<size_t>(device)];
  }
  Runtime& runtime_of(int32_t device) {
    info_of(device);
    std::call_once(made_, [&] {
      runtime_ = std::make_unique<Runtime>(survey_, settings_);
      runtime_made_ = true;
    });
    return *runtime_;
  }
  Device& at(int32_t device) { return *runtime_of(device).devices[static_cast<size_t>(device)]; }

  Record& live(bp_event* event, const char* call) const {
    auto* record = reinterpret_cast<Record*>(event);
    if (!runtime_->records.contains(record)) throw Error(BP_INVALID_ARGUMENT, std::string(call) + ": no live event of this driver");
    return *record;
  }
  /// The same for what looks at its latest record, which must not be a point of a recording.
  Record& ran(bp_event* event, const char* call) {
    Record& record = live(event, call);
    captures_.check_event(call, record.point);
    return record;
  }
  /// False if the stream does not capture. Else it has what `recorded()` gives.
  template <class Make>
  bool captured(bp_stream* stream, Make&& recorded) {
    return captures_.any() && captures_.status(stream) != BP_CAPTURE_NONE && captures_.add(stream, recorded());
  }

  // What Graphs asks for.
  Device& graph_device(int32_t device) override { return at(device); }
  bool graph_profiled() override { return profile_.is_on(); }
  void graph_queue(const Recorded& command, bp_stream* stream, Queue& on) override {
    const char* name = command.what.kind == BP_ACTIVITY_KERNEL ? command.label.c_str() : nullptr;
    profile_.around(command.what, stream, [&] { command.queue(on); }, name);
  }

  Module& module_of(int32_t device, bp_module_code* module, const char* call) {
    at(device);
    auto* one = reinterpret_cast<Module*>(module);
    if (!runtime_->modules.contains(one) || one->device().index() != device) {
      throw Error(BP_INVALID_ARGUMENT, format("%s: no module of device %d", call, device));
    }
    return *one;
  }
  Event queue_copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                   uint32_t flags) {
    const auto queue = at(device).queue(stream);
    need_no_flags("copy", flags);
    for (const int32_t side : {dst_device, src_device}) {
      if (side != BP_HOST_DEVICE) info_of(side);
    }
    const Place to{dst, dst_device}, from{src, src_device};
    const bp_activity what = EventProfile<>::copy(device, dst_device, src_device, bytes);
    const auto recorded = [&]() -> Recorded {
      runtime_->memory->check_copy(to, from, bytes);
      return {"copy", what, [&memory = *runtime_->memory, to, from, bytes](Queue& on) { memory.copy(on, to, from, bytes); }};
    };
    if (captured(stream, recorded)) return {};
    Event done;
    profile_.around(what, stream, [&] { done = runtime_->memory->copy(*queue, to, from, bytes); });
    return done;
  }

  std::once_flag made_;
  std::atomic<bool> runtime_made_{false};
  std::unique_ptr<Runtime> runtime_;
  EventProfile<> profile_{TableCalls{table()}};

  const bp_host_view host_view_ = {group_head<bp_host_view>(BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ),
                                   slot<&OpenCl::view_map>(), slot<&OpenCl::view_unmap>()};
  const bp_peer peer_ = {group_head<bp_peer>(), slot<&OpenCl::peer_can_access>(), slot<&OpenCl::peer_enable>()};
  const bp_compiler compiler_group_ = {group_head<bp_compiler>(),         slot<&OpenCl::compiler_id>(),
                                       slot<&OpenCl::compiler_target>(),  slot<&OpenCl::compiler_prelude>(),
                                       slot<&OpenCl::compiler_compile>(), slot<&OpenCl::compiler_release>()};
  const bp_module module_group_ = {group_head<bp_module>(), slot<&OpenCl::module_load>(), slot<&OpenCl::module_unload>(),
                                   slot<&OpenCl::module_function>(), slot<&OpenCl::module_launch>()};
  const bp_profile profile_group_ = {group_head<bp_profile>(BP_PROFILE_NAMES),
                                     slot<&OpenCl::profile_start>(),
                                     slot<&OpenCl::profile_stop>(),
                                     slot<&OpenCl::profile_tag>(),
                                     slot<&OpenCl::profile_launch_begin>(),
                                     slot<&OpenCl::profile_launch_end>(),
                                     slot<&OpenCl::profile_no_range>(),
                                     slot<&OpenCl::profile_no_pop>(),
                                     slot<&OpenCl::profile_no_range>()};
  const bp_graph graph_group_ = {
      group_head<bp_graph>(BP_GRAPH_DUMP),      slot<&OpenCl::graph_capture_begin>(), slot<&OpenCl::graph_capture_end>(),
      slot<&OpenCl::graph_capture_status>(),    slot<&OpenCl::graph_instantiate>(),   slot<&OpenCl::graph_launch>(),
      slot<&OpenCl::graph_recording_destroy>(), slot<&OpenCl::graph_exec_destroy>(),  slot<&OpenCl::graph_dump>()};
};

}  // namespace backplane::driver::opencl

BP_DEFINE_DRIVER(backplane::driver::opencl::OpenCl)
