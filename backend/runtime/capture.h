// runtime/capture.h: streams whose work is recorded into a graph instead of run, and what is illegal during a capture.
//
// Note [Captures]: while a stream captures, the core refuses a call that its graph cannot hold, before it reaches the driver, so that the
// capture stays valid and can be ended. Memory that is freed during a capture and was used by a capturing stream is reused after the end of
// the capture: memory/waiting.cpp.
#pragma once

#include <backplane/driver/graph.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>

namespace backplane {

namespace detail {
extern std::atomic<int> captures;
}

// Whether any thread of this process captures a graph with the driver's group. Costs one load.
inline bool anything_captures() { return C10_UNLIKELY(detail::captures.load(std::memory_order_relaxed) != 0); }

// Whether the stream's work is recorded into a graph instead of run: by the driver's group, or by a vendor's runtime that an extension asks
// (extend::CaptureState). All callers ask here. Throws for a stream that does not exist.
bool is_capturing(const c10::Stream& stream);

// The id of the capture with the driver's group, 0 for none. noexcept: a stream that does not exist captures nothing.
uint64_t capture_id(const c10::Stream& stream) noexcept;

// Whether the capture with this id has not ended yet.
bool is_active_capture(uint64_t id);

// Whether a stream of that device captures.
bool device_captures(c10::DeviceIndex device);

// Throws if `what` ("A wait for the stream") is not possible: the stream captures, or the mode of a capture forbids this thread to wait.
// `about` follows it in the message: ", which runs on the CPU,".
void refuse_in_capture(const c10::Stream& stream, const char* what, const char* about = "");

// Begins a capture on a stream, BP_CAPTURE_*; returns its id. Throws the driver's error, and NotImplementedError for a driver without the
// group.
uint64_t begin_capture(const c10::Stream& stream, int32_t mode);

// Ends it in any case and returns the recording, which the caller owns. Throws why the capture is invalid.
bp_recording* end_capture(const c10::Stream& stream);

}  // namespace backplane
