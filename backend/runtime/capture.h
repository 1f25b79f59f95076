// runtime/capture.h: streams whose work is recorded into a graph instead of run, and what cannot be done meanwhile.
//
// Note [Captures]: while a stream captures, the core refuses what its graph could not hold at the call, before the driver hears of it, so
// that the capture goes on and can be ended. Memory that is freed meanwhile and was used by a capturing stream waits for the end of the
// capture: memory/waiting.cpp.
#pragma once

#include <backplane/driver/graph.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>

namespace backplane {

namespace detail {
extern std::atomic<int> captures;
}

// Whether any thread of this process captures a graph with the driver's group. Almost never: one load.
inline bool anything_captures() { return C10_UNLIKELY(detail::captures.load(std::memory_order_relaxed) != 0); }

// Whether the stream's work is recorded into a graph instead of run: of the driver's group, or of a vendor's runtime that an extension asks
// (extend::CaptureState). Whoever needs to know asks here. Throws for a stream that does not exist.
bool is_capturing(const c10::Stream& stream);

// Of the driver's group: the id of the capture, 0 for none. noexcept: a stream that does not exist captures nothing.
uint64_t capture_id(const c10::Stream& stream) noexcept;

// Whether a capture of that id has not ended yet.
bool is_under_way(uint64_t id);

// Whether a stream of that device does.
bool device_captures(c10::DeviceIndex device);

// Throws if `what` ("A wait for the stream") cannot be: the stream captures, or the mode of a capture forbids this thread to wait.
// `about` is said behind it: ", which runs on the CPU,".
void refuse_in_capture(const c10::Stream& stream, const char* what, const char* about = "");

// Begins one on a stream, BP_CAPTURE_*; the id. Throws the driver's refusal, and NotImplementedError for a driver without the group.
uint64_t begin_capture(const c10::Stream& stream, int32_t mode);

// Ends it, whatever comes: the recording is the caller's. Throws why the capture is invalid.
bp_recording* end_capture(const c10::Stream& stream);

}  // namespace backplane
