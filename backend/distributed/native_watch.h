// distributed/native_watch.h: the one thread of a process that looks after communicators, and what users' waits ask.
#pragma once

#include <exception>
#include <memory>

namespace backplane::distributed {

class Communicator;

// From now on the communicator is looked at ten times a second while it has work, and asked by waits, as long as it lives. Any thread.
void watch(const std::shared_ptr<Communicator>& communicator);
void wake_watch();  // there is work
// The error of a group that the calling thread aborts with work in flight: the next wait of a user on another thread throws it, once,
// unless another group is made before. Call with the communicator's lock.
void keep_unreported(const std::exception_ptr& error);

}  // namespace backplane::distributed
