// memory/out_of_memory.h: the out-of-memory error: what was asked, what there is, and the cure.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace backplane::memory {

// Filled in on the way of an allocation that fails. Bytes.
struct OutOfMemory {
  size_t asked = 0;
  bool limited = false;           // no room under the memory fraction; the driver was not asked
  size_t largest_allocation = 0;  // of the driver, where the request exceeds it; else 0
  std::string driver_text;        // the driver's words
  size_t allocated = 0;
  size_t reserved = 0;
  size_t private_reserved = 0;  // in private pools
  size_t limit = SIZE_MAX;      // of the memory fraction
  size_t largest_free = 0;      // block in the cache
  bool can_expand = false;      // expandable segments are there, and off
  bool captures = false;        // a graph is being captured: the cache could not be given back
};

[[noreturn]] void throw_out_of_memory(c10::DeviceIndex device, const OutOfMemory& what, std::pair<size_t, size_t> free_and_total);

std::string format_bytes(size_t bytes);  // "1.50 GiB"

}  // namespace backplane::memory
