// bindings/devices.cpp: devices, their properties, first use, fork.
#include "aten/autograd_threads.h"
#include "aten/observe_operators.h"
#include "bindings/module.h"
#include "runtime/driver.h"
#include "runtime/dtypes.h"
#include "runtime/peer.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"
#include "runtime/text.h"
#include "runtime/visible_devices.h"

namespace backplane::bindings {
namespace {

py::dict properties_dict(int64_t device) {
  const bp_device_properties& p = device_properties(device_index(device));
  py::dict d;
  d["name"] = readable(p.name);
  d["vendor"] = readable(p.vendor);
  d["driver_version"] = readable(p.driver_version);
  d["bus_id"] = readable(p.bus_id);
  d["uuid"] = uuid_text(p);
  d["total_memory"] = p.total_memory;
  d["max_allocation"] = p.max_allocation;
  d["dtypes"] = p.dtypes;
  d["alignment"] = p.alignment;
  d["copy_alignment"] = p.copy_alignment;
  d["stream_limit"] = p.stream_limit;
  d["priority_least"] = p.priority_least;
  d["priority_greatest"] = p.priority_greatest;
  d["major"] = p.capability_major;
  d["minor"] = p.capability_minor;
  d["multi_processor_count"] = p.compute_units;
  d["max_threads_per_multi_processor"] = p.threads_per_unit;
  d["warp_size"] = p.warp_size;
  d["clock_rate"] = p.clock_khz;
  return d;
}

// 0, 1, 2: off, warn, error. Reports name operators, which are observed meanwhile; the GIL guards the observer.
void set_sync_debug(int64_t mode) {
  const auto wanted = static_cast<SyncDebug>(mode);
  const bool follows = sync_debug_mode() != SyncDebug::off;
  set_sync_debug_mode(wanted);
  if (follows != (wanted != SyncDebug::off)) observe_operators(!follows);
}

// The driver's dtype bits as torch dtypes; an empty list means that the driver does not report them.
std::vector<at::ScalarType> dtype_list(uint64_t bits) {
  std::vector<at::ScalarType> types;
  for (const auto& [bit, type] : kDriverDtypes) {
    if ((bits & bit) != 0) types.push_back(type);
  }
  return types;
}

c10::DeviceIndex opened(int64_t device) {
  const c10::DeviceIndex index = device_index(device);
  check_device(index);
  open_driver();
  return index;
}

}  // namespace

void bind_devices(py::module_& module) {
  def_blocking(module, "count", [] { return static_cast<int>(device_count()); });
  def_quick(module, "current", [] { return static_cast<int>(current_device()); });
  // As for torch.cuda, setting the device initializes it: FakeTensor and DeviceMesh take a device that is not initialized for one that
  // nobody has set.
  def_blocking(module, "set", [](int64_t device) { set_device(opened(device)); });
  def_blocking(module, "exchange", [](int64_t device) { return static_cast<int>(exchange_device(opened(device))); });
  def_blocking(module, "maybe_exchange",
               [](int64_t device) { return static_cast<int>(maybe_exchange_device(device < 0 ? c10::DeviceIndex{-1} : opened(device))); });
  def_quick(module, "properties", properties_dict);
  def_quick(module, "dtypes", [](int64_t device) { return dtype_list(device_properties(device_index(device)).dtypes); });
  def_blocking(module, "can_access_peer",
               [](int64_t device, int64_t peer) { return can_access_peer(device_index(device), device_index(peer)); });
  def_blocking(module, "synchronize", [](int64_t device) {
    synchronize_device(device_index(device));
    raise_reports(resolve_device(device_index(device)));
  });

  def_blocking(module, "init", [] { open_driver(); });
  def_quick(module, "is_initialized", [] { return is_initialized(); });
  def_quick(module, "has_context", [](int64_t device) { return has_context(device_index(device)); });
  def_blocking(module, "drain_autograd", [] { drain_autograd(); });
  def_quick(module, "sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  def_quick(module, "set_sync_debug_mode", set_sync_debug);
  def_quick(module, "in_bad_fork", [] { return in_bad_fork(); });
}

}  // namespace backplane::bindings
