// memory/last_use.h: the event behind a stream's last use of memory that is being freed. Frees run in destructors, so nothing here fails.
#pragma once

#include <c10/core/Stream.h>

#include "runtime/event.h"

namespace backplane::memory {

// Recorded on the stream now. Where that cannot be done it waits for the stream's device and returns an event that is done.
PooledEvent last_use(const c10::Stream& stream) noexcept;

// A stream whose device has failed runs nothing any more, so its use is over too.
bool is_over(const Event& last_use) noexcept;

}  // namespace backplane::memory
