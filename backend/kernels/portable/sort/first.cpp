// kernels/portable/sort/first.cpp: the first few elements of many rows, side by side on a core (first.bpc).
#include "kernels/portable/sort/sort.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"

namespace backplane::portable {

bool can_take_first(const Target& target, const Rows& rows, int64_t wanted) {
  constexpr int64_t kMostWanted = 16, kFewRows = 16, kLongRow = 1024;
  return target.is_host() && wanted <= kMostWanted && rows.count >= kFewRows && rows.size <= kLongRow;
}

bool take_first(const Rows& rows, bool is_descending, const at::Tensor& values, const at::Tensor& places) {
  constexpr uint32_t kLanes = 16;  // rows at a time
  const c10::DeviceIndex device = rows.x.device().index();
  const int64_t wanted = places.size(1);
  int64_t most = 2;
  while (most < wanted) most *= 2;
  Unit unit(device, "first.bpc", "first_of_rows", "first");
  define_keys(unit, rows.x.scalar_type(), is_descending, false);
  const Function* const function = unit.define("MOST", most).find(kLanes, 3, 3, 0b11);
  if (function == nullptr) return false;
  Arguments arguments;
  arguments.write(values).write(places).read(rows.x).words(rows.count, rows.size, wanted);
  launch_function(device, *function, static_cast<uint64_t>((rows.count + kLanes - 1) / kLanes), arguments);
  return true;
}

}  // namespace backplane::portable
