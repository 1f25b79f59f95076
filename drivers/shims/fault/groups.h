// drivers/shims/fault/groups.h: what is intercepted of the groups of memory, work and tools; all else of them passes through.
#pragma once

#include <memory>
#include <string>

#include "state.h"

namespace backplane::driver::fault {

struct VmmEntries : Intercepted<bp_vmm> {
  using InterceptedGroup::InterceptedGroup;

  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    state.alive(device);
    state.refuse(state.settings.reserve, device, BP_OUT_OF_MEMORY, "vmm.reserve: no addresses for ", bytes, " bytes");
    (*this)(&bp_vmm::reserve, device, bytes, out);
  }
  void release(int32_t device, uint64_t address, uint64_t bytes) {
    state.release(device, [&] { (*this)(&bp_vmm::release, device, address, bytes); });
  }
  void map(int32_t device, uint64_t address, uint64_t bytes) {
    state.alive(device);
    state.refuse(state.settings.map, device, BP_OUT_OF_MEMORY, "vmm.map: no room for ", bytes, " bytes");
    (*this)(&bp_vmm::map, device, address, bytes);
  }
  void unmap(int32_t device, uint64_t address, uint64_t bytes) {
    if (state.of(device).sticky() != BP_DEVICE_LOST) {
      state.refuse(state.settings.unmap, device, BP_INTERNAL, "vmm.unmap: the memory could not be returned");
    }
    state.release(device, [&] { (*this)(&bp_vmm::unmap, device, address, bytes); });
  }
};

struct HostExecEntries : Intercepted<bp_host_exec> {
  using InterceptedGroup::InterceptedGroup;

  void enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    std::unique_ptr<Work> work(new Work{nullptr, fn, arg, destroy, false, this});  // destroys also where the next lines throw
    DeviceFault& found = state.alive(device);
    work->state = &found;
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
    if (!state.captures(device, stream) && state.strikes(state.settings.hang, device)) found.hang(stream);
    if (found.hangs(stream)) {
      found.hold(stream, [kept = std::shared_ptr<Work>(std::move(work))] {});
      return;
    }
    work->fails = !state.captures(device, stream) && state.strikes(state.settings.kernel, device);
    Work* task = work.release();  // the inner driver calls destroy in any case
    const auto run = [](void* given) -> int32_t { return static_cast<Work*>(given)->run(); };
    (*this)(&bp_host_exec::enqueue, device, stream, run, static_cast<void*>(task), [](void* given) { delete static_cast<Work*>(given); });
  }

 private:
  /// A host function on its way: skipped after a fault, its destroy runs once.
  struct Work {
    DeviceFault* state;
    int32_t (*fn)(void*);
    void* arg;
    void (*destroy)(void*);
    bool fails;
    HostExecEntries* owner;

    ~Work() {
      if (destroy) destroy(arg);
    }
    int32_t run() {
      if (state->sticky() != BP_OK) return BP_OK;
      if (!fails) return fn(arg);
      state->suffer(BP_FAULT, owner->state.settings.kernel.text("a kernel failed: bad address"));
      return BP_OK;
    }
  };
};

struct CompilerEntries : Intercepted<bp_compiler> {
  using InterceptedGroup::InterceptedGroup;

  void compile(const bp_compile_request* request, bp_compile_result* out) {
    state.refuse(state.settings.compile, state.settings.device, BP_INTERNAL, "compiler.compile: the compiler broke");
    (*this)(&bp_compiler::compile, request, out);
  }
};

struct ModuleEntries : Intercepted<bp_module> {
  using InterceptedGroup::InterceptedGroup;

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    state.alive(device);
    state.refuse(state.settings.load, device, BP_INTERNAL, "module.load: the device refused the code");
    (*this)(&bp_module::load, device, code, bytes, out);
  }
  void unload(int32_t device, bp_module_code* module) {
    state.release(device, [&] { (*this)(&bp_module::unload, device, module); });
  }
  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    DeviceFault& found = state.alive(device);
    if (state.queue(found, device, stream, "a kernel")) (*this)(&bp_module::launch, device, stream, launch);
  }
};

struct GraphEntries {
  State& state;

  template <class Slot, class... Args>
  int32_t pass(Args... args) {
    return state.graph.pass<Slot>(args...);
  }

  void capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    state.alive(device);
    state.refuse(state.settings.capture, device, BP_INTERNAL, "graph.capture_begin: the stream refused");
    state.captured = true;
    state.graph(&bp_graph::capture_begin, device, stream, mode, id);
  }
  void instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
    state.alive(device);
    state.refuse(state.settings.instantiate, device, BP_OUT_OF_MEMORY, "graph.instantiate: no room for the graph");
    state.graph(&bp_graph::instantiate, device, recording, flags, out);
  }
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    DeviceFault& found = state.alive(device);
    if (state.queue(found, device, stream, "a graph")) state.graph(&bp_graph::launch, device, stream, exec);
  }
  void recording_destroy(int32_t device, bp_recording* recording) {
    state.release(device, [&] { state.graph(&bp_graph::recording_destroy, device, recording); });
  }
  void exec_destroy(int32_t device, bp_graph_exec* exec) {
    state.release(device, [&] { state.graph(&bp_graph::exec_destroy, device, exec); });
  }
};

struct ProfileEntries : Intercepted<bp_profile> {
  using InterceptedGroup::InterceptedGroup;

  void start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    state.refuse(state.settings.profile, state.settings.device, BP_INTERNAL, "profile.start: no counters are free");
    (*this)(&bp_profile::start, kinds, fn, arg);
  }
};

}  // namespace backplane::driver::fault
