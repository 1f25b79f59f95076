// memory/reference_counter.h: who of several processes still uses what one of them has sent. It lies in an anonymous file of the sender's.
//
// Messages on their way are counted in memory that both sides map. A process that has received one locks the counter's byte of the file
// instead, and the kernel unlocks it when the process ends, however it ends: a receiver that is killed holds nothing up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace backplane::memory {

class CounterPage;

// Any thread. The file has no name in a file system: it is opened through /proc by the same user, and goes with the processes that map it.
class ReferenceCounter {
 public:
  ReferenceCounter();                                  // the sender's: a new one, not in use
  explicit ReferenceCounter(const std::string& name);  // the receiver's: the one that name() named; throws if it is gone
  ReferenceCounter(ReferenceCounter&&) noexcept = default;
  ReferenceCounter& operator=(ReferenceCounter&&) = delete;
  ~ReferenceCounter();  // gives up what was accepted

  // The sender's.
  std::string name() const;
  void send() const;    // for one more message
  bool in_use() const;  // by a message or a process
  bool close();         // ends this use, so that its name names nothing any more; false, and nothing has changed, if it is in use

  // The receiver's, once for each message. A message that is received again finds the memory as long as somebody has it, and is refused
  // then.
  void accept();         // from now on this process uses it, as long as this object lives
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
