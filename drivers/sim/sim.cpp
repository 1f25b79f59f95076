// drivers/sim/sim.cpp: the simulated device: a whole driver whose memory is the host's and whose work is host functions.
//
// Options: devices=<0..64>, memory=<size> of each, kind=unified|discrete (memory.h), stream=async|inline (drivers/engine/stream.h),
// streams=<1..1024> besides the default one, compiler=<name>|none (compiler.h), target=<name> of an older level of this machine
// (targets.h), items=<1..256> of a group at most, order=up|down in which they take turns (fibers.h), collective=on|off,
// collective_ranks=<1..256> of a communicator at most, profile=on|off, graph=on|off; and what it does badly on request: impairments.h.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <backplane/driver/collective.h>
#include <backplane/driver/compiler.h>
#include <backplane/driver/graph.h>
#include <backplane/driver/host_exec.h>
#include <backplane/driver/host_view.h>
#include <backplane/driver/module.h>
#include <backplane/driver/peer.h>
#include <backplane/driver/profile.h>
#include <backplane/driver/vmm.h>
#include <backplane/driver/cxx/driver.hpp>

#include "../engine/engine.h"
#include "../engine/fill.h"
#include "../engine/host_memory.h"
#include "code.h"
#include "collective.h"
#include "compiler.h"
#include "graph.h"
#include "impairments.h"
#include "ipc.h"
#include "memory.h"
#include "module.h"
#include "targets.h"

namespace backplane::driver::sim {

enum class StreamKind { async, inline_ };

struct Settings {
  int32_t devices;
  uint64_t memory;
  Kind kind;
  StreamKind stream;
  int32_t streams;
  std::string compiler;
  const Target* target;
  uint32_t items;
  Order order;
  bool collective;
  int32_t ranks;
  bool profile, graph;
  std::unique_ptr<Impairments> impairments;

  explicit Settings(const char* config) {
    Options options(config);
    devices = static_cast<int32_t>(options.integer("devices", 2, 0, 64));
    memory = options.size("memory", uint64_t{8} << 30);
    kind = options.choice("kind", Kind::unified, {{"unified", Kind::unified}, {"discrete", Kind::discrete}});
    stream = options.choice("stream", StreamKind::async, {{"async", StreamKind::async}, {"inline", StreamKind::inline_}});
    streams = static_cast<int32_t>(options.integer("streams", 32, 1, 1024));
    compiler = options.text("compiler", "", "<name or path>|none");
    target = &own_target(options.text("target", "", "<name of an older level>"));
    items = static_cast<uint32_t>(options.integer("items", 1, 1, 256));
    order = options.choice("order", Order::up, {{"up", Order::up}, {"down", Order::down}});
    collective = options.choice("collective", true, {{"on", true}, {"off", false}});
    ranks = static_cast<int32_t>(options.integer("collective_ranks", 64, 1, 256));
    profile = options.choice("profile", true, {{"on", true}, {"off", false}});
    graph = options.choice("graph", true, {{"on", true}, {"off", false}});
    impairments = std::make_unique<Impairments>(options);
    options.finish();
    if (memory > (uint64_t{4} << 40)) throw Error(BP_INVALID_ARGUMENT, "options: memory must not exceed 4TiB");
    if (items & (items - 1)) throw Error(BP_INVALID_ARGUMENT, "options: items must be a power of two, not " + std::to_string(items));
  }
};

template <class Text, size_t Size>
void set_text(char (&field)[Size], const Text& text) {
  std::snprintf(field, Size, "%s", std::string(text).c_str());
}

class Sim final : public Driver<Sim>, public Engine, public Collectives, public Graphs {
 public:
  explicit Sim(const Host& host) : Sim(host, Settings(host.config())) {}

  ~Sim() {
    abort_collectives();  // of which some may wait for ranks that never come
    shutdown();           // queued work uses the memory
    release_graphs();
    for (auto& memory : memories_) delete memory.load();
  }

  void device_count(int32_t* out) {
    if (!out) throw Error(BP_INVALID_ARGUMENT, "device_count: out must not be NULL");
    *out = settings_.devices;
  }

