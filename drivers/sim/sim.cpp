// drivers/sim/sim.cpp: the simulated device: a whole driver whose memory is the host's and whose work is host functions.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "../engine/fill.h"
#include "../engine/host_memory.h"
#include "../engine/profile.h"
#include "collective.h"
#include "graph.h"
#include "host_exec.h"
#include "memory_groups.h"
#include "module_entries.h"

namespace backplane::driver::sim {

template <class Text, size_t Size>
void set_text(char (&field)[Size], const Text& text) {
  std::snprintf(field, Size, "%s", std::string(text).c_str());
}

class Sim final : public Driver<Sim>, public Devices {
 public:
  explicit Sim(const Host& host) : Driver(host), Devices(host), compiler_(host, settings) {
    offer<bp_host_exec>(host_exec_);
    offer<bp_peer>(peer_);
    offer<bp_vmm>(vmm_);
    offer<bp_ipc>(ipc_, BP_IPC_EVENTS | (settings.kind == Kind::discrete ? BP_IPC_ANY_MEMORY : 0));
    offer<bp_compiler>(compiler_entries_, BP_COMPILER_SUBPROCESS);
    offer<bp_module>(modules_);
    if (settings.collective) {
      offer<bp_collective>(collectives_, BP_COLLECTIVE_CONCURRENT | BP_COLLECTIVE_BITWISE | BP_COLLECTIVE_SAME_DEVICE |
                                             BP_COLLECTIVE_WATCHES | BP_COLLECTIVE_SPLIT | BP_COLLECTIVE_ABORT | BP_COLLECTIVE_ALL_TO_ALL |
                                             BP_COLLECTIVE_ALL_TO_ALL_V | BP_COLLECTIVE_GATHER | BP_COLLECTIVE_BARRIER);
    }
    if (settings.profile) offer<bp_profile>(profile_, BP_PROFILE_NAMES | BP_PROFILE_COLLECTIVES | BP_PROFILE_RANGES);
    if (settings.graph) offer<bp_graph>(graphs_, BP_GRAPH_HOST_EXEC | BP_GRAPH_DUMP);
    if (settings.kind == Kind::unified) {
      offer<bp_host_view>(host_view_, BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT | BP_HOST_VIEW_CACHED_READ);
    }
  }

  ~Sim() {
    collectives_.abort_all();  // of which some may wait for ranks that never come
    shutdown();                // queued work uses the memory
    graphs_.release();
  }

  void device_count(int32_t* out) {
    need(out, "device_count: out");
    *out = settings.devices;
  }

  void device_properties(int32_t device, bp_device_properties* out) {
    check_index(device);
    set_text(out->name, "Backplane simulated device");
    set_text(out->vendor, "Backplane");
    set_text(out->driver_version, "0.1.0");
    set_text(out->bus_id, format("0000:%02x:00.0", static_cast<unsigned>(device)));
    std::snprintf(reinterpret_cast<char*>(out->uuid), sizeof out->uuid, "backplane-sim%02d", device);
    out->total_memory = out->max_allocation = settings.memory;
    out->dtypes = BP_DTYPE_FLOAT8_E5M2 * 2 - 1;  // all
    out->alignment = SimMemory::kAlignment;
    out->copy_alignment = 1;
    out->stream_limit = settings.streams;
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
    if (faults.refuses_allocation()) {
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
    auto work = bytes ? record(on, {BP_ACTIVITY_COPY, bytes, dst_device, src_device}) : nullptr;
    on.run_blocking([&] {
      TimedWork timed(work.release());
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
    queue_job(on, {BP_ACTIVITY_COPY, bytes, dst_device, src_device}, job_of([route, bytes](int32_t status) {
                if (status == BP_OK) std::memcpy(route.dst, route.src, bytes);
              }));
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    need_no_flags("fill", flags);
    Stream& on = usable(device, stream);
    const FillPattern row(pattern, pattern_size, count, dst);
    char* at = memory(device).range(dst, row.bytes, "fill: dst");
    if (count == 0) return;
    pause(on, delay());
    queue_job(on, {BP_ACTIVITY_FILL, row.bytes}, job_of([at, row](int32_t status) {
                if (status == BP_OK) fill_bytes(at, row.word, row.bytes);
              }));
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    at(device).check();
    need(free_bytes && total_bytes, "memory_info: the outputs");
    *free_bytes = memory(device).free_bytes();
    *total_bytes = settings.memory;
  }

  /// There is no vendor library that has a current device: only the index is checked.
  void set_current(int32_t device) { check_index(device); }

  /// The stream object; the default stream has one too.
  void stream_native(int32_t device, bp_stream* stream, uint64_t* out) {
    need(out, "stream_native: out");
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
    for (int32_t device = 0; device < settings.devices; ++device) {
      const SimMemory* known = known_memory(device);
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

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!settings.collective && id && std::strcmp(id, BP_COLLECTIVE_ID) == 0) {
      return fail(BP_UNSUPPORTED, "bp.collective is switched off by the option collective=off");
    }
    return Driver::query_ext(id, version, out);
  }

 private:
  struct Route {
    void* dst;
    const void* src;
  };

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

  HostMemory pinned_;
  const Compiler compiler_;
  HostExecEntries host_exec_{*this};
  HostViewEntries host_view_{*this};
  PeerEntries peer_{*this};
  VmmEntries vmm_{*this};
  IpcEntries ipc_{*this};
  CompilerEntries<const Compiler> compiler_entries_{compiler_};
  ModuleEntries modules_{*this, compiler_};
  Collectives collectives_{*this};
  EngineProfile profile_{*this, recorder};
  Graphs graphs_{*this};
};

}  // namespace backplane::driver::sim

BP_DEFINE_DRIVER(backplane::driver::sim::Sim)
