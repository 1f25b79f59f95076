// memory/reference_counter.h: a number that several processes count up and down. It lies in an anonymous file of the process that made it.
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
  ReferenceCounter();                                  // a new one, at 0
  explicit ReferenceCounter(const std::string& name);  // the one that name() of any process named; throws if it is gone
  ReferenceCounter(ReferenceCounter&&) noexcept = default;
  ReferenceCounter& operator=(ReferenceCounter&&) = delete;
  ~ReferenceCounter();

  std::string name() const;
  int64_t value() const;
  void increase() const;
  void decrease() const;

 private:
  std::shared_ptr<CounterPage> page_;
  uint32_t index_ = 0;
  bool own_ = false;
};

}  // namespace backplane::memory