  void device_properties(int32_t device, bp_device_properties* out) {
    check_index(device);
    set_text(out->name, "Backplane simulated device");
    set_text(out->vendor, "Backplane");
    set_text(out->driver_version, "0.1.0");
    set_text(out->bus_id, format("0000:%02x:00.0", static_cast<unsigned>(device)));
    std::snprintf(reinterpret_cast<char*>(out->uuid), sizeof out->uuid, "backplane-sim%02d", device);
    out->total_memory = out->max_allocation = settings_.memory;
    out->dtypes = BP_DTYPE_FLOAT8_E5M2 * 2 - 1;  // all
    out->alignment = SimMemory::kAlignment;
    out->copy_alignment = 1;
    out->stream_limit = settings_.streams;
    out->priority_least = kPriorityLeast;
    out->priority_greatest = kPriorityGreatest;
    out->capability_major = 1;
    out->compute_units = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
    out->threads_per_unit = 1;
    out->warp_size = 1;
  }

  void open() { open_engine(); }

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    at(device).check();
    if (!out || (flags & ~BP_ALLOC_SHARED)) {
      throw Error(BP_INVALID_ARGUMENT, "alloc: out must not be NULL, flags must be 0 or BP_ALLOC_SHARED");
    }
    if (impairments_.refuses_allocation()) {
      throw Error(BP_OUT_OF_MEMORY, "alloc: " + std::to_string(bytes) + " bytes of device " + std::to_string(device) +
                                        " are refused, as the option alloc_fail asks");
    }
    *out = memory(device).alloc(bytes, (flags & BP_ALLOC_SHARED) != 0);
  }

