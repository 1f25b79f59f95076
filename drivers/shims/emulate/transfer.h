// drivers/shims/emulate/transfer.h: copies and fills over a driver with blocking copies alone, perhaps without those between devices.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>

#include "../../engine/fill.h"
#include "../inner.h"

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

/// Address and size multiple of a device's copies.
inline uint64_t copy_unit(InnerDriver& inner, int32_t device) {
  auto properties = sized<bp_device_properties>();
  inner(&bp_driver::device_properties, device, &properties);
  return std::max<uint64_t>(properties.copy_alignment, 1);
}

/// Host memory at a multiple of a copy unit.
class Staging {
 public:
  Staging(uint64_t bytes, uint64_t unit)
      : bytes_(bytes), unit_(std::max<uint64_t>(unit, 64)), data_(static_cast<char*>(::operator new(bytes, std::align_val_t(unit_)))) {}
  ~Staging() { ::operator delete(data_, std::align_val_t(unit_)); }
  Staging(const Staging&) = delete;
  char* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  uint64_t bytes_;
  uint64_t unit_;
  char* data_;
};

/// A pair of devices that the inner driver cannot copy between: through the host, in whole units of each device. Where the target's range
/// begins or ends inside one, the rest of the unit is read first.
inline void stage_copy(InnerDriver& inner, int32_t device, bp_stream* stream, const Copy& c) {
  const uint64_t from = copy_unit(inner, c.src_device), to = copy_unit(inner, c.dst_device), unit = std::max(from, to);
  const auto up = [](uint64_t address, uint64_t multiple) { return (address + multiple - 1) / multiple * multiple; };
  const uint64_t room = up(std::min(c.bytes, kStagingBytes), unit);
  const Staging arrived(room + 2 * unit, unit), leaving(room + 2 * unit, unit);
  const auto read = [&](char* host, uint64_t address, int32_t owner, uint64_t size) {
    inner(&bp_driver::copy, device, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, address, owner, size, c.flags);
  };
  for (uint64_t at = 0; at < c.bytes;) {
    const uint64_t part = std::min(room, c.bytes - at), source = c.src + at, target = c.dst + at;
    const uint64_t first = source / from * from;
    read(arrived.data(), first, c.src_device, up(source + part, from) - first);
    const uint64_t begin = target / to * to, end = up(target + part, to);
    if (begin != target) read(leaving.data(), begin, c.dst_device, to);
    if (end != target + part) read(leaving.data() + (end - to - begin), end - to, c.dst_device, to);
    std::memcpy(leaving.data() + (target - begin), arrived.data() + (source - first), part);
    inner(&bp_driver::copy, device, stream, begin, c.dst_device, reinterpret_cast<uint64_t>(leaving.data()), BP_HOST_DEVICE, end - begin,
          c.flags);
    at += part;
  }
}

inline void copy_inner(InnerDriver& inner, int32_t device, bp_stream* stream, const Copy& c) {
  try {
    inner(&bp_driver::copy, device, stream, c.dst, c.dst_device, c.src, c.src_device, c.bytes, c.flags);
  } catch (const Error& error) {
    if (error.status() != BP_UNSUPPORTED || !c.between_devices()) throw;
    stage_copy(inner, device, stream, c);
  }
}

/// A fill for a driver that has none, by copies from the host.
inline void fill_by_copies(InnerDriver& inner, int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row) {
  const uint64_t unit = copy_unit(inner, device);
  const auto read = [&](char* host, uint64_t address, uint64_t size) {
    inner(&bp_driver::copy, device, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, address, device, size, 0u);
  };
  const auto write = [&](uint64_t address, char* host, uint64_t size) {
    inner(&bp_driver::copy, device, stream, address, device, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, size, 0u);
  };
  // Whole copy units go over; where the range begins or ends inside one, the rest of the unit is read first.
  const Staging staging(std::min((row.bytes + 2 * unit) / unit * unit, std::max(kStagingBytes / unit, uint64_t{2}) * unit), unit);
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
