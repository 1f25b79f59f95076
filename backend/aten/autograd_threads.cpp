// aten/autograd_threads.cpp: autograd's device threads: starts them where torch would not, and lets them finish before the interpreter
// ends.
//
// Torch starts them at the first backward of the process, one for each device that exists then, and never again. A backward on a device
// without a thread is an internal assert of torch: after a backward on the CPU before this library was loaded, or before a device was
// visible.
//
// Such a thread first wakes the caller of backward() and then releases the backward's state. Some of that belongs to Python (since torch
// 2.13 the caller's context), so the release takes the GIL; Python ends a thread that takes the GIL while the interpreter ends, within a
// destructor: the process aborts, after all of its work is done.
#include "aten/autograd_threads.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>

#include <thread>

#include "runtime/device.h"
#include "runtime/options.h"
#include "runtime/overrides.h"

namespace backplane {
namespace autograd_threads_impl {
namespace {

using torch::autograd::Engine;

struct Threads : Engine {
  using Engine::device_ready_queues_;
  using Engine::start_device_threads;
};

// Not if no graph was recorded: a program that requires no threads can be forked.
void start_if_missing() {
  if (at::sequence_number::peek() == 0) return;
  Engine& engine = Engine::get_default_engine();
  try {
    engine.initialize_device_threads_pool();  // what the first backward does, unless there was one
  } catch (const c10::Error&) {               // a forked child, in which no backward is possible
    return;
  }
  const auto& queues = engine.*(&Threads::device_ready_queues_);
  if (queues.empty()) {
    (engine.*(&Threads::start_device_threads))();
  } else if (queues.size() < static_cast<size_t>(device_count())) {
    TORCH_WARN("autograd has started ", queues.size(), " threads for the devices of another type, and ", device_name(), " has ",
               device_count(), " devices: a backward on the others fails. Import the backend before the first backward.");
  }
}

[[maybe_unused]] const bool started_at_open = [] {
  overrides().driver_opened = start_if_missing;
  return true;
}();

// A thread runs its backwards one after the other, so when it runs this one it has released the earlier ones. This one has no Python object
// to release, because its thread has none.
void run_backward(c10::DeviceIndex device) {
  const at::Tensor leaf = at::ones({}, at::TensorOptions(c10::Device(kDevice, device))).requires_grad_();
  leaf.backward(leaf.detach().clone());
}

}  // namespace
}  // namespace autograd_threads_impl

void drain_autograd() {
  std::thread([] {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      try {
        if (has_context(device)) autograd_threads_impl::run_backward(device);
      } catch (...) {
      }
    }
  }).join();
}

}  // namespace backplane
