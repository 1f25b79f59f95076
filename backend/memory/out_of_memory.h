// memory/out_of_memory.h: the out-of-memory error: what was requested, what is there, and what to do.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace backplane::memory {

// Filled in by an allocation that fails. Bytes.
struct OutOfMemory {
  size_t asked = 0;
  bool limited = false;           // no room under the memory fraction; the driver was not called
  size_t largest_allocation = 0;  // the driver's limit, where the request exceeds it; else 0
  std::string driver_text;        // the driver's text
  size_t allocated = 0;
  size_t reserved = 0;
  size_t private_reserved = 0;  // in private pools
  size_t limit = SIZE_MAX;      // from the memory fraction
  size_t largest_free = 0;      // in the cache
  bool can_expand = false;      // expandable segments are supported, and off
  bool captures = false;        // a graph is being captured: the cache could not be released
};

[[noreturn]] void throw_out_of_memory(c10::DeviceIndex device, const OutOfMemory& what, std::pair<size_t, size_t> free_and_total);

std::string format_bytes(size_t bytes);  // "1.50 GiB"

}  // namespace backplane::memory
