// kernels/portable/sort/mode.cpp: the most frequent value along a dimension: rows are sorted, and their runs counted.
#include <backplane/structured.h>

#include <string>

#include "kernels/portable/sort/sort.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "modules/launch.h"

namespace backplane::portable {
namespace mode_impl {
namespace {

bool mode_of_rows(const Rows& rows, const at::Tensor& values, const at::Tensor& places) {
  if (rows.count == 0) return true;
  const c10::DeviceIndex device = rows.x.device().index();
  const c10::ScalarType dtype = rows.x.scalar_type();
  Unit unit(device, "mode.bpc", "mode_of_rows", "mode");
  define_keys(unit, dtype, false, false);
  const Function* const mode = unit.find(1, 4, 2, 3);
  if (mode == nullptr) return false;
  const at::Tensor sorted = empty(rows.x.sizes(), dtype, device), stood = empty(rows.x.sizes(), c10::kLong, device);
  if (!sort_rows(rows.x, false, {}, sorted, stood)) return false;
  Arguments arguments;
  arguments.write(values).write(places).read(sorted).read(stood).words(rows.count, rows.size);
  launch_function(device, *mode, static_cast<uint64_t>(rows.count), arguments);
  return true;
}

// self, dim, keepdim
bool mode(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto dim = dimension_of(call[1].toInt(), self);
  if (!is_usable(self) || !dim || (self.dim() != 0 && self.size(*dim) == 0)) return false;
  at::DimVector sizes(self.sizes());
  if (self.dim() != 0) {
    sizes[*dim] = 1;
    if (!call[2].toBool()) sizes.erase(sizes.begin() + *dim);
  }
  const auto outputs = outputs_of(call, self, sizes);
  if (!outputs || !mode_of_rows(rows_of(self, *dim), outputs->values.dense(), outputs->places.dense())) return false;
  outputs->give(call);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"mode", "mode.values"}, &mode); });

}  // namespace
}  // namespace mode_impl
}  // namespace backplane::portable
