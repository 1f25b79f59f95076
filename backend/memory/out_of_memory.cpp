// memory/out_of_memory.cpp: the text of the out-of-memory error.
#include "memory/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/options.h"

namespace backplane::memory {

std::string format_bytes(size_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

void throw_out_of_memory(c10::DeviceIndex device, const OutOfMemory& what, std::pair<size_t, size_t> free_and_total) {
  const std::string name = std::string(device_name()) + ":" + std::to_string(device);
  const size_t unused = what.reserved - what.allocated;
  // The fraction of the unused memory that is not in the largest block.
  const size_t scattered = unused == 0 ? 0 : 100 * (unused - std::min(unused, what.largest_free)) / unused;
  std::string text = name + " out of memory. Tried to allocate " + format_bytes(what.asked) + " on " + name + ", which has " +
                     format_bytes(free_and_total.second) + " in total, " + format_bytes(free_and_total.first) + " free. This process has " +
                     format_bytes(what.reserved) + " reserved: " + format_bytes(what.allocated) + " allocated, " + format_bytes(unused) +
                     " cached and unused, the largest free block " + format_bytes(what.largest_free) + " (fragmentation " +
                     std::to_string(scattered) + " %).";
  if (what.private_reserved != 0) text += " " + format_bytes(what.private_reserved) + " of it belong to private pools.";
  if (!what.driver_text.empty()) text += " The driver says: " + what.driver_text + ".";
  if (what.largest_allocation != 0) {
    text += " The device allocates at most " + format_bytes(what.largest_allocation) + " at once: split the tensor.";
  } else if (what.limited) {
    text += " The memory fraction limits this process to " + format_bytes(what.limit) + ": raise it with torch." + device_name() +
            ".set_per_process_memory_fraction, or use less.";
  } else if (what.captures) {
    text += " A graph is being captured, and until its end cached memory cannot be released: call torch." + std::string(device_name()) +
            ".empty_cache() before the capture, or let graphs share a pool.";
  } else if (unused > what.asked) {
    text += " Unused memory is fragmented: try " BACKPLANE_ENV_PREFIX "_ALLOC_CONF=" +
            std::string(what.can_expand ? "expandable_segments:True" : "max_split_size_mb:<MiB>") + ", or allocate sizes that repeat.";
  } else {
    text += " Use a smaller batch, free tensors that are no longer needed, or end other processes that use the device.";
  }
  C10_THROW_ERROR(OutOfMemoryError, text);
}

}  // namespace backplane::memory
