// memory/last_use.cpp: records and queries events without throwing.
#include "memory/last_use.h"

#include "runtime/driver.h"

namespace backplane::memory {

PooledEvent last_use(const c10::Stream& stream) noexcept {
  try {
    PooledEvent event = pooled_event(stream.device_index());
    event->record(stream);
    return event;
  } catch (...) {
    call_noexcept<&bp_driver::synchronize>(stream.device_index(), BP_NO_TIMEOUT);
    return PooledEvent(new Event());  // a never recorded event is complete
  }
}

bool is_complete(const Event& last_use) noexcept {
  try {
    return last_use.query();
  } catch (...) {
    return true;
  }
}

}  // namespace backplane::memory
