// drivers/emulate/transfer.h: copies and fills over a driver that has blocking copies, or not even all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "../common/fill.h"
#include "inner.h"

namespace backplane::driver::emulate {

/// The arguments of a copy.
struct Copy {
  uint64_t dst;
  int32_t dst_device;
  uint64_t src;
  int32_t src_device;
  uint64_t bytes;
  uint32_t flags;

  bool from_host() const { return src_device == BP_HOST_DEVICE; }
  bool to_host() const { return dst_device == BP_HOST_DEVICE; }
  bool between_devices() const { return !from_host() && !to_host(); }
};

constexpr uint64_t kStagingBytes = uint64_t{1} << 20;

/// A pair of devices that the driver below cannot copy between: through the host.
inline void stage_copy(Inner& inner, int32_t device, bp_stream* stream, const Copy& c) {
  std::vector<char> staging(std::min(c.bytes, kStagingBytes));
  const uint64_t host = reinterpret_cast<uint64_t>(staging.data());
  for (uint64_t at = 0; at < c.bytes;) {
    const uint64_t part = std::min<uint64_t>(staging.size(), c.bytes - at);
    inner(&bp_driver::copy, device, stream, host, BP_HOST_DEVICE, c.src + at, c.src_device, part, c.flags);
    inner(&bp_driver::copy, device, stream, c.dst + at, c.dst_device, host, BP_HOST_DEVICE, part, c.flags);
    at += part;
  }
}

inline void copy_below(Inner& inner, int32_t device, bp_stream* stream, const Copy& c) {
  try {
    inner(&bp_driver::copy, device, stream, c.dst, c.dst_device, c.src, c.src_device, c.bytes, c.flags);
  } catch (const Error& error) {
    if (error.status() != BP_UNSUPPORTED || !c.between_devices()) throw;
    stage_copy(inner, device, stream, c);
  }
}

/// A fill for a driver that has none, by copies from the host.
inline void fill_by_copies(Inner& inner, int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row) {
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  inner(&bp_driver::device_properties, device, &properties);
  const uint64_t unit = std::max<uint64_t>(properties.copy_alignment, 1);
  const auto read = [&](char* host, uint64_t address, uint64_t size) {
    inner(&bp_driver::copy, device, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, address, device, size, 0u);
  };
  const auto write = [&](uint64_t address, char* host, uint64_t size) {
    inner(&bp_driver::copy, device, stream, address, device, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, size, 0u);
  };
  // Whole copy units go over; where the range begins or ends inside one, the rest of the unit is read first.
  std::vector<char> staging(std::min((row.bytes + 2 * unit) / unit * unit, std::max(kStagingBytes / unit, uint64_t{2}) * unit));
  const uint64_t end = dst + row.bytes;
  for (uint64_t at = dst; at < end;) {
    const uint64_t first = at / unit * unit;
    const uint64_t last = std::min(end, first + staging.size());
    const uint64_t whole = (last + unit - 1) / unit * unit;
    if (first != at) read(staging.data(), first, unit);
    if (whole != last) read(staging.data() + (whole - unit - first), whole - unit, unit);
    // The row starts at dst: turn the word so that it starts at `at`.
    const int turn = static_cast<int>((at - dst) % 8) * 8;
    fill_bytes(staging.data() + (at - first), turn ? row.word >> turn | row.word << (64 - turn) : row.word, last - at);
    write(first, staging.data(), whole - first);
    at = last;
  }
}

}  // namespace backplane::driver::emulate
