// drivers/shims/emulate/profile.h: bp.profile of the shim's own streams. Ranges are the inner driver's, where it has them.
#pragma once

#include "../../engine/profile.h"
#include "state.h"

namespace backplane::driver::emulate {

class ProfileEntries : public PassingGroup<bp_profile>, public EngineProfile {
 public:
  explicit ProfileEntries(State& state) : PassingGroup(state.inner), EngineProfile(state.engine, state.recorder) {}

  void range_push(const char* name) { range(&bp_profile::range_push, name); }
  void range_pop() { range(&bp_profile::range_pop); }
  void mark(const char* name) { range(&bp_profile::mark, name); }

 private:
  template <class Slot, class... Args>
  void range(Slot slot, Args... args) {
    if (!(flags() & BP_PROFILE_RANGES)) throw Error(BP_UNSUPPORTED, "profile: the inner driver has no ranges");
    (*this)(slot, args...);
  }
};

}  // namespace backplane::driver::emulate
