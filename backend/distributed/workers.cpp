// distributed/workers.cpp: a pool of detached threads.
#include "distributed/workers.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "distributed/interpreter.h"

namespace backplane::distributed {

struct Workers::State {
  const char* name;
  size_t most;
  std::mutex mutex;  // protects what follows
  std::condition_variable arrived, left;
  std::deque<std::function<void()>> tasks;
  size_t threads = 0, idle = 0;
  bool is_closed = false;
};

Workers::Workers(const char* name, size_t most) : state_(std::make_shared<State>()) {
  state_->name = name;
  state_->most = most;
}

Workers::~Workers() { close(std::chrono::milliseconds(0)); }

void Workers::add(std::function<void()> task) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->is_closed) return;
  state_->tasks.push_back(std::move(task));
  if (state_->idle < state_->tasks.size() && state_->threads < state_->most) {
    std::thread([state = state_] { run(state); }).detach();
    ++state_->threads;
  } else {
    state_->arrived.notify_one();
  }
}

void Workers::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), state->name);
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    ++state->idle;
    state->arrived.wait(lock, [&] { return state->is_closed || !state->tasks.empty(); });
    --state->idle;
    if (state->is_closed) break;
    std::function<void()> task = std::move(state->tasks.front());
    state->tasks.pop_front();
    lock.unlock();
    task();
    const InterpreterUse python;  // the task's objects are released without the lock
    if (python.is_allowed()) {
      task = nullptr;
    } else {
      new std::function<void()>(std::move(task));  // never released
    }
    lock.lock();
  }
  --state->threads;
  state->left.notify_all();
}

bool Workers::close(std::chrono::milliseconds timeout) {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->is_closed = true;
  dropped.swap(state_->tasks);
  state_->arrived.notify_all();
  const bool are_gone = state_->left.wait_for(lock, timeout, [&] { return state_->threads == 0; });
  lock.unlock();
  return are_gone;
}

}  // namespace backplane::distributed
