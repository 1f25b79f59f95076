// memory/with_room.h: a driver call that lacks memory gets what the caches hold, and is made once more.
//
// alloc has a way of its own (device_cache.cpp). This is for calls that a driver needs memory for by the way: a staging buffer of a copy.
#pragma once

#include <backplane/driver.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace backplane::memory {

// Gives the cached device memory of all devices and the cached pinned memory back to the driver. Call it without a lock.
void give_caches_back();

// Returns what `call` does: a bp_status.
template <class Call>
int32_t with_room(Call&& call) {
  const int32_t status = call();
  if (C10_LIKELY(status != BP_OUT_OF_MEMORY)) return status;
  give_caches_back();
  return call();
}

}  // namespace backplane::memory
