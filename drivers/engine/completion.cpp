// drivers/engine/completion.cpp: completing a record and waiting for it.
#include "completion.h"

#include "spin.h"

namespace backplane::driver {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Stream*> Completion::complete(int64_t time_ns) {
  std::vector<Stream*> parked;
  std::lock_guard lock(mutex_);
  time_ns_ = time_ns;
  done_.store(true, std::memory_order_release);
  parked.swap(parked_);
  changed_.notify_all();
  return parked;
}

bool Completion::park(Stream& stream) {
  std::lock_guard lock(mutex_);
  if (done()) return false;
  parked_.push_back(&stream);
  return true;
}

bool Completion::wait(const Deadline& deadline, bool spin) {
  if (done()) return true;
  if (deadline.asks_only()) return false;
  if (spin && spin_for(std::chrono::microseconds(20), [&] { return done(); })) return true;
  std::unique_lock lock(mutex_);
  return deadline.wait(changed_, lock, [&] { return done(); });
}

}  // namespace backplane::driver
