// drivers/shims/fault/work.h: what is intercepted of work: copies, fills, host functions, kernels and graphs, and what these are made of.
#pragma once

#include <memory>
#include <string>

#include "below.h"

namespace backplane::driver::fault {

class WorkFaults : public virtual Below {
 public:
  using Below::Below;

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (state.hangs(stream)) state.wait_in_vain(BP_NO_TIMEOUT);
    pass(&bp_driver::copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    state.check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    DeviceFault& state = alive(device);
    fail_copy(device, bytes);
    if (queue(state, device, stream, "a copy")) {
      pass(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    }
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a fill")) pass(&bp_driver::fill, device, stream, dst, pattern, pattern_size, count, flags);
  }

  void exec_enqueue(int32_t device, bp_stream* stream, int32_t (*fn)(void*), void* arg, void (*destroy)(void*)) {
    std::unique_ptr<Work> work(new Work{nullptr, fn, arg, destroy, false, this});  // destroys also where the next lines throw
    DeviceFault& state = alive(device);
    work->state = &state;
    if (!fn) throw Error(BP_INVALID_ARGUMENT, "host_exec.enqueue: fn must not be NULL");
    if (!captures(device, stream) && strikes(settings_.hang, device)) state.hang(stream);
    if (state.hangs(stream)) {
      state.hold(stream, [kept = std::shared_ptr<Work>(std::move(work))] {});
      return;
    }
    work->fails = !captures(device, stream) && strikes(settings_.kernel, device);
    Work* task = work.release();  // the driver below calls destroy in any case
    const auto run = [](void* given) -> int32_t { return static_cast<Work*>(given)->run(); };
    pass_group<&bp_host_exec::enqueue>(device, stream, run, static_cast<void*>(task),
                                       [](void* given) { delete static_cast<Work*>(given); });
  }

  void module_launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a kernel")) pass_group<&bp_module::launch>(device, stream, launch);
  }

  void compiler_compile(const bp_compile_request* request, bp_compile_result* out) {
    if (strikes(settings_.compile, settings_.device)) {
      throw Error(BP_INTERNAL, settings_.compile.text("compiler.compile: the compiler broke"));
    }
    pass_group<&bp_compiler::compile>(request, out);
  }

  void module_load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    alive(device);
    if (strikes(settings_.load, device)) throw Error(BP_INTERNAL, settings_.load.text("module.load: the device refused the code"));
    pass_group<&bp_module::load>(device, code, bytes, out);
  }
  void module_unload(int32_t device, bp_module_code* module) { release_group<&bp_module::unload>(device, module); }

  void graph_capture_begin(int32_t device, bp_stream* stream, int32_t mode, uint64_t* id) {
    alive(device);
    if (strikes(settings_.capture, device)) throw Error(BP_INTERNAL, settings_.capture.text("graph.capture_begin: the stream refused"));
    captured_ = true;
    pass_group<&bp_graph::capture_begin>(device, stream, mode, id);
  }
  void graph_instantiate(int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out) {
    alive(device);
    if (strikes(settings_.instantiate, device)) {
      throw Error(BP_OUT_OF_MEMORY, settings_.instantiate.text("graph.instantiate: no room for the graph"));
    }
    pass_group<&bp_graph::instantiate>(device, recording, flags, out);
  }
  void graph_launch(int32_t device, bp_stream* stream, bp_graph_exec* exec) {
    DeviceFault& state = alive(device);
    if (queue(state, device, stream, "a graph")) pass_group<&bp_graph::launch>(device, stream, exec);
  }
  void graph_recording_destroy(int32_t device, bp_recording* recording) { release_group<&bp_graph::recording_destroy>(device, recording); }
  void graph_exec_destroy(int32_t device, bp_graph_exec* exec) { release_group<&bp_graph::exec_destroy>(device, exec); }

 private:
  void fail_copy(int32_t device, uint64_t bytes) {
    if (strikes(settings_.copy, device)) {
      throw Error(BP_INTERNAL, settings_.copy.text("the transfer of " + std::to_string(bytes) + " bytes was aborted"));
    }
  }

  /// A host function on its way: skipped after a fault, its destroy runs once.
  struct Work {
    DeviceFault* state;
    int32_t (*fn)(void*);
    void* arg;
    void (*destroy)(void*);
    bool fails;
    WorkFaults* owner;

    ~Work() {
      if (destroy) destroy(arg);
    }
    int32_t run() {
      if (state->sticky() != BP_OK) return BP_OK;
      if (!fails) return fn(arg);
      state->suffer(BP_FAULT, owner->settings_.kernel.text("a kernel failed: bad address"));
      return BP_OK;
    }
  };
};

}  // namespace backplane::driver::fault
