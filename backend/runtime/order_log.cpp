// runtime/order_log.cpp: the list behind note_order().
#include "runtime/order_log.h"

#include <mutex>
#include <utility>

namespace backplane {

namespace detail {
std::atomic<bool> order_log_on{false};
}  // namespace detail

namespace order_log_impl {
namespace {

struct Log {
  std::mutex mutex;
  std::vector<OrderNote> notes;
};

Log& log() {
  static auto* instance = new Log();
  return *instance;
}

}  // namespace
}  // namespace order_log_impl

void detail::append_order(const OrderNote& note) {
  auto& log = order_log_impl::log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  log.notes.push_back(note);
}

void switch_order_log(bool on) {
  take_order_log();
  detail::order_log_on.store(on);
}

std::vector<OrderNote> take_order_log() {
  auto& log = order_log_impl::log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  return std::exchange(log.notes, {});
}

}  // namespace backplane