  void free(int32_t device, uint64_t address) { memory(device).free(address); }

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    Stream& on = usable(device, stream);
    captures().check_stream("copy", &on);
    captures().check_wait("copy");
    const Route route = resolve_copy(dst, dst_device, src, src_device, bytes, flags);
    auto told = bytes ? record(on, {BP_ACTIVITY_COPY, bytes, dst_device, src_device}) : nullptr;
    on.run_blocking([&] {
      TimedWork timed(told.release());
      std::this_thread::sleep_for(time_of(dst_device, src_device, bytes));
      if (bytes) std::memcpy(route.dst, route.src, bytes);
      timed.ran = true;
    });
    on.device().check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    Stream& on = usable(device, stream);
    const Route route = resolve_copy(dst, dst_device, src, src_device, bytes, flags);
    if (src_device == BP_HOST_DEVICE) pinned_.check(src, bytes);
    if (dst_device == BP_HOST_DEVICE) pinned_.check(dst, bytes);
    if (bytes == 0) return;
    pause(on, time_of(dst_device, src_device, bytes));
    queue(on, {BP_ACTIVITY_COPY, bytes, dst_device, src_device},
          {[](Job& job, int32_t status) {
             if (status != BP_OK) return;
             std::memcpy(reinterpret_cast<void*>(job.words[0]), reinterpret_cast<const void*>(job.words[1]), job.words[2]);
           },
           {reinterpret_cast<uint64_t>(route.dst), reinterpret_cast<uint64_t>(route.src), bytes}});
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    need_no_flags("fill", flags);
    Stream& on = usable(device, stream);
    const FillPattern row(pattern, pattern_size, count, dst);
    char* at = memory(device).range(dst, row.bytes, "fill: dst");
    if (count == 0) return;
    pause(on, delay());
    queue(on, {BP_ACTIVITY_FILL, row.bytes},
          {[](Job& job, int32_t status) {
             if (status == BP_OK) fill_bytes(reinterpret_cast<void*>(job.words[0]), job.words[1], job.words[2]);
           },
           {reinterpret_cast<uint64_t>(at), row.word, row.bytes}});
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    at(device).check();
    if (!free_bytes || !total_bytes) throw Error(BP_INVALID_ARGUMENT, "memory_info: both outputs are needed");
    *free_bytes = memory(device).free_bytes();
    *total_bytes = settings_.memory;
  }

  /// There is no vendor library that has a current device: only the index is checked.
  void set_current(int32_t device) { check_index(device); }

  /// The stream object; the default stream has one too.
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    if (!out) throw Error(BP_INVALID_ARGUMENT, "stream_native: out must not be NULL");
    *out = reinterpret_cast<uint64_t>(&resolve(device, stream));
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (!out || flags != 0) throw Error(BP_INVALID_ARGUMENT, "host_alloc: out must not be NULL, flags must be 0");
    *out = pinned_.alloc(bytes);
  }
  void host_free(void* ptr) { pinned_.free(ptr); }
  void host_register(void* ptr, uint64_t bytes) { pinned_.add(ptr, bytes); }
  void host_unregister(void* ptr) { pinned_.remove(ptr); }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    for (int32_t device = 0; device < settings_.devices; ++device) {
      const SimMemory* known = memories_[static_cast<size_t>(device)].load(std::memory_order_acquire);
      if (!known) continue;
      if (const auto place = known->find(address)) {
        out->kind = BP_MEMORY_DEVICE;
        out->device = device;
        out->base = place->base;
        out->bytes = place->bytes;
        return;
      }
    }
    const auto block = pinned_.find(address);
    out->device = BP_HOST_DEVICE;
    if (!block) return;  // zeroed: BP_MEMORY_UNKNOWN
    out->kind = block->kind;
    out->base = block->base;
    out->bytes = block->bytes;
  }

  // bp.host_exec

  void exec_enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    try {
      if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
      Stream& on = usable(device, stream);
      pause(on, delay());
      const Job job{run_host_function,
                    {reinterpret_cast<uint64_t>(fn), reinterpret_cast<uint64_t>(arg), reinterpret_cast<uint64_t>(destroy)}};
      queue(on, {BP_ACTIVITY_KERNEL}, job, repeat_host_function, destroy_host_function);
    } catch (...) {
      if (destroy) destroy(arg);
      throw;
    }
  }

  void exec_map(int32_t device, uint64_t address, void** out) {
    check_index(device);
    void* at = out ? reach(device, address) : nullptr;
    if (!at) {
      throw Error(BP_INVALID_ARGUMENT,
                  format("host_exec.map: 0x%llx is not in an allocation of device %d, nor of a peer that it has access to",
                         static_cast<unsigned long long>(address), device));
    }
    *out = at;
  }

  // bp.host_view

  void view_map(int32_t device, uint64_t address, uint64_t bytes, int32_t access, void** out) {
    at(device).check();
    if (!out || access < BP_ACCESS_READ || access > BP_ACCESS_READ_WRITE) {
      throw Error(BP_INVALID_ARGUMENT, "host_view.map: out must not be NULL, access must be one of BP_ACCESS_*");
    }
    *out = memory(device).range(address, bytes, "host_view.map");
  }

  void view_unmap(int32_t device, uint64_t address, void* ptr) {
    check_index(device);
    if (reinterpret_cast<uint64_t>(ptr) != address) throw Error(BP_INVALID_ARGUMENT, "host_view.unmap: no view of that address");
  }

  // bp.peer

  void peer_can_access(int32_t device, int32_t peer, int32_t* out) {
    check_index(device);
    check_index(peer);
    if (!out) throw Error(BP_INVALID_ARGUMENT, "peer.can_access: out must not be NULL");
    *out = 1;
  }
  void peer_enable(int32_t device, int32_t peer) { set_access(device, peer, true); }
  void peer_disable(int32_t device, int32_t peer) { set_access(device, peer, false); }

  // bp.vmm

  void vmm_granularity(int32_t device, uint64_t* out) {
    check_index(device);
    if (!out) throw Error(BP_INVALID_ARGUMENT, "vmm.granularity: out must not be NULL");
    *out = SimMemory::kGranularity;
  }
  void vmm_reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    at(device).check();
    if (!out || bytes == 0 || bytes % SimMemory::kGranularity != 0) {
      throw Error(BP_INVALID_ARGUMENT, "vmm.reserve: out must not be NULL, bytes must be a multiple of the granularity");
    }
    *out = memory(device).reserve(bytes);
  }
  void vmm_release(int32_t device, uint64_t address, uint64_t bytes) { memory(device).release(address, bytes); }
  void vmm_map(int32_t device, uint64_t address, uint64_t bytes) {
    at(device).check();
    memory(device).map_range(address, bytes);
  }
  void vmm_unmap(int32_t device, uint64_t address, uint64_t bytes) { memory(device).unmap_range(address, bytes); }

  // bp.ipc

  void ipc_memory_export(int32_t device, uint64_t address, bp_ipc_handle* out) {
    need(out, "ipc.memory_export: out");
    *out = export_memory(memory(device), address);
  }
  void ipc_memory_open(int32_t device, const bp_ipc_handle* handle, uint64_t* out) {
    at(device).check();
    need(handle && out, "ipc.memory_open: handle and out");
    *out = open_memory(memory(device), *handle);
  }
  void ipc_memory_close(int32_t device, uint64_t address) { memory(device).disown(address); }
  void ipc_event_export(int32_t device, bp_event* event, bp_ipc_handle* out) {
    need(event && out, "ipc.event_export: event and out");
    *out = export_event(shared_event(device, event));
  }
  void ipc_event_open(int32_t device, const bp_ipc_handle* handle, bp_event** out) {
    check_index(device);
    need(handle && out, "ipc.event_open: handle and out");
    *out = open_event(device, open_shared_event(*handle));
  }

  // bp.compiler

  void compiler_id(char* out, uint64_t size) {
    need(out && size, "compiler.id: out and size");
    std::snprintf(out, size, "%s", compiler_.id().c_str());
  }
  void compiler_target(int32_t device, bp_target_properties* out) {
    const auto targets = all_targets();
    const int64_t index = -1 - int64_t{device};
    if (index >= static_cast<int64_t>(targets.size())) {
      throw Error(BP_INVALID_DEVICE, format("compiler.target: no target %d: there are %zu", device, targets.size()));
    }
    if (index < 0) check_index(device);
    hand_out(out, properties_of(index < 0 ? *settings_.target : targets[static_cast<size_t>(index)], settings_.items),
             "compiler.target: out");
  }
  void compiler_prelude(const char* target, const char** out) {
    need(out, "compiler.prelude: out");
    *out = compiler_.prelude_of(target);
  }
  int32_t compiler_compile(const bp_compile_request* request, bp_compile_result* out) {
    need(request && out, "compiler.compile: request and out");
    bp_compile_result result{};
    auto output = compiler_.compile(*request);
    result.code = output->code.empty() ? nullptr : output->code.data();
    result.bytes = output->code.size();
    result.log = output->log.c_str();
    result.owner = output.get();
    hand_out(out, result, "compiler.compile: out");
    const bool right = result.code != nullptr;
    const std::string& log = output.release()->log;  // the caller's now
    return right ? int32_t{BP_OK} : fail(BP_INVALID_ARGUMENT, "compiler.compile: " + first_error(log));
  }
  void compiler_release(bp_compile_result* result) {
    need(result && result->owner, "compiler.release: result and its owner");
    delete static_cast<Compiler::Output*>(result->owner);
    result->code = nullptr;
    result->bytes = 0;
    result->log = nullptr;
    result->owner = nullptr;
  }

  // bp.module

  void module_load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    at(device).check();
    need(code && out, "module.load: code and out");
    const std::string_view object = object_of({static_cast<const char*>(code), bytes}, settings_.target->name, compiler_.prelude_sum());
    auto module = std::make_unique<Module>(device, object, settings_.items, settings_.order);
    std::lock_guard lock(modules_mutex_);
    modules_.push_back(std::move(module));
    *out = reinterpret_cast<bp_module_code*>(modules_.back().get());
  }
  void module_unload(int32_t device, bp_module_code* module) {
    check_index(device);
    std::unique_ptr<Module> last;
    std::lock_guard lock(modules_mutex_);
    const auto found = find_module(device, module, "module.unload");
    last = std::move(*found);
    modules_.erase(found);
  }
  void module_function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                       bp_function_properties* properties) {
    at(device).check();
    need(module && name && signature && out, "module.function: module, name, signature and out");
    if (signature->struct_size < sizeof(bp_signature)) {
      throw Error(BP_INVALID_ARGUMENT, "module.function: the signature's struct_size is too small");
    }
    Module* found = nullptr;
    {
      std::lock_guard lock(modules_mutex_);
      found = find_module(device, module, "module.function")->get();
    }
    Kernel& kernel = found->kernel(name, *signature);
    if (properties) hand_out(properties, {0, kernel.group(), 0, 0, 0}, "module.function: properties");
    *out = reinterpret_cast<bp_function*>(&kernel);
  }
  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    Stream& on = usable(device, stream);
    need(launch && launch->function, "module.launch: launch and its function");
    if (launch->struct_size < sizeof(bp_launch)) throw Error(BP_INVALID_ARGUMENT, "module.launch: the launch's struct_size is too small");
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(launch->function);
    if (kernel.device() != device) {
      throw Error(BP_INVALID_ARGUMENT,
                  format("module.launch: the function is of device %d, the call names device %d", kernel.device(), device));
    }
    kernel.check(*launch, settings_.items);
    std::unique_ptr<uint64_t[]> args(new uint64_t[launch->args_bytes / 8]);  // not zeroed
    std::memcpy(args.get(), launch->args, launch->args_bytes);
    pause(on, delay());
    const Job job{run_kernel,
                  {reinterpret_cast<uint64_t>(this), reinterpret_cast<uint64_t>(&kernel), reinterpret_cast<uint64_t>(args.get()),
                   launch->grid[0], launch->grid[1], launch->grid[2]}};
    queue(on, {BP_ACTIVITY_KERNEL, 0, 0, 0, kernel.name()}, job, repeat_kernel, destroy_kernel_args);
    static_cast<void>(args.release());  // the job's, which may be over by now
  }

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!settings_.collective && id && std::strcmp(id, BP_COLLECTIVE_ID) == 0) {
      return fail(BP_UNSUPPORTED, "bp.collective is switched off by the option collective=off");
    }
    return Driver::query_ext(id, version, out);
  }

  // bp.profile

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) { recorder_.start(kinds, fn, arg); }
  void profile_stop(uint64_t* dropped) { recorder_.stop(dropped); }
  void profile_tag(uint64_t correlation) { recorder_.tag(correlation); }
  void profile_launch_begin(int32_t device, bp_stream* stream) {
    Stream& on = usable(device, stream);
    if (captures().status(&on) != BP_CAPTURE_NONE) return;  // a run tells of what it holds
    if (WorkRecord* work = recorder_.open_launch(device, stream)) on.submit(begin_launch(work));
  }
  void profile_launch_end(int32_t device, bp_stream* stream, const char* name) {
    Stream& on = resolve(device, stream);
    if (WorkRecord* work = recorder_.close_launch(name)) on.submit(end_launch(work));
  }
  /// There are no tools of a vendor's: a trace shim shows the calls.
  void profile_range_push(const char* name) {
    need(name, "profile.range_push: name");
    ++ranges();
  }
  void profile_range_pop() {
    if (ranges() == 0) throw Error(BP_INVALID_ARGUMENT, "profile.range_pop: no range was pushed on this thread");
    --ranges();
  }
  void profile_mark(const char* name) { need(name, "profile.mark: name"); }

 private:
  Sim(const Host& host, Settings&& settings)
      : Driver(host),
        Collectives(settings.ranks),
        settings_(std::move(settings)),
        impairments_(*settings_.impairments),
        memories_(static_cast<size_t>(settings_.devices)),
        compiler_(settings_.compiler, settings_.items) {
    configure({"sim", settings_.devices, settings_.stream == StreamKind::async, settings_.streams, make_shared_event});
    peers_ = std::vector<std::atomic<bool>>(static_cast<size_t>(settings_.devices) * static_cast<size_t>(settings_.devices));
    offer(host_exec_.head);
    offer(peer_.head);
    offer(vmm_.head);
    offer(ipc_.head);
    offer(compiler_group_.head);
    offer(module_group_.head);
    if (settings_.collective) offer(collective_group_.head);
    if (settings_.profile) offer(profile_.head);
    if (settings_.graph) offer(graph_group_.head);
    if (settings_.kind == Kind::discrete) ipc_.head.flags |= BP_IPC_ANY_MEMORY;
    if (settings_.kind == Kind::unified) offer(host_view_.head);
  }

  // What Collectives asks for.
  void check_number(int32_t device) override { check_index(device); }
  void check_device(int32_t device) override { at(device).check(); }
  Stream& stream_of(int32_t device, bp_stream* stream) override {
    Stream& on = usable(device, stream);
    captures().check_stream("a call of bp.collective", &on);
    return on;
  }
  char* memory_of(int32_t device, uint64_t address, uint64_t bytes, const char* what) override {
    return memory(device).range(address, bytes, what);
  }
  void dawdle(Stream& on) override { pause(on, delay()); }

  static uint32_t& ranges() {
    thread_local uint32_t depth = 0;
    return depth;
  }

  // What Graphs asks for.
  Stream& graph_stream(int32_t device, bp_stream* stream) override { return resolve(device, stream); }
  EngineDevice& graph_device(int32_t device) override { return at(device); }
  EngineCaptures& graph_captures() override { return captures(); }
  Recorder& graph_recorder() override { return recorder_; }

  static void need(bool condition, const char* what) {
    if (!condition) throw Error(BP_INVALID_ARGUMENT, std::string(what) + " must not be NULL");
  }

  /// Queues work, or a capture takes it: then its runs are by `again`, if that is given, and `destroy` comes behind the last.
  void queue(Stream& on, const Work& what, const Job& job, void (*again)(Job&, int32_t) = nullptr, void (*destroy)(Job&) = nullptr) {
    if (captures().any()) [[unlikely]] {
      RecordedJob recorded(job, destroy, what);
      if (again) recorded.job.run = again;
      if (captures().add(&on, std::move(recorded))) return;
      recorded.destroy = nullptr;  // it is queued, and its run ends it
    }
    on.submit(job, record(on, what));
  }
  Recorder::Owned record(Stream& on, const Work& what) override {
    EngineDevice& device = on.device();
    return recorder_.queue(what, device.index(), &on == &device.default_stream() ? nullptr : &on);
  }

  struct Route {
    void* dst;
    const void* src;
  };

  static void run_host_function(Job& job, int32_t status) {
    struct Destroy {
      void (*call)(void*);
      void* arg;
      ~Destroy() {
        if (call) call(arg);
      }
    } destroy{reinterpret_cast<void (*)(void*)>(job.words[2]), reinterpret_cast<void*>(job.words[1])};
    repeat_host_function(job, status);
  }
  static void repeat_host_function(Job& job, int32_t status) {
    if (status != BP_OK) return;
    const int32_t result = reinterpret_cast<int32_t (*)(void*)>(job.words[0])(reinterpret_cast<void*>(job.words[1]));
    if (result != BP_OK) [[unlikely]]
      throw Error(BP_FAULT, std::string("a host_exec function returned ") + status_name(result));
  }
  static void destroy_host_function(Job& job) {
    if (job.words[2]) reinterpret_cast<void (*)(void*)>(job.words[2])(reinterpret_cast<void*>(job.words[1]));
  }

  static void run_kernel(Job& job, int32_t status) {
    const std::unique_ptr<uint64_t[]> args(reinterpret_cast<uint64_t*>(job.words[2]));
    run_with(args.get(), job, status);
  }
  static void repeat_kernel(Job& job, int32_t status) {
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(job.words[1]);
    uint64_t args[kParameterBytes / sizeof(uint64_t)];
    std::memcpy(args, reinterpret_cast<const void*>(job.words[2]), kernel.args_bytes());
    run_with(args, job, status);
  }
  static void destroy_kernel_args(Job& job) { delete[] reinterpret_cast<uint64_t*>(job.words[2]); }

  static void run_with(uint64_t* args, const Job& job, int32_t status) {
    if (status != BP_OK) return;
    Sim& self = *reinterpret_cast<Sim*>(job.words[0]);
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(job.words[1]);
    for (uint32_t i = 0; i < kernel.pointers(); ++i) args[i] = self.reach_argument(kernel.device(), args[i], i);
    const uint32_t grid[3] = {static_cast<uint32_t>(job.words[3]), static_cast<uint32_t>(job.words[4]),
                              static_cast<uint32_t>(job.words[5])};
    kernel.run(args, grid);
  }

  /// Where a kernel's pointer points to. Nothing is read through 0, and the end of an allocation is one, too: of an empty part of it.
  uint64_t reach_argument(int32_t device, uint64_t address, uint32_t index) {
    if (address == 0) return 0;
    if (void* at = reach(device, address)) return reinterpret_cast<uint64_t>(at);
    if (void* last = reach(device, address - 1)) return reinterpret_cast<uint64_t>(last) + 1;
    throw Error(BP_FAULT,
                format("pointer %u of a kernel, 0x%llx, is not in an allocation of device %d, nor of a peer that it has access to", index,
                       static_cast<unsigned long long>(address), device));
  }

  /// Where work of a device reaches a live address, its own or a peer's; nullptr for any other.
  void* reach(int32_t device, uint64_t address) {
    if (void* at = memory(device).map(address)) return at;
    for (int32_t peer = 0; peer < settings_.devices; ++peer) {
      if (peer == device || !access(device, peer).load(std::memory_order_relaxed)) continue;
      if (void* at = memory(peer).map(address)) return at;
    }
    return nullptr;
  }

  /// Fills a struct of the caller's, as far as the caller has room.
  template <class Struct>
  static void hand_out(Struct* out, Struct full, const char* what) {
    need(out && out->struct_size >= sizeof(uint64_t), (std::string(what) + ", with its struct_size,").c_str());
    full.struct_size = out->struct_size;
    std::memcpy(static_cast<void*>(out), &full, std::min<uint64_t>(out->struct_size, sizeof full));
  }

  /// With the lock held. Throws.
  std::vector<std::unique_ptr<Module>>::iterator find_module(int32_t device, const bp_module_code* module, const char* call) {
    const auto is_it = [&](const auto& one) {
      return reinterpret_cast<const bp_module_code*>(one.get()) == module && one->device() == device;
    };
    const auto found = std::find_if(modules_.begin(), modules_.end(), is_it);
    if (found == modules_.end()) throw Error(BP_INVALID_ARGUMENT, format("%s: no module of device %d", call, device));
    return found;
  }

  std::chrono::nanoseconds delay() {
    return impairments_.delays() ? std::chrono::nanoseconds(impairments_.next_delay()) : std::chrono::nanoseconds(0);
  }

  /// What a copy takes beyond the copying.
  std::chrono::nanoseconds time_of(int32_t dst_device, int32_t src_device, uint64_t bytes) {
    const bool crosses = dst_device != src_device;  // the host is one more
    return delay() + (crosses && impairments_.slow_links() ? impairments_.on_link(bytes) : std::chrono::nanoseconds(0));
  }

  /// The stream stands still for so long before its next work.
  void pause(Stream& on, std::chrono::nanoseconds time) {
    if (time.count() == 0) [[likely]]
      return;
    queue(on, {},
          {[](Job& job, int32_t status) {
             if (status == BP_OK) std::this_thread::sleep_for(std::chrono::nanoseconds(job.words[0]));
           },
           {static_cast<uint64_t>(time.count())}});
  }

  SimMemory& memory(int32_t device) {
    check_index(device);
    SimMemory* found = memories_[static_cast<size_t>(device)].load(std::memory_order_acquire);
    return found ? *found : make_memory(device);
  }

  SimMemory& make_memory(int32_t device) {
    at(device);
    std::lock_guard lock(make_mutex_);
    auto& slot = memories_[static_cast<size_t>(device)];
    if (!slot.load()) slot.store(new SimMemory(device, settings_.kind, settings_.memory, impairments_.strict()), std::memory_order_release);
    return *slot.load();
  }

  Route resolve_copy(uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes, uint32_t flags) {
    need_no_flags("copy", flags);
    if (dst_device == BP_HOST_DEVICE && src_device == BP_HOST_DEVICE) {
      throw Error(BP_INVALID_ARGUMENT, "copy: from the host to the host; one of the two must be a device");
    }
    const auto reach = [&](uint64_t address, int32_t device, const char* what) -> void* {
      if (device != BP_HOST_DEVICE) return memory(device).range(address, bytes, what);
      if (bytes && !address) throw Error(BP_INVALID_ARGUMENT, std::string(what) + " must not be NULL");
      return reinterpret_cast<void*>(address);
    };
    return {reach(dst, dst_device, "copy: dst"), reach(src, src_device, "copy: src")};
  }

  std::atomic<bool>& access(int32_t device, int32_t peer) {
    return peers_[static_cast<size_t>(device) * static_cast<size_t>(settings_.devices) + static_cast<size_t>(peer)];
  }
  void set_access(int32_t device, int32_t peer, bool on) {
    check_index(device);
    check_index(peer);
    access(device, peer).store(on, std::memory_order_relaxed);
  }

  const Settings settings_;
  Impairments& impairments_;
  std::mutex make_mutex_;
  std::vector<std::atomic<SimMemory*>> memories_;
  std::vector<std::atomic<bool>> peers_;  // [device * devices + peer]
  HostMemory pinned_;
  Recorder recorder_;
  const Compiler compiler_;
  std::mutex modules_mutex_;
  std::vector<std::unique_ptr<Module>> modules_;

  const bp_host_exec host_exec_ = {group_head<bp_host_exec>(), slot<&Sim::exec_enqueue>(), slot<&Sim::exec_map>()};
  const bp_host_view host_view_ = {group_head<bp_host_view>(BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ),
                                   slot<&Sim::view_map>(), slot<&Sim::view_unmap>()};
  const bp_peer peer_ = {group_head<bp_peer>(), slot<&Sim::peer_can_access>(), slot<&Sim::peer_enable>(), slot<&Sim::peer_disable>()};
  const bp_vmm vmm_ = {group_head<bp_vmm>(),      slot<&Sim::vmm_granularity>(), slot<&Sim::vmm_reserve>(),
                       slot<&Sim::vmm_release>(), slot<&Sim::vmm_map>(),         slot<&Sim::vmm_unmap>()};
  bp_ipc ipc_ = {group_head<bp_ipc>(BP_IPC_EVENTS), slot<&Sim::ipc_memory_export>(), slot<&Sim::ipc_memory_open>(),
                 slot<&Sim::ipc_memory_close>(),    slot<&Sim::ipc_event_export>(),  slot<&Sim::ipc_event_open>()};
  const bp_compiler compiler_group_ = {group_head<bp_compiler>(BP_COMPILER_SUBPROCESS),
                                       slot<&Sim::compiler_id>(),
                                       slot<&Sim::compiler_target>(),
                                       slot<&Sim::compiler_prelude>(),
                                       slot<&Sim::compiler_compile>(),
                                       slot<&Sim::compiler_release>()};
  const bp_module module_group_ = {group_head<bp_module>(), slot<&Sim::module_load>(), slot<&Sim::module_unload>(),
                                   slot<&Sim::module_function>(), slot<&Sim::module_launch>()};
