// memory/retry.h: repeats a driver call that is out of memory once, after the caches have released theirs.
//
// alloc has its own steps (device_cache.cpp). This is for calls that may need memory inside the driver, such as the staging buffer of a
// copy.
#pragma once

#include <backplane/driver.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace backplane::memory {

// Returns the cached device memory of all devices and the cached pinned memory to the driver. Call it without a lock.
void release_caches();

// Returns the status of `call`, a bp_status.
template <class Call>
int32_t retry_when_full(Call&& call) {
  const int32_t status = call();
  if (C10_LIKELY(status != BP_OUT_OF_MEMORY)) return status;
  release_caches();
  return call();
}

}  // namespace backplane::memory
