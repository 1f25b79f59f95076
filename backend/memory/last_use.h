// memory/last_use.h: the event after a stream's last use of memory that is being freed. Frees run in destructors, so nothing here fails.
#pragma once

#include <c10/core/Stream.h>

#include "runtime/event.h"

namespace backplane::memory {

// An event that is recorded on the stream now. Where that is not possible it waits for the stream's device and returns a complete event.
PooledEvent last_use(const c10::Stream& stream) noexcept;

// A stream whose device has failed runs nothing any more, so its use has ended, too.
bool is_complete(const Event& last_use) noexcept;

}  // namespace backplane::memory
