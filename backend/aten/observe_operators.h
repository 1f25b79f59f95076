// aten/observe_operators.h: which operators enclose the current call, by torch's own observers. A composite operator is decomposed before
// any dispatch mode sees it; with observers the watchdog can name what queued work, and `torch-backplane coverage` what was called.
#pragma once

namespace backplane {

// Maintains running_operators() (runtime/activity.h) on every thread, from the next call on, until each caller that enabled it has disabled
// it; costs nothing while off. Always on with the watchdog. Not for two threads at once: the GIL guards it.
void observe_operators(bool on);

}  // namespace backplane
