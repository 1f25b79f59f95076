// inductor/runner.cpp: AOTInductor packages of the device: the runner that torch's loader uses for a package of this device.
//
// torch's own part of a package (aoti_runtime/model_base.h) has a fixed list of devices. Packages of this device are compiled
// (torch_backplane/inductor/cpp_wrapper.py) with the name "mps", whose memory is allocated and copied by functions.
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <memory>
#include <string>

#include "runtime/device.h"

namespace backplane {
namespace aoti_impl {
namespace {

class Runner : public torch::inductor::AOTIModelContainerRunner {
 public:
  Runner(const std::string& library, size_t models, const std::string& device, const std::string& folder, bool single_threaded)
      : AOTIModelContainerRunner(library, models, device, folder, single_threaded) {}
};

// Constants are on the device that is current at construction.
std::unique_ptr<torch::inductor::AOTIModelContainerRunner> make(const std::string& library, size_t models, const std::string& device,
                                                                const std::string& folder, bool single_threaded) {
  const c10::Device wanted(device);
  const c10::Device found(kDevice, wanted.has_index() ? wanted.index() : current_device());
  const c10::DeviceGuard guard(found);
  return std::make_unique<Runner>(library, models, "mps:" + std::to_string(found.index()), folder, single_threaded);
}

const torch::inductor::RegisterAOTIModelRunner registered(BACKPLANE_DEVICE_NAME, &make);

}  // namespace
}  // namespace aoti_impl
}  // namespace backplane
