// drivers/opencl/entry.h: what entries of the driver's table share: checks of arguments, and what gives something back.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime.h"

namespace backplane::driver::opencl {

inline void need(const void* pointer, const char* what) {
  if (!pointer) throw Error(BP_INVALID_ARGUMENT, std::string(what) + " must not be NULL");
}
inline void need_no_flags(const char* call, uint32_t flags) {
  if (flags != 0) throw Error(BP_INVALID_ARGUMENT, format("%s: flags must be 0, not 0x%x", call, flags));
}
/// Fills a struct of the caller's, as far as the caller has room.
template <class Struct>
inline void hand_out(Struct* out, Struct full, const char* what) {
  if (!out || out->struct_size < sizeof(uint64_t))
    throw Error(BP_INVALID_ARGUMENT, std::string(what) + ", with its struct_size, is needed");
  full.struct_size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &full, std::min<uint64_t>(out->struct_size, sizeof full));
}
/// What gives something back works on a device that failed, and is OK on one that is gone.
template <class Body>
int32_t released(Device& device, Body&& body) {
  if (device.sticky() != BP_DEVICE_LOST) {
    body();
    return BP_OK;
  }
  try {
    body();
  } catch (const Error&) {  // the runtime may refuse every call for it
  }
  return BP_OK;
}

}  // namespace backplane::driver::opencl
