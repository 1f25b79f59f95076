// distributed/native_watch.h: the one thread per process that watches communicators, and the errors that users' waits raise.
#pragma once

#include <exception>
#include <memory>

namespace backplane::distributed {

class Communicator;

// Watches the communicator while it lives: ten times a second while it has work, and in users' waits. Any thread.
void watch(const std::shared_ptr<Communicator>& communicator);
void wake_watch();  // there is work
// Stores the error of a group that the calling thread aborts with work in flight: the next wait of a user on another thread throws it,
// once, unless another group is made before. Call with the communicator's lock.
void keep_unreported(const std::exception_ptr& error);

}  // namespace backplane::distributed
