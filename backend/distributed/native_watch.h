// distributed/native_watch.h: the one thread of a process that looks after communicators, and what users' waits ask.
#pragma once

#include <memory>

namespace backplane::distributed {

class NativeEngine;

// From now on the engine is looked at ten times a second while it has work, and asked by waits, as long as it lives. Any thread.
void watch(const std::shared_ptr<NativeEngine>& engine);
void wake_watch();  // there is work

}  // namespace backplane::distributed
