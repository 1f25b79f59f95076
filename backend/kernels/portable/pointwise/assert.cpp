// kernels/portable/pointwise/assert.cpp: assertions of a tensor's one element, which the next wait reports. A graph can hold them.
#include <ATen/core/Tensor.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace assert_impl {
namespace {

bool check(const at::Tensor& self, std::string_view text) {
  if (!is_usable(self) || self.numel() != 1) return false;
  const at::Tensor holds = self.scalar_type() == c10::kBool ? self : self.ne(0);
  const c10::DeviceIndex device = self.device().index();
  Unit unit(device, "assert.bpc", "assert_", "_assert_async");
  unit.read("x", c10::kBool).record();
  const Function* function = unit.find(1, 1);
  const uint64_t site = report_text(text);
  if (function == nullptr || site == 0) return false;
  Arguments arguments;
  arguments.read(holds);
  arguments.add(report_record(device));
  arguments.add(site);
  launch_function(device, *function, 1, arguments);
  raise_visible_reports(device);
  return true;
}

// _assert_async(self)
bool assert_async(Call& call) { return check(call.tensor(0), "Expected Tensor with single nonzero value, but got zero"); }

// _assert_async.msg(self, assert_msg)
bool assert_with_text(Call& call) { return check(call.tensor(0), call[1].toStringView()); }

// _functional_assert_async.msg(self, assert_msg, dep_token)
bool assert_functional(Call& call) {
  if (!is_usable(call.tensor(2)) || !check(call.tensor(0), call[1].toStringView())) return false;
  call.give(call.tensor(2).clone());
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"_assert_async"}, &assert_async);
  add_operator(kernels, {"_assert_async.msg"}, &assert_with_text);
  add_operator(kernels, {"_functional_assert_async.msg"}, &assert_functional);
});

}  // namespace
}  // namespace assert_impl
}  // namespace backplane::portable
