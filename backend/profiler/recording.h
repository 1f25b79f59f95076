// profiler/recording.h: a recording of what the devices do, over the driver's bp.profile; torch's profiler and Python stand on it.
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

// What a recording has found. dropped: records that the driver had no room for; unfinished: work that was not complete, without an end.
struct Recorded {
  std::vector<ActivityRecord> records;
  uint64_t dropped = 0;
};

// From now on all devices' work is recorded, until stop_recording(). Opens the driver. False if the driver cannot, or if a recording is on
// already; take_refusal() says why, and what to do.
bool start_recording() noexcept;
bool is_recording() noexcept;

// Why the last start_recording() was refused; empty if it was not, or if that was told before.
std::string take_refusal();

// Waits until the devices are done, so that their records have an end: <PREFIX>_PROFILE_SECONDS at most. Returns why they are not: one is
// in error, or busy for longer, or captures; empty: they are. What a signal handler raises is thrown. Call without the GIL.
std::string wait_for_recorded();

// Ends it. Waits for the devices first unless wait_for_recorded() was in vain. Does not throw.
Recorded stop_recording() noexcept;

// What the calling thread queues from now on belongs to `correlation`; 0: to nothing. While a recording is on.
void tag_work(uint64_t correlation) noexcept;

// Of this process, for tests and benchmarks: records that drivers have handed over.
uint64_t activity_records() noexcept;

// Ranges and points for the vendor's own tools; without BP_PROFILE_RANGES, or before the driver is open, nothing.
void push_vendor_range(const std::string& name);
void pop_vendor_range();
void mark_for_vendor(const std::string& name);

}  // namespace backplane
