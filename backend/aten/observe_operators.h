// aten/observe_operators.h: which operators enclose the current call, by torch's own observers. A composite operator is taken apart before
// any dispatch mode sees it; so the watchdog names what queued work, and `torch-backplane coverage` knows what was called.
#pragma once

namespace backplane {

// Fills running_operators() (runtime/activity.h) on every thread, from the next call on, until everybody who has switched it on has
// switched it off; costs nothing while off. On for good where the watchdog is. Not at once from two threads: the GIL guards it.
void observe_operators(bool on);

}  // namespace backplane
