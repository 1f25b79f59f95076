// kernels/portable/mode.cpp: the value that stands most often along a dimension: rows are sorted, and their runs counted.
#include <backplane/structured.h>

#include <string>

#include "kernels/portable/family.h"
#include "kernels/portable/sort.h"
#include "kernels/portable/text.h"
#include "modules/launch.h"

namespace backplane::portable {
namespace mode_impl {
namespace {

bool mode_of_rows(const Rows& rows, const at::Tensor& values, const at::Tensor& places) {
  if (rows.count == 0) return true;
  static KernelSlots slots;
  const c10::DeviceIndex device = rows.x.device().index();
  const c10::ScalarType dtype = rows.x.scalar_type();
  const Function* const mode = slots.find((static_cast<uint64_t>(device) << 4) | dtype_bits(dtype), device, [&] {
    UnitText text(join("mode[", dialect_name(dtype), "]"), "mode.bpc", "mode_of_rows");
    define_keys(text, dtype, false, false);
    return text.source(1, 4, 2, 3);
  });
  if (mode == nullptr) return false;
  const at::Tensor sorted = empty(rows.x.sizes(), dtype, device), stood = empty(rows.x.sizes(), c10::kLong, device);
  if (!sort_rows(rows.x, false, {}, sorted, stood)) return false;
  KernelArguments arguments;
  for (const at::Tensor* tensor : {&values, &places}) arguments.add(writable_address_of(*tensor));
  for (const at::Tensor* tensor : {&sorted, &stood}) arguments.add(address_of(*tensor));
  arguments.add(rows.count);
  arguments.add(rows.size);
  launch_function(device, *mode, static_cast<uint64_t>(rows.count), arguments);
  return true;
}

// mode(self, dim, keepdim), and with values, indices
bool mode(const c10::IValue* a, bool has_out, KernelCounter& counter, Results& results) {
  const at::Tensor& self = a[0].toTensor();
  const auto dim = dimension_of(a[1].toInt(), self);
  if (!can_walk(self) || !dim || (self.dim() != 0 && self.size(*dim) == 0)) return false;
  at::DimVector sizes(self.sizes());
  if (self.dim() != 0) {
    sizes[*dim] = 1;
    if (!a[2].toBool()) sizes.erase(sizes.begin() + *dim);
  }
  at::Tensor given, given_places;
  if (has_out) {
    given = a[3].toTensor();
    given_places = a[4].toTensor();
    if (!can_become(given, sizes, self.scalar_type(), {self}) || !can_become(given_places, sizes, c10::kLong, {self, given})) return false;
  }
  const c10::DeviceIndex device = self.device().index();
  const Output values(given, sizes, self.scalar_type(), device), places(given_places, sizes, c10::kLong, device);
  if (!mode_of_rows(rows_of(self, *dim), values.dense(), places.dense())) return false;
  counter.count();
  results.push_back(values.finish());
  results.push_back(places.finish());
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  static KernelCounter& counter = portable_counter("mode");
  impl(kernels, "mode", [](const c10::IValue* a, Results& results) { return mode(a, false, counter, results); });
  impl(kernels, "mode.values", [](const c10::IValue* a, Results& results) { return mode(a, true, counter, results); });
});

}  // namespace
}  // namespace mode_impl
}  // namespace backplane::portable
