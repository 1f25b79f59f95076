// drivers/sim/profile.h: the entries of bp.profile: what the recorder (drivers/engine/recorder.h) keeps, and ranges that are counted alone.
#pragma once

#include <backplane/driver/profile.h>

#include "devices.h"

namespace backplane::driver::sim {

class ProfileEntries : public virtual Devices {
 public:
  using Devices::Devices;

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) { recorder_.start(kinds, fn, arg); }
  void profile_stop(uint64_t* dropped) { recorder_.stop(dropped); }
  void profile_tag(uint64_t correlation) { recorder_.tag(correlation); }
  void profile_launch_begin(int32_t device, bp_stream* stream) {
    Stream& on = usable(device, stream);
    if (captures().status(&on) != BP_CAPTURE_NONE) return;  // a run tells of what it holds
    if (WorkRecord* work = recorder_.open_launch(device, stream)) on.submit(begin_launch(work));
  }
  void profile_launch_end(int32_t device, bp_stream* stream, const char* name) {
    Stream& on = resolve(device, stream);
    if (WorkRecord* work = recorder_.close_launch(name)) on.submit(end_launch(work));
  }
  /// There are no tools of a vendor's: a trace shim shows the calls.
  void profile_range_push(const char* name) {
    need(name, "profile.range_push: name");
    ++ranges();
  }
  void profile_range_pop() {
    if (ranges() == 0) throw Error(BP_INVALID_ARGUMENT, "profile.range_pop: no range was pushed on this thread");
    --ranges();
  }
  void profile_mark(const char* name) { need(name, "profile.mark: name"); }

 private:
  static uint32_t& ranges() {
    thread_local uint32_t depth = 0;
    return depth;
  }
};

}  // namespace backplane::driver::sim
