// distributed/workers.h: threads that run tasks in the order of their arrival. They are made when they are needed, and nothing waits for
// them: what a task uses, it owns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace backplane::distributed {

// How long a shutdown waits for what is in flight.
inline constexpr std::chrono::milliseconds kShutdownTimeout{5000};

// Any thread. Tasks do not throw.
class Workers {
 public:
  // At most so many at a time: with one, tasks run one after the other. `name`: of the threads, up to 15 characters.
  Workers(const char* name, size_t most);
  ~Workers();  // close(), without waiting
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(std::function<void()> task);  // after close: does nothing

  // Tasks that have not begun are dropped; waits for the threads as long as `timeout`. False: there are some left.
  bool close(std::chrono::milliseconds timeout);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the threads', too
};

}  // namespace backplane::distributed
