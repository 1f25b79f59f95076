// runtime/activity.cpp: the subscribers.
#include "runtime/activity.h"

#include <algorithm>
#include <mutex>

namespace backplane {
namespace activity_impl {
namespace {

using Subscribers = std::vector<ActivitySubscriber>;

// Readers take no lock, so replaced lists are kept; there is one for each change.
std::atomic<const Subscribers*> current{nullptr};
std::mutex changing;

template <class Change>
void replace(const Change& change) {
  const std::lock_guard<std::mutex> lock(changing);
  const Subscribers* old = current.load();
  auto* next = old == nullptr ? new Subscribers : new Subscribers(*old);
  change(*next);
  current.store(next);
  detail::wants_activity.store(!next->empty());
}

}  // namespace
}  // namespace activity_impl

namespace detail {

std::atomic<bool> wants_activity{false};

void publish(const Activity& activity) {
  const auto* subscribers = activity_impl::current.load(std::memory_order_acquire);
  if (subscribers == nullptr) return;
  for (const ActivitySubscriber subscriber : *subscribers) subscriber(activity);
}

}  // namespace detail

void subscribe(ActivitySubscriber subscriber) {
  activity_impl::replace([&](auto& list) {
    if (std::find(list.begin(), list.end(), subscriber) == list.end()) list.push_back(subscriber);
  });
}

void unsubscribe(ActivitySubscriber subscriber) {
  activity_impl::replace([&](auto& list) { list.erase(std::remove(list.begin(), list.end(), subscriber), list.end()); });
}

std::vector<RunningOperator>& running_operators() {
  thread_local std::vector<RunningOperator> operators;
  return operators;
}

}  // namespace backplane
