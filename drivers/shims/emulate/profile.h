// drivers/shims/emulate/profile.h: bp.profile where it is the shim's: of its own streams' records, or of timing events.
#pragma once

#include "below.h"

namespace backplane::driver::emulate {

class ProfileEntries : public virtual Below {
 public:
  using Below::Below;

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    own_streams_ ? recorder_.start(kinds, fn, arg) : events_.start(kinds, fn, arg);
  }
  void profile_stop(uint64_t* dropped) { own_streams_ ? recorder_.stop(dropped) : events_.stop(dropped); }
  void profile_tag(uint64_t correlation) { own_streams_ ? recorder_.tag(correlation) : events_.tag(correlation); }
  void profile_launch_begin(int32_t device, bp_stream* stream) {
    if (!own_streams_) return events_.launch_begin(device, stream);
    Stream& on = usable(device, stream);
    if (WorkRecord* work = recorder_.open_launch(device, stream)) on.submit(begin_launch(work));
  }
  void profile_launch_end(int32_t device, bp_stream* stream, const char* name) {
    if (!own_streams_) return events_.launch_end(stream, name);
    Stream& on = resolve(device, stream);
    if (WorkRecord* work = recorder_.close_launch(name)) on.submit(end_launch(work));
  }
  void profile_no_name(const char*) { profile_no_range(); }
  void profile_no_range() { throw Error(BP_UNSUPPORTED, "profile: the driver below has no ranges"); }
};

}  // namespace backplane::driver::emulate