#define BP_SLOT(entry) slot<&Sim::collective_##entry>(),
  static constexpr uint32_t kCollectiveFlags =
      BP_COLLECTIVE_CONCURRENT | BP_COLLECTIVE_BITWISE | BP_COLLECTIVE_SAME_DEVICE | BP_COLLECTIVE_WATCHES | BP_COLLECTIVE_SPLIT |
      BP_COLLECTIVE_ABORT | BP_COLLECTIVE_ALL_TO_ALL | BP_COLLECTIVE_ALL_TO_ALL_V | BP_COLLECTIVE_GATHER | BP_COLLECTIVE_BARRIER;
  const bp_collective collective_group_ = {group_head<bp_collective>(kCollectiveFlags), BP_COLLECTIVE_SLOTS(BP_SLOT)};
#undef BP_SLOT
#define BP_SLOT(entry) slot<&Sim::profile_##entry>(),
  const bp_profile profile_ = {group_head<bp_profile>(BP_PROFILE_NAMES | BP_PROFILE_COLLECTIVES | BP_PROFILE_RANGES),
                               BP_PROFILE_SLOTS(BP_SLOT)};
#undef BP_SLOT
#define BP_SLOT(entry) slot<&Sim::graph_##entry>(),
  const bp_graph graph_group_ = {group_head<bp_graph>(BP_GRAPH_HOST_EXEC | BP_GRAPH_DUMP), BP_GRAPH_SLOTS(BP_SLOT)};
#undef BP_SLOT
};

}  // namespace backplane::driver::sim

BP_DEFINE_DRIVER(backplane::driver::sim::Sim)
