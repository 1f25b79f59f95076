// profiler/recording.h: records what the devices do, with the driver's bp.profile; torch's profiler and Python use it.
#pragma once

#include <backplane/driver/profile.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace backplane {

// A driver's record; the device is a visible index, `name` empty if there is none, and the pointers in `activity` are NULL.
struct ActivityRecord {
  bp_activity activity;
  std::string name;
};

// The result of a recording. dropped: records for which the driver had no room; unfinished: work that was not complete, without an end.
struct Recorded {
  std::vector<ActivityRecord> records;
  uint64_t dropped = 0;
};

// Records all devices' work from now on, until stop_recording(). Opens the driver. False if the driver does not support it, or if a
// recording is already active; take_refusal() returns why, and what to do.
bool start_recording() noexcept;
bool is_recording() noexcept;

// Why the last start_recording() was refused; empty if it was not, or if that was reported before.
std::string take_refusal();

// Waits until the devices are idle, so that their records have an end: <PREFIX>_PROFILE_SECONDS at most. Returns why they are not: one is
// in error, or busy for longer, or captures; empty: they are. Throws what a signal handler raises. Call without the GIL.
std::string wait_for_recorded();

// Stops it. Waits for the devices first unless wait_for_recorded() has failed. Does not throw.
Recorded stop_recording() noexcept;

// What the calling thread queues from now on belongs to `correlation`; 0: to nothing. While a recording is active.
void tag_work(uint64_t correlation) noexcept;

// For tests and benchmarks: records that drivers have delivered to this process.
uint64_t activity_records() noexcept;

// Ranges and points for the vendor's own tools; no-ops without BP_PROFILE_RANGES, or before the driver is open.
void push_vendor_range(const std::string& name);
void pop_vendor_range();
void mark_for_vendor(const std::string& name);

}  // namespace backplane
