// runtime/errors.h: one table from driver status to C++ (and so Python) exception; every message names the call, the device and the
// driver's text.
#pragma once

#include <backplane/driver.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace backplane {

// status -> exception -> Python
//   OUT_OF_MEMORY           c10::OutOfMemoryError   torch.OutOfMemoryError
//   INVALID_ARGUMENT        c10::ValueError         ValueError
//   INVALID_DEVICE          c10::Error              RuntimeError
//   UNSUPPORTED             c10::NotImplementedError NotImplementedError
//   FAULT, DEVICE_LOST      c10::AcceleratorError   torch.AcceleratorError
//   TIMEOUT, INTERNAL, other c10::Error             RuntimeError
// `call` is the slot's name, `device` the visible index (-1: none), `text` the driver's text.
[[noreturn]] void throw_status(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text);

// "alloc(device 1) -> BP_OUT_OF_MEMORY: <text>", the first line of every such message.
std::string status_message(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text);

// The text of an exception; that of a c10::Error without the backtrace.
std::string text_of(const std::exception& error);

// For destructors and noexcept overrides: warns once per call site name, never throws.
void log_status(int32_t status, const char* call, c10::DeviceIndex device, const std::string& text) noexcept;

}  // namespace backplane
