// drivers/emulate/transfer.h: copies and fills over a driver that has blocking copies, or not even all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "../common/fill.h"
#include "inner.h"

namespace backplane::driver::emulate {

/// The arguments of a copy.
struct Copy {
  int32_t kind;
  uint64_t dst;
  int32_t dst_device;
  uint64_t src;
  int32_t src_device;
  uint64_t bytes;
};

constexpr uint64_t kStagingBytes = uint64_t{1} << 20;

/// A pair of devices that the driver below cannot copy between: through the host.
inline void stage_copy(Inner& inner, int32_t device, bp_stream* stream, const Copy& c) {
  std::vector<char> staging(std::min(c.bytes, kStagingBytes));
  const uint64_t host = reinterpret_cast<uint64_t>(staging.data());
  for (uint64_t at = 0; at < c.bytes;) {
    const uint64_t part = std::min<uint64_t>(staging.size(), c.bytes - at);
    inner(&bp_driver::copy, device, stream, BP_COPY_DEVICE_TO_HOST, host, BP_HOST_DEVICE, c.src + at, c.src_device, part);
    inner(&bp_driver::copy, device, stream, BP_COPY_HOST_TO_DEVICE, c.dst + at, c.dst_device, host, BP_HOST_DEVICE, part);
    at += part;
  }
}

inline void copy_below(Inner& inner, int32_t device, bp_stream* stream, const Copy& c) {
  try {
    inner(&bp_driver::copy, device, stream, c.kind, c.dst, c.dst_device, c.src, c.src_device, c.bytes);
  } catch (const Error& error) {
    if (error.status() != BP_UNSUPPORTED || c.kind != BP_COPY_DEVICE_TO_DEVICE) throw;
    stage_copy(inner, device, stream, c);
  }
}

/// A fill for a driver that has none, by copies from the host.
inline void fill_by_copies(Inner& inner, int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row) {
  bp_device_properties properties{};
  properties.struct_size = sizeof properties;
  inner(&bp_driver::device_properties, device, &properties);
  const uint64_t unit = std::max<uint64_t>(properties.copy_alignment, 1);
  const auto copy = [&](int32_t kind, char* host, uint64_t address, uint64_t size) {
    const uint64_t at = reinterpret_cast<uint64_t>(host);
    if (kind == BP_COPY_HOST_TO_DEVICE) {
      inner(&bp_driver::copy, device, stream, kind, address, device, at, BP_HOST_DEVICE, size);
    } else {
      inner(&bp_driver::copy, device, stream, kind, at, BP_HOST_DEVICE, address, device, size);
    }
  };
  // Whole copy units go over; where the range begins or ends inside one, the rest of the unit is read first.
  std::vector<char> staging(std::min((row.bytes + 2 * unit) / unit * unit, std::max(kStagingBytes / unit, uint64_t{2}) * unit));
  const uint64_t end = dst + row.bytes;
  for (uint64_t at = dst; at < end;) {
    const uint64_t first = at / unit * unit;
    const uint64_t last = std::min(end, first + staging.size());
    const uint64_t whole = (last + unit - 1) / unit * unit;
    if (first != at) copy(BP_COPY_DEVICE_TO_HOST, staging.data(), first, unit);
    if (whole != last) copy(BP_COPY_DEVICE_TO_HOST, staging.data() + (whole - unit - first), whole - unit, unit);
    // The row starts at dst: turn the word so that it starts at `at`.
    const int turn = static_cast<int>((at - dst) % 8) * 8;
    fill_bytes(staging.data() + (at - first), turn ? row.word >> turn | row.word << (64 - turn) : row.word, last - at);
    copy(BP_COPY_HOST_TO_DEVICE, staging.data(), first, whole - first);
    at = last;
  }
}

}  // namespace backplane::driver::emulate
