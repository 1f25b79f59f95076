// drivers/engine/shared_event.h: an event whose records other processes see: what the engine asks of it. A driver brings the memory.
#pragma once

#include <cstdint>

#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver {

/// Records are numbered from 1 on, by all processes together; 0 stands for "never recorded" and is complete. Any thread.
class SharedEvent {
 public:
  virtual ~SharedEvent() = default;

  /// A new record, which some stream will reach.
  virtual uint64_t begin() = 0;
  /// The stream has reached it.
  virtual void complete(uint64_t number) = 0;
  virtual uint64_t latest() const = 0;
  /// False if the deadline passed. The work of a process that has ended is over: its records are complete.
  virtual bool wait(uint64_t number, const Deadline& deadline) = 0;
};

}  // namespace backplane::driver
