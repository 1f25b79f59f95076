// graph/accelerator_graph.cpp: torch.accelerator.Graph, in a torch that has it: its interface, implemented by Graph.
#include "torch/compat.h"

#if BACKPLANE_TORCH_HAS_GRAPHS
#include <ATen/core/GraphImplInterface.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "runtime/options.h"

namespace backplane {
namespace accelerator_graph_impl {
namespace {

int32_t mode_of(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::Global:
      return BP_CAPTURE_GLOBAL;
    case at::GraphCaptureMode::Relaxed:
      return BP_CAPTURE_RELAXED;
    default:
      return BP_CAPTURE_THREAD;
  }
}

class Implementation final : public at::GraphImplInterface {
 public:
  explicit Implementation(const at::GraphImplArgs& arguments) : graph_(arguments.keep_graph) {}

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override { graph_.capture_begin(pool, mode_of(mode)); }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override { graph_.instantiate(); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.enable_debug_mode(); }
  void debug_dump(const std::string& path) override { graph_.debug_dump(path); }

 private:
  Graph graph_;
};

// Registered under the renamed device's name in upper case, as torch looks it up. Torch's macro only supports a C++ identifier.
[[maybe_unused]] const bool registered = [] {
  std::string key = BACKPLANE_DEVICE_NAME;
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char one) { return static_cast<char>(std::toupper(one)); });
  if (!at::GraphImplRegistry()->Has(key)) {
    at::GraphImplRegistry()->Register(key, [](at::GraphImplArgs arguments) { return std::make_unique<Implementation>(arguments); });
  }
  return true;
}();

}  // namespace
}  // namespace accelerator_graph_impl

}  // namespace backplane
#endif
