// runtime/driver.cpp: the life cycle of the one driver of this process: load, open at first use, fork, close.
#include "runtime/driver.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <backplane/driver/cxx/table.hpp>

#include <mutex>
#include <sstream>

#include "runtime/device.h"
#include "runtime/loader.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/text.h"

namespace backplane {

namespace detail {
std::atomic<const Driver*> opened{nullptr};
std::atomic<int> unreported_devices{0};
}  // namespace detail

namespace driver_impl {
namespace {

enum class State { none, loaded, open, closed };

struct Process {
  std::mutex mutex;  // protects changes; the hot path reads only detail::opened
  std::atomic<State> state = State::none;
  bool tried = false;
  Driver driver;
  DriverInfo info;
  std::string explicit_error;  // the user asked for this driver by name: raise this error at every use
};

Process& process() {
  static auto* instance = new Process();
  return *instance;
}

std::atomic<bool> forked{false};

// Only what is safe after a fork: two stores.
void in_child() {
  if (detail::opened.exchange(nullptr) != nullptr) forked.store(true);
}

std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> items;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    if (!item.empty()) items.push_back(item);
  }
  return items;
}

void load_now(Process& p) {
  LoadRequest request;
  const auto path = env("DRIVER");
  const auto shims = env("SHIMS");
  const auto options = env("OPTIONS");
  request.driver = path.value_or(library_folder() + "/lib" BACKPLANE_DEVICE_NAME "_driver.so");
  if (shims) request.shims = comma_list(*shims);
  request.options = options.value_or("");
  p.info = {request.driver, shims.value_or(""), request.options, ""};
  try {
    p.driver = load(request);
    p.state = State::loaded;
    p.info.shims.clear();
    for (const auto& shim : request.shims) p.info.shims += (p.info.shims.empty() ? "" : ",") + shim;
    return;
  } catch (const c10::Error& error) {
    p.info.refusal = error.what_without_backtrace();
  } catch (const std::exception& error) {
    p.info.refusal = std::string("The driver '") + request.driver + "' cannot be loaded: " + error.what();
  }
  if (path || shims || options) p.explicit_error = p.info.refusal;
}

}  // namespace
}  // namespace driver_impl

bool load_driver() {
  auto& p = driver_impl::process();
  const std::lock_guard<std::mutex> lock(p.mutex);
  if (!p.tried) {
    p.tried = true;
    driver_impl::load_now(p);
  }
  TORCH_CHECK(p.explicit_error.empty(), p.explicit_error);
  return p.state != driver_impl::State::none;
}

DriverInfo driver_info() {
  auto& p = driver_impl::process();
  const std::lock_guard<std::mutex> lock(p.mutex);
  return p.info;
}

const Driver* loaded_driver() noexcept {
  auto& p = driver_impl::process();
  try {
    if (!load_driver()) return nullptr;
  } catch (...) {
    return nullptr;  // driver_info() has the refusal; the first use raises it
  }
  return p.state == driver_impl::State::closed ? nullptr : &p.driver;
}

const Driver& detail::open_now() {
  if (const Driver* driver = opened.load(std::memory_order_acquire)) {
    report_current_device(*driver);
    return *driver;
  }
  TORCH_CHECK(!driver_impl::forked.load(), "Cannot re-initialize ", device_name(), " in forked subprocess. To use ", device_name(),
              " with multiprocessing, you must use the 'spawn' start method");
  auto& p = driver_impl::process();
  const bool loaded = load_driver();
  TORCH_CHECK(loaded, "No ", device_name(), " driver: ", driver_info().refusal);
  require_device();
  bool is_first = false;
  std::unique_lock<std::mutex> lock(p.mutex);
  TORCH_CHECK(p.state != driver_impl::State::closed, "The ", device_name(),
              " driver was closed in this process; start a new process to use it.");
  if (p.state == driver_impl::State::loaded) {
    static const bool registered = pthread_atfork(nullptr, nullptr, driver_impl::in_child) == 0;
    TORCH_CHECK(registered, "pthread_atfork failed: out of memory");
    freeze_devices(p.driver);
    const int32_t status = p.driver.table.open(p.driver.table.self);
    if (status != BP_OK) {
      thaw_devices();
      throw_status(status, "open", -1, readable(driver::last_error_text(p.driver.table)));
    }
    p.state = driver_impl::State::open;
    opened.store(&p.driver, std::memory_order_release);
    is_first = true;
  }
  lock.unlock();
  report_current_device(p.driver);
  if (is_first && overrides().driver_opened != nullptr) overrides().driver_opened();
  return p.driver;
}

void close_driver() {
  auto& p = driver_impl::process();
  const std::lock_guard<std::mutex> lock(p.mutex);
  if (p.state == driver_impl::State::none || p.state == driver_impl::State::closed || driver_impl::forked.load()) return;
  detail::opened.store(nullptr);
  p.state = driver_impl::State::closed;
  const int32_t status = p.driver.table.close(p.driver.table.self);
  if (status != BP_OK) throw_status(status, "close", -1, "");
}

bool in_bad_fork() noexcept { return driver_impl::forked.load(); }

void detail::throw_no_group(const char* id) { TORCH_CHECK_NOT_IMPLEMENTED(false, "the driver of ", device_name(), " has no ", id); }

void detail::throw_null_result(const std::string& call) {
  TORCH_CHECK(false, device_name(), " driver: ", call, " -> OK with a NULL result");
}

std::string last_error_text() noexcept {
  try {
    const auto& p = driver_impl::process();
    if (p.state == driver_impl::State::none || p.state == driver_impl::State::closed) return "";
    return readable(driver::last_error_text(p.driver.table));
  } catch (...) {
    return "";
  }
}

}  // namespace backplane
