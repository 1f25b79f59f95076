// aten/autograd_threads.h: autograd's device threads, at the end of the process.
#pragma once

namespace backplane {

// Runs a small backward on every device that this process has used, so that its thread has released the state of earlier backwards. Waits
// for the device; throws nothing: a device that fails here has failed before, and that was reported.
void drain_autograd();

}  // namespace backplane
