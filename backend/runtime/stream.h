// runtime/stream.h: driver streams behind c10::Stream: default, pooled by priority, external; the thread's current one.
//
// Note [Stream ids]: id 0 is the device's default stream (as c10 guarantees). Pool ids are odd and encode priority and slot; an external
// stream's id is its bp_stream*, which is even and not 0: the driver's handle, never the number that the caller passed.
#pragma once

#include <backplane/driver.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "runtime/capture.h"

namespace backplane {

// Per thread and device; initially the default stream. Fast: no lock, no driver call.
c10::Stream current_stream(c10::DeviceIndex device = -1);
bp_stream* current_stream_handle(c10::DeviceIndex device);

c10::Stream default_stream(c10::DeviceIndex device = -1);

// Makes it the calling thread's current stream of the stream's device (the current device does not change); returns the previous one.
c10::Stream exchange_stream(c10::Stream stream);

// Round robin over a pool of streams of that priority, clamped to the device's range (a smaller number is a higher priority). The driver's
// streams are created at first use and live until the end of the process; beyond properties.stream_limit they are shared. Streams that
// capture a graph are skipped.
c10::Stream pool_stream(c10::DeviceIndex device = -1, int priority = 0);

// The stream behind a native object of the vendor's runtime (stream_native), which its creator keeps alive; 0 is the default stream. A
// stream of this process is found by its number even if the driver cannot wrap foreign streams, which are then refused.
c10::Stream external_stream(uint64_t native, c10::DeviceIndex device);

// NULL for the default stream. Throws for a stream of another device type, a device that does not exist, or an id that was never issued: a
// c10::Stream can be made of any three numbers.
bp_stream* stream_handle(const c10::Stream& stream);
uint64_t stream_native_handle(const c10::Stream& stream);  // the vendor's own stream object (0: default without stream_native)
int stream_priority(const c10::Stream& stream);

// The default stream, those of the pool that were used, and external ones.
std::vector<c10::Stream> known_streams(c10::DeviceIndex device);

bool query_stream(const c10::Stream& stream);
void synchronize_stream(const c10::Stream& stream);  // interruptible; see runtime/wait.h. Call without the GIL.
void synchronize_device(c10::DeviceIndex device = -1);

}  // namespace backplane
