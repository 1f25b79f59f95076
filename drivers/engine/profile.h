// drivers/engine/profile.h: the entries of bp.profile over the engine's streams: what the recorder keeps, and ranges that are counted
// alone.
#pragma once

#include <backplane/driver/profile.h>

#include "engine.h"

namespace backplane::driver {

class EngineProfile {
 public:
  EngineProfile(Engine& engine, Recorder& recorder) : engine_(engine), recorder_(recorder) {}

  void start(uint64_t kinds, bp_activity_callback fn, void* arg) { recorder_.start(kinds, fn, arg); }
  void stop(uint64_t* dropped) { recorder_.stop(dropped); }
  void tag(uint64_t correlation) { recorder_.tag(correlation); }
  void launch_begin(int32_t device, bp_stream* stream) {
    Stream& on = engine_.usable(device, stream);
    if (engine_.captures().status(&on) != BP_CAPTURE_NONE) return;  // a run of it has the records
    if (WorkRecord* work = recorder_.open_launch(device, stream)) on.submit(begin_launch(work));
  }
  void launch_end(int32_t device, bp_stream* stream, const char* name) {
    Stream& on = engine_.resolve(device, stream);
    if (WorkRecord* work = recorder_.close_launch(name)) on.submit(end_launch(work));
  }
  /// There are no tools of a vendor's: a trace shim shows the calls.
  void range_push(const char* name) {
    need(name, "profile.range_push: name");
    ++ranges();
  }
  void range_pop() {
    if (ranges() == 0) throw Error(BP_INVALID_ARGUMENT, "profile.range_pop: no range was pushed on this thread");
    --ranges();
  }
  void mark(const char* name) { need(name, "profile.mark: name"); }

 private:
  static uint32_t& ranges() {
    thread_local uint32_t depth = 0;
    return depth;
  }

  Engine& engine_;
  Recorder& recorder_;
};

}  // namespace backplane::driver
