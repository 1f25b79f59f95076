// torch/kineto.h: registers a device with torch.profiler. For backend/profiler, which is compiled with USE_KINETO.
#pragma once

#include <libkineto.h>

#include <functional>
#include <memory>

#include "torch/compat.h"

#if BACKPLANE_TORCH_AT_LEAST(2, 13)
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

namespace backplane::compat {

// Call once, at load. Kineto creates the plug-in at the first profile.
inline void register_kineto_plug(const std::function<std::unique_ptr<libkineto::IActivityProfiler>()>& make) {
#if BACKPLANE_TORCH_AT_LEAST(2, 13)
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(make);
#else
  libkineto::api().registerProfilerFactory(make);  // unnecessary when 2.13 is the oldest
#endif
}

}  // namespace backplane::compat
