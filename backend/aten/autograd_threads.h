// aten/autograd_threads.h: autograd's device threads, at the end of the process.
#pragma once

namespace backplane {

// Runs a small backward on every device that this process has used, so that its thread has released what earlier backwards left with it.
// Waits for the device; throws nothing: a device that fails here has failed before, and was reported then.
void drain_autograd();

}  // namespace backplane
