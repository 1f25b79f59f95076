// drivers/cuda/cuda.cpp: the driver of NVIDIA GPUs: each entry of the table as the calls of the CUDA driver API that it is made of.
//
// A bp_stream* is a CUstream, so that nothing stands between a launch and CUDA.
#include <cstring>
#include <string>

#include <backplane/driver/peer.h>
#include <backplane/driver/vendor/cuda.h>
#include <backplane/driver/cxx/driver.hpp>
#include <backplane/driver/cxx/event_profile.hpp>

#include "collective.h"
#include "compiler.h"
#include "gpus.h"
#include "graph.h"
#include "memory_groups.h"
#include "module_entries.h"
#include "peer.h"
#include "properties.h"
#include "settings.h"
#include "work.h"

namespace backplane::driver {
BP_GROUP_TRAITS(bp_cuda, "cuda", BP_CUDA_ID, BP_CUDA_VERSION, BP_CUDA_SLOTS, "is a GPU of NVIDIA's")
}

namespace backplane::driver::cuda {

struct NativeEntries {
  const Gpus& gpus;

  void ordinal(int32_t device, int32_t* out) {
    need(out, "cuda.ordinal: out must not be NULL");
    *out = gpus.at(device).device.ordinal();
  }
};

class Cuda : public Driver<Cuda> {
 public:
  explicit Cuda(const Host& host)
      : Driver(host, BP_DRIVER_COUNT_FORKS),  // a child of a process that has called cuInit has no CUDA
        settings_(host.config()),
        cuda_(settings_.libcuda),
        gpus_(cuda_, settings_.managed),
        host_memory_(cuda_),
        compiler_(gpus_, settings_.nvrtc) {
    offer<bp_peer>(peers_);
    offer<bp_compiler>(compiler_entries_);
    offer<bp_module>(modules_);
    offer<bp_profile>(profile_, BP_PROFILE_COLLECTIVES);
    offer<bp_graph>(graphs_, BP_GRAPH_DUMP);
    offer<bp_cuda>(native_);
    collective_ = &offer<bp_collective>(collectives_);
    if (settings_.managed) {
      offer<bp_host_view>(host_view_, BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ);
    } else {  // managed memory can neither be mapped nor shared
      offer<bp_vmm>(vmm_);
      offer<bp_ipc>(ipc_, BP_IPC_EVENTS | BP_IPC_ANY_MEMORY);
    }
  }

  ~Cuda() {
    collectives_.end_all();  // work that waits for peers would keep its streams
    // Pinned memory belongs to the contexts, and copies of all of them may still use it.
    if (!gpus_.known()) return;
    for (const auto& gpu : gpus_.all()) {
      if (CUcontext context = gpu->device.context_if_any()) {
        const Current current(cuda_, context);
        graphs_.end_captures(gpu->device);
        gpu->device.complete();
        graphs_.release(gpu->device);
      }
    }
    for (const auto& gpu : gpus_.all()) {
      if (CUcontext context = gpu->device.context_if_any()) {
        const Current current(cuda_, context);
        host_memory_.release_all();
        break;
      }
    }
  }

  void device_count(int32_t* out) {
    need(out, "device_count: out must not be NULL");
    *out = gpus_.count();
    if (*out == 0 && !cuda_.missing().empty()) host().log(BP_LOG_INFO, "cuda: " + cuda_.missing());
  }

  void device_properties(int32_t device, bp_device_properties* out) { properties_of(cuda_, gpus_.at(device).device, out); }

