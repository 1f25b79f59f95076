// bindings/random.cpp: the default generator of each device; torch.Generator has everything else.
#include "bindings/module.h"
#include "runtime/overrides.h"

namespace backplane::bindings {

void bind_random(py::module_& module) {
  def_quick(module, "default_generator",
            [](int64_t device) -> at::Generator { return overrides().default_generator.get()(resolve_device(device_index(device))); });
}

}  // namespace backplane::bindings
