// aten/autograd_threads.cpp: lets autograd's device threads come to rest before the interpreter ends.
//
// Such a thread wakes the caller of backward() first and releases the backward's state then. Some of that is Python's (since torch 2.13 the
// caller's context), so the release takes the GIL; and a thread that takes the GIL while the interpreter ends is ended by Python, within a
// destructor: the process aborts, after all of its work is done.
#include "aten/autograd_threads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <thread>

#include "runtime/device.h"

namespace backplane {
namespace autograd_threads_impl {
namespace {

// A thread runs its backwards one after the other, so when it runs this one it has released those before. This one has nothing of Python's
// to release, because it comes from a thread that has none.
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