  void open() {
    for (const auto& gpu : gpus_.all()) {
      if (settings_.managed && !gpu->device.attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)) {
        throw Error(BP_UNSUPPORTED, "open: memory=managed needs a GPU whose managed memory the host may read while it works, and device " +
                                        std::to_string(gpu->device.ordinal()) + " is none; leave the option out");
      }
    }
  }

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    const Use gpu(gpus_, device);
    need(out && !(flags & ~BP_ALLOC_SHARED), "alloc: out must not be NULL, flags must be 0 or BP_ALLOC_SHARED");
    *out = gpu->memory->alloc(bytes);
  }
  void free(int32_t device, uint64_t address) { Release(gpus_, device)->memory->free(address); }

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    const Use gpu(gpus_, device);
    graphs_.check_stream("copy", native(stream));
    graphs_.check_wait("copy");
    if (queue_copy(gpu, device, stream, {dst, dst_device, src, src_device, bytes}, flags)) {
      gpu.check(cuda_.cuStreamSynchronize(native(stream)), "copy");
    }
  }
  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    const Use gpu(gpus_, device);
    queue_copy(gpu, device, stream, {dst, dst_device, src, src_device, bytes}, flags);
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const Use gpu(gpus_, device);
    need(flags == 0, "fill: flags must be 0");
    const Fill what(pattern, pattern_size, dst, count);
    gpu->vmm->check(dst, what.bytes(), "fill: dst");
    profile_.around(EventProfile<>::work(BP_ACTIVITY_FILL, device, what.bytes()), stream,
                    [&] { graphs_.queue(native(stream), [&] { what.queue(cuda_, gpu->device, native(stream)); }); });
  }

  // Queries answer from the GPU, which reports a failure by itself; what it has reported stays.

  int32_t synchronize(int32_t device, uint64_t timeout_ns) {
    const Use gpu(gpus_, device);
    graphs_.check_wait("synchronize", timeout_ns);
    return wait(timeout_ns, [&] {
      graphs_.check_device("synchronize", gpu->device);  // each time: a capture may begin meanwhile, whose streams CUDA does not query
      return gpu->device.query_all();
    });
  }

  void stream_create(int32_t device, int32_t priority, uint32_t flags, bp_stream** out) {
    const Use gpu(gpus_, device);
    need(out && flags == 0, "stream_create: out must not be NULL, flags must be 0");
    *out = reinterpret_cast<bp_stream*>(gpu->device.make_stream(priority));
  }
  void stream_destroy(int32_t device, bp_stream* stream) {
    const Release gpu(gpus_, device);
    graphs_.drop(native(stream));
    gpu->device.destroy_stream(native(stream));
  }
  int32_t stream_query(int32_t device, bp_stream* stream) {
    const Use gpu(gpus_, device);
    graphs_.check_stream("stream_query", native(stream));
    return gpu->device.query(cuda_.cuStreamQuery(native(stream)), "cuStreamQuery");
  }
  int32_t stream_synchronize(int32_t device, bp_stream* stream, uint64_t timeout_ns) {
    const Use gpu(gpus_, device);
    graphs_.check_stream("stream_synchronize", native(stream));
    graphs_.check_wait("stream_synchronize", timeout_ns);
    return wait(timeout_ns, [&] { return gpu->device.query(cuda_.cuStreamQuery(native(stream)), "cuStreamQuery"); });
  }
  void stream_callback(int32_t device, bp_stream* stream, bp_callback fn, void* arg) {
    const Use gpu(gpus_, device);
    need(fn, "stream_callback: fn must not be NULL");
    graphs_.check_stream("stream_callback", native(stream));
    queue_callback_on(cuda_, gpu->device, native(stream), fn, arg);
  }
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    gpus_.at(device);
    need(out, "stream_native: out must not be NULL");
    *out = reinterpret_cast<uint64_t>(stream);
  }
  void stream_from_native(int32_t device, uint64_t number, bp_stream** out) {
    const Use gpu(gpus_, device);
    need(out, "stream_from_native: out must not be NULL");
    *out = reinterpret_cast<bp_stream*>(stream_of_number(cuda_, gpu->device, number));
  }

  void event_create(int32_t device, uint32_t flags, bp_event** out) {
    const Use gpu(gpus_, device);
    need(out && !(flags & ~(BP_EVENT_TIMING | BP_EVENT_BLOCKING | BP_EVENT_IPC)), "event_create: out must not be NULL, flags BP_EVENT_*");
    CUevent event = nullptr;
    gpu.check(cuda_.cuEventCreate(&event, event_flags(flags)), "cuEventCreate");
    *out = reinterpret_cast<bp_event*>(gpu->device.events.add(std::make_unique<Event>(event, flags & BP_EVENT_IPC).release()));
  }
  void event_destroy(int32_t device, bp_event* event) { Release(gpus_, device)->device.events.destroy(&event_of(event), "event_destroy"); }
  void event_record(int32_t device, bp_stream* stream, bp_event* event, uint32_t flags) {
    const Use gpu(gpus_, device);
    need(event && flags == 0, "event_record: event must not be NULL, flags must be 0");
    graphs_.record_event(gpu, native(stream), event_of(event));
  }
  int32_t event_query(int32_t device, bp_event* event) {
    const Use gpu(gpus_, device);
    need(event, "event_query: event must not be NULL");
    graphs_.check_event("event_query", event_of(event));
    return gpu->device.query(cuda_.cuEventQuery(event_of(event).native), "cuEventQuery");
  }
  int32_t event_synchronize(int32_t device, bp_event* event, uint64_t timeout_ns) {
    const Use gpu(gpus_, device);
    need(event, "event_synchronize: event must not be NULL");
    graphs_.check_event("event_synchronize", event_of(event));
    graphs_.check_wait("event_synchronize", timeout_ns);
    return wait(timeout_ns, [&] { return gpu->device.query(cuda_.cuEventQuery(event_of(event).native), "cuEventQuery"); });
  }
  void stream_wait(int32_t device, bp_stream* stream, bp_event* event) {
    const Use gpu(gpus_, device);
    need(event, "stream_wait: event must not be NULL");
    graphs_.wait(gpu, native(stream), event_of(event));
  }
  int32_t event_elapsed(int32_t device, bp_event* start, bp_event* end, int64_t* ns) {
    const Use gpu(gpus_, device);
    need(start && end && ns, "event_elapsed: start, end and ns must not be NULL");
    for (bp_event* one : {start, end}) graphs_.check_event("event_elapsed", event_of(one));
    float milliseconds = 0;
    const CUresult result = cuda_.cuEventElapsedTime(&milliseconds, event_of(start).native, event_of(end).native);
    const int32_t status = gpu->device.query(result, "cuEventElapsedTime");
    if (status == BP_OK) *ns = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    return status;
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    need(out && flags == 0, "host_alloc: out must not be NULL, flags must be 0");
    const Current current(cuda_, gpus_.some_context());
    *out = host_memory_.alloc(bytes);
  }
  void host_free(void* memory) { host_give_back(memory, BP_MEMORY_PINNED, "host_free"); }
  void host_register(void* memory, uint64_t bytes) {
    const Current current(cuda_, gpus_.some_context());
    host_memory_.add(memory, bytes);
  }
  void host_unregister(void* memory) { host_give_back(memory, BP_MEMORY_REGISTERED, "host_unregister"); }

  void pointer_info(uint64_t address, bp_pointer_info* out) {
    out->device = BP_HOST_DEVICE;
    const auto found = [&](int32_t kind, uint64_t base, uint64_t bytes, int32_t device = BP_HOST_DEVICE) {
      out->kind = kind, out->device = device, out->base = base, out->bytes = bytes;
    };
    for (const auto& gpu : gpus_.all()) {
      if (const auto place = gpu->memory->find(address)) return found(BP_MEMORY_DEVICE, place->base, place->bytes, gpu->device.ordinal());
      if (const auto run = gpu->vmm->find(address)) return found(BP_MEMORY_DEVICE, run->base, run->bytes, gpu->device.ordinal());
    }
    if (const auto block = host_memory_.find(address)) return found(block->handle, block->base, block->bytes);
    ask_cuda_about(cuda_, gpus_, address, out);
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    const Use gpu(gpus_, device);
    need(free_bytes && total_bytes, "memory_info: both outputs are needed");
    size_t available = 0, total = 0;
    gpu.check(cuda_.cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
    *free_bytes = available;
    *total_bytes = total;
  }

  /// Stays, for libraries that take the current context.
  void set_current(int32_t device) {
    Gpu& gpu = gpus_.at(device);
    gpu.device.check(cuda_.cuCtxSetCurrent(gpu.device.context()), "cuCtxSetCurrent");
  }

  // bp.collective, where there is NCCL, which is looked for when the group is asked for

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out || std::strcmp(id, BP_COLLECTIVE_ID) != 0 || version != BP_COLLECTIVE_VERSION) {
      return Driver::query_ext(id, version, out);
    }
    if (!cuda_.loaded()) return fail(BP_UNSUPPORTED, "bp.collective: " + cuda_.missing());
    std::string why;
    if (!collectives_.load(settings_.nccl, why)) {
      host().log(BP_LOG_INFO, "cuda: no bp.collective: " + why);
      return fail(BP_UNSUPPORTED, "bp.collective: " + why);
    }
    collective_->head.flags = collectives_.flags();
    return Driver::query_ext(id, version, out);
  }

 private:
  /// False if there is nothing to copy.
  bool queue_copy(const Use& gpu, int32_t device, bp_stream* stream, const CopyRange& range, uint32_t flags) {
    need(flags == 0, "copy: flags must be 0");
    bool queued = false;
    profile_.around(EventProfile<>::copy(device, range.dst_device, range.src_device, range.bytes), stream,
                    [&] { graphs_.queue(native(stream), [&] { queued = queue_copy_on(gpus_, *gpu, range, native(stream)); }); });
    return queued;
  }

  void host_give_back(void* memory, int32_t kind, const char* what) {
    const Current current(cuda_, gpus_.some_context());
    host_memory_.give_back(memory, kind, what);
  }

  const Settings settings_;
  const Library cuda_;
  const Gpus gpus_;
  HostMemory host_memory_;
  EventProfile<> profile_{TableCalls{table()}};
  Peers peers_{gpus_};
  VmmEntries vmm_{gpus_};
  IpcEntries ipc_{gpus_};
  HostViewEntries host_view_{gpus_};
  Graphs graphs_{cuda_, gpus_, profile_};
  Collectives collectives_{gpus_, graphs_, profile_};
  const Compiler compiler_;
  CompilerEntries<const Compiler> compiler_entries_{compiler_};
  ModuleEntries modules_{gpus_, graphs_, profile_, compiler_};
  NativeEntries native_{gpus_};
  bp_collective* collective_ = nullptr;
};

}  // namespace backplane::driver::cuda

BP_DEFINE_DRIVER(backplane::driver::cuda::Cuda)
