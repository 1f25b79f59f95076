// bindings/order_log.cpp: the order log for torch_backplane.sanitizer: notes as tuples (kind, device, stream_id, object, size).
#include "runtime/order_log.h"

#include "bindings/module.h"

namespace backplane::bindings {
namespace {

py::list take() {
  py::list list;
  for (const Activity& note : take_order_log()) {
    list.append(py::make_tuple(static_cast<int>(note.kind), static_cast<int>(note.device), note.stream, note.object, note.size));
  }
  return list;
}

}  // namespace

void bind_order_log(py::module_& module) {
  def_quick(module, "switch", [](bool on) { switch_order_log(on); });
  def_quick(module, "take", take);
}

}  // namespace backplane::bindings
