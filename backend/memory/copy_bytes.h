// memory/copy_bytes.h: copies of plain bytes between addresses of devices and the host.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace backplane {

// One end of a copy of bytes: a device address (visible index), or a host pointer (-1).
struct CopyEnd {
  uint64_t address = 0;
  c10::DeviceIndex device = -1;
};

// Copies bytes, ordered after the work of `stream`: returns when the copy is complete, or with `async` at once (host memory must then be
// pinned, and live until the copy is complete). Stages what the device's copy alignment does not allow, and copies through the host,
// blocking, where the driver cannot copy between two devices.
void copy_bytes(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, bool async);

}  // namespace backplane
