// distributed/workers.h: threads that run tasks in the order of arrival. They are created on demand, and nothing waits for them: a task
// owns what it uses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace backplane::distributed {

// How long a shutdown waits for work in flight.
inline constexpr std::chrono::milliseconds kShutdownTimeout{5000};

// Any thread. Tasks do not throw.
class Workers {
 public:
  // At most `most` at a time: with one, tasks run one after the other. `name`: of the threads, up to 15 characters.
  Workers(const char* name, size_t most);
  ~Workers();  // close(), without waiting
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(std::function<void()> task);  // no effect after close()

  // Drops tasks that have not begun, and waits for the threads up to `timeout`. False: some are still running.
  bool close(std::chrono::milliseconds timeout);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with the threads
};

}  // namespace backplane::distributed
