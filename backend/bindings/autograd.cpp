// bindings/autograd.cpp: lets autograd's device threads come to rest before the interpreter ends.
//
// Such a thread wakes the caller of backward() first and releases the backward's state then. Some of that is Python's (since torch 2.13 the
// caller's context), so the release takes the GIL; and a thread that takes the GIL while the interpreter ends is ended by Python, within a
// destructor: the process aborts, after all of its work is done.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <thread>

#include "bindings/module.h"

namespace backplane::bindings {
namespace {

// A thread runs its backwards one after the other, so when it runs this one it has released those before. This one has nothing of Python's
// to release, because it comes from a thread that has none.
void run_backward(c10::DeviceIndex device) {
  const at::Tensor leaf = at::zeros({}, at::TensorOptions(c10::Device(kDevice, device))).requires_grad_();
  leaf.backward(leaf.detach().clone());
}

// At exit, for the devices that this process has used. A device that fails here has failed before, and was reported then.
void drain_autograd() {
  std::thread([] {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      try {
        if (has_context(device)) run_backward(device);
      } catch (...) {
      }
    }
  }).join();
}

}  // namespace

void bind_autograd(py::module_& module) { def_blocking(module, "_drain_autograd", drain_autograd); }

}  // namespace backplane::bindings
