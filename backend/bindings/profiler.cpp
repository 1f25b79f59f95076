// bindings/profiler.cpp: what torch.<device>.profiler and the end of a profile require of the core.
#include "profiler/recording.h"

#include "bindings/module.h"

namespace backplane::bindings {

void bind_profiler(py::module_& module) {
  def_blocking(module, "wait_for_recorded", wait_for_recorded);
  def_quick(module, "is_recording", is_recording);
  def_quick(module, "take_refusal", take_refusal);
  def_quick(module, "activity_records", activity_records);
  def_quick(module, "push_range", push_vendor_range);
  def_quick(module, "pop_range", pop_vendor_range);
  def_quick(module, "mark", mark_for_vendor);
}

}  // namespace backplane::bindings
