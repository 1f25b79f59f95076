// runtime/order_log.cpp: the list behind take_order_log().
#include "runtime/order_log.h"

#include <mutex>
#include <utility>

namespace backplane {
namespace order_log_impl {
namespace {

struct Log {
  std::mutex mutex;
  std::vector<Activity> notes;
};

Log& log() {
  static auto* instance = new Log();
  return *instance;
}

void append(const Activity& activity) {
  if (activity.kind >= ActivityKind::queued) return;  // Python sees the operands of kernels itself
  const std::lock_guard<std::mutex> lock(log().mutex);
  log().notes.push_back(activity);
}

}  // namespace
}  // namespace order_log_impl

void switch_order_log(bool on) {
  take_order_log();
  on ? subscribe(order_log_impl::append) : unsubscribe(order_log_impl::append);
}

std::vector<Activity> take_order_log() {
  auto& log = order_log_impl::log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  return std::exchange(log.notes, {});
}

}  // namespace backplane
