// drivers/shims/fault/groups.h: what is intercepted of the groups of memory, work and tools; all else of them passes through.
#pragma once

#include <memory>
#include <string>

#include "state.h"

namespace backplane::driver::fault {

class VmmEntries : public PassingGroup<bp_vmm> {
 public:
  explicit VmmEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  void reserve(int32_t device, uint64_t bytes, uint64_t* out) {
    state_.alive(device);
    if (state_.strikes(state_.settings.reserve, device)) {
      throw Error(BP_OUT_OF_MEMORY, state_.settings.reserve.text("vmm.reserve: no addresses for " + std::to_string(bytes) + " bytes"));
    }
    (*this)(&bp_vmm::reserve, device, bytes, out);
  }
  void release(int32_t device, uint64_t address, uint64_t bytes) {
    state_.release(device, [&] { (*this)(&bp_vmm::release, device, address, bytes); });
  }
  void map(int32_t device, uint64_t address, uint64_t bytes) {
    state_.alive(device);
    if (state_.strikes(state_.settings.map, device)) {
      throw Error(BP_OUT_OF_MEMORY, state_.settings.map.text("vmm.map: no room for " + std::to_string(bytes) + " bytes"));
    }
    (*this)(&bp_vmm::map, device, address, bytes);
  }
  void unmap(int32_t device, uint64_t address, uint64_t bytes) {
    if (state_.state(device).sticky() != BP_DEVICE_LOST && state_.strikes(state_.settings.unmap, device)) {
      throw Error(BP_INTERNAL, state_.settings.unmap.text("vmm.unmap: the memory could not be returned"));
    }
    state_.release(device, [&] { (*this)(&bp_vmm::unmap, device, address, bytes); });
  }

 private:
  State& state_;
};

class HostExecEntries : public PassingGroup<bp_host_exec> {
 public:
  explicit HostExecEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  void enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    std::unique_ptr<Work> work(new Work{nullptr, fn, arg, destroy, false, this});  // destroys also where the next lines throw
    DeviceFault& state = state_.alive(device);
    work->state = &state;
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
    if (!state_.captures(device, stream) && state_.strikes(state_.settings.hang, device)) state.hang(stream);
    if (state.hangs(stream)) {
      state.hold(stream, [kept = std::shared_ptr<Work>(std::move(work))] {});
      return;
    }
    work->fails = !state_.captures(device, stream) && state_.strikes(state_.settings.kernel, device);
    Work* task = work.release();  // the driver below calls destroy in any case
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
      state->suffer(BP_FAULT, owner->state_.settings.kernel.text("a kernel failed: bad address"));
      return BP_OK;
    }
  };

  State& state_;
};

class CompilerEntries : public PassingGroup<bp_compiler> {
 public:
  explicit CompilerEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  void compile(const bp_compile_request* request, bp_compile_result* out) {
    if (state_.strikes(state_.settings.compile, state_.settings.device)) {
      throw Error(BP_INTERNAL, state_.settings.compile.text("compiler.compile: the compiler broke"));
    }
    (*this)(&bp_compiler::compile, request, out);
  }

 private:
  State& state_;
};

class ModuleEntries : public PassingGroup<bp_module> {
 public:
  explicit ModuleEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    state_.alive(device);
    if (state_.strikes(state_.settings.load, device))
      throw Error(BP_INTERNAL, state_.settings.load.text("module.load: the device refused the code"));
    (*this)(&bp_module::load, device, code, bytes, out);
  }
  void unload(int32_t device, bp_module_code* module) {
    state_.release(device, [&] { (*this)(&bp_module::unload, device, module); });
  }
  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    DeviceFault& state = state_.alive(device);
    if (state_.queue(state, device, stream, "a kernel")) (*this)(&bp_module::launch, device, stream, launch);
  }

 private:
  State& state_;
};

class GraphEntries {
 public:
  explicit GraphEntries(State& state) : state_(state) {}

  template <class Slot, class... Args>
  int32_t pass(Args... args) {
    return state_.graph.pass<Slot>(args...);
  }

  void capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    state_.alive(device);
    if (state_.strikes(state_.settings.capture, device))
      throw Error(BP_INTERNAL, state_.settings.capture.text("graph.capture_begin: the stream refused"));
    state_.captured = true;
    state_.graph(&bp_graph::capture_begin, device, stream, mode, id);
  }
  void instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
    state_.alive(device);
    if (state_.strikes(state_.settings.instantiate, device)) {
      throw Error(BP_OUT_OF_MEMORY, state_.settings.instantiate.text("graph.instantiate: no room for the graph"));
    }
    state_.graph(&bp_graph::instantiate, device, recording, flags, out);
  }
  void launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    DeviceFault& state = state_.alive(device);
    if (state_.queue(state, device, stream, "a graph")) state_.graph(&bp_graph::launch, device, stream, exec);
  }
  void recording_destroy(int32_t device, bp_recording* recording) {
    state_.release(device, [&] { state_.graph(&bp_graph::recording_destroy, device, recording); });
  }
  void exec_destroy(int32_t device, bp_graph_exec* exec) {
    state_.release(device, [&] { state_.graph(&bp_graph::exec_destroy, device, exec); });
  }

 private:
  State& state_;
};

class ProfileEntries : public PassingGroup<bp_profile> {
 public:
  explicit ProfileEntries(State& state) : PassingGroup(state.inner), state_(state) {}

  void start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    if (state_.strikes(state_.settings.profile, state_.settings.device))
      throw Error(BP_INTERNAL, state_.settings.profile.text("profile.start: no counters are free"));
    (*this)(&bp_profile::start, kinds, fn, arg);
  }

 private:
  State& state_;
};

}  // namespace backplane::driver::fault
