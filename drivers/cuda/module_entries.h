// drivers/cuda/module_entries.h: the entries of bp.module.
#pragma once

#include <backplane/driver/cxx/entries.hpp>

#include "compiler.h"
#include "graph.h"

namespace backplane::driver::cuda {

class ModuleEntries {
 public:
  ModuleEntries(const Gpus& gpus, Graphs& graphs, EventProfile<>& profile, const Compiler& compiler)
      : gpus_(gpus), graphs_(graphs), profile_(profile), compiler_(compiler) {}

  void load(int32_t device, const void* code, uint64_t bytes, bp_module_code** out) {
    const Use gpu(gpus_, device);
    need(code && out, "module.load: code and out must not be NULL");
    *out = gpu->modules->load({static_cast<const char*>(code), bytes}, compiler_.id());
  }
  void unload(int32_t device, bp_module_code* module) { Release(gpus_, device)->modules->unload(module); }
  void function(int32_t device, bp_module_code* module, const char* name, const bp_signature* signature, bp_function** out,
                bp_function_properties* properties) {
    const Use gpu(gpus_, device);
    need(module && out, "module.function: module and out must not be NULL");
    bp_function_properties found{};
    *out = gpu->modules->function(module, name, signature, found);
    if (properties) hand_out(properties, found, "module.function: properties");
  }
  void launch(int32_t device, bp_stream* stream, const bp_launch* launch) {
    const Use gpu(gpus_, device);
    profile_.around(EventProfile<>::work(BP_ACTIVITY_KERNEL, device), stream,
                    [&] { graphs_.queue(native(stream), [&] { gpu->modules->launch(device, launch, native(stream)); }); });
  }

 private:
  const Gpus& gpus_;
  Graphs& graphs_;
  EventProfile<>& profile_;
  const Compiler& compiler_;
};

}  // namespace backplane::driver::cuda
