// memory/reference_counter.h: which processes still use what one of them has sent. A counter is in an anonymous file of the sender.
//
// Messages in transit are counted in memory that both sides map. A process that has received one locks the counter's byte of the file
// instead, and the kernel unlocks it when the process ends, however it ends: a receiver that is killed leaves no reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace backplane::memory {

class CounterPage;

// Any thread. The file has no name in a file system: it is opened through /proc by the same user, and is freed with the processes that map
// it.
class ReferenceCounter {
 public:
  ReferenceCounter();                                  // the sender's: a new counter, not in use
  explicit ReferenceCounter(const std::string& name);  // the receiver's: the counter that name() identified; throws if it no longer exists
  ReferenceCounter(ReferenceCounter&&) noexcept = default;
  ReferenceCounter& operator=(ReferenceCounter&&) = delete;
  ~ReferenceCounter();  // drops what was accepted

  // For the sender.
  std::string name() const;
  void send() const;    // for one more message
  bool in_use() const;  // by a message or a process
  bool close();         // ends this use, so that its name becomes invalid; false, and no effect, if it is in use

  // For the receiver, once per message. A message that is received again finds the memory as long as it is in use, and is refused
  // afterwards.
  void accept();         // this process uses it from now on, as long as this object lives
  void decline() const;  // this message's reference is not needed

 private:
  std::shared_ptr<CounterPage> page_;
  uint32_t index_ = 0;
  uint64_t use_ = 0;  // the receiver's: of the message
  bool own_ = false;
  bool accepted_ = false;
  bool closed_ = false;
};

}  // namespace backplane::memory
