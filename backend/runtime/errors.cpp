// runtime/errors.cpp: the table from driver status to exception.
#include "runtime/errors.h"

#include <backplane/driver/cxx/table.hpp>

#include <utility>

#include "runtime/options.h"
#include "runtime/watchdog.h"

namespace backplane {

std::string status_message(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text) {
  std::string message = std::string(device_name()) + " driver: " + call;
  if (device >= 0) message += "(device " + std::to_string(device) + ")";
  message += std::string(" -> ") + driver::status_name(status);
  return message + ": " + (text.empty() ? "the driver gave no reason" : text);
}

std::string text_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs != nullptr ? torchs->what_without_backtrace() : error.what();
}

void throw_status(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text) {
  const c10::SourceLocation here{call, "backplane", 0};
  std::string message = status_message(status, call, device, text);
  switch (driver::checked_status(status)) {
    case BP_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, std::move(message));
    case BP_INVALID_ARGUMENT:
      throw c10::ValueError(here, std::move(message));
    case BP_UNSUPPORTED:
      throw c10::NotImplementedError(here, std::move(message));
    case BP_FAULT:
      message += "\nThe device stays in error until the process ends.";
      if (const std::string work = awaited_work(); !work.empty()) {
        message += " The failed work is the " + work + ".";
      } else if (!launch_blocking()) {
        message += " Work is queued asynchronously: set " BACKPLANE_ENV_PREFIX
                   "_LAUNCH_BLOCKING=1 to get this error where the failing work was queued.";
      }
      throw c10::AcceleratorError(here, status, std::move(message));
    case BP_DEVICE_LOST:
      message += "\nThe device is gone for this process; data on the host can still be saved.";
      throw c10::AcceleratorError(here, status, std::move(message));
    case BP_TIMEOUT:
      message += "\nThe call had no timeout: the driver ended it by itself.";
      throw c10::Error(here, std::move(message));
    default:
      throw c10::Error(here, std::move(message));
  }
}

void log_status(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text) noexcept {
  try {
    TORCH_WARN(status_message(status, call, device, text));
  } catch (...) {  // a warning that the user turned into an error cannot leave a destructor
  }
}

}  // namespace backplane
