// kernels/portable/random/taken_numbers.cpp: the operator by which a compiled graph reserves a part of the device generator's sequence. Its
// kernels make random elements from it as random.cpp does (python/torch_backplane/inductor/random.py).
#include <ATen/core/Tensor.h>
#include <backplane/random.h>
#include <backplane/structured.h>  // empty()
#include <torch/library.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/generator.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"
#include "runtime/device.h"

namespace backplane::portable {
namespace taken_numbers_impl {
namespace {

// Compiled at once whatever the policy, like the generated kernels that read its result: there is no other implementation.
const Function& function_for(c10::DeviceIndex device, bool in_graph) {
  Unit unit(device, "taken_numbers.bpc", "tell_numbers", "taken_numbers");
  define_generator(unit, in_graph);
  unit.write("out", c10::ScalarType::UInt64);
  const Function* const known = unit.find(1, 2);
  return known != nullptr ? *known : require_function(device, unit.source(1, 2));
}

// Two int64 on the device of that index: the seed, and the place of the first of `count` numbers, by which its default generator advances.
// In a graph, those of the run.
at::Tensor take(c10::SymInt count, int64_t index) {
  const int64_t numbers = count.guard_int(__FILE__, __LINE__);
  TORCH_CHECK_VALUE(numbers >= 0, "take_numbers takes a count of numbers, not ", numbers);
  TORCH_CHECK_VALUE(index >= 0 && index < device_count(), "take_numbers takes the index of a device, not ", index);
  const auto device = static_cast<c10::DeviceIndex>(index);
  function_for(device, false);  // the generator advances only if the kernel is available
  at::Tensor out = empty({2}, c10::kLong, device);
  const PhiloxState state = philox_state(std::nullopt, device, static_cast<uint64_t>(numbers));
  const Function& function = function_for(device, state.in_graph());
  Arguments arguments;
  add_generator(arguments, state);
  arguments.write(out);
  add_numbers(arguments, state);
  launch_function(device, function, 1, arguments);
  return out;
}

TORCH_LIBRARY_FRAGMENT(backplane, m) {
  m.def("take_numbers(SymInt count, int device) -> Tensor", {at::Tag::nondeterministic_seeded});
  m.impl("take_numbers", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(take));
}

}  // namespace
}  // namespace taken_numbers_impl
}  // namespace backplane::portable
