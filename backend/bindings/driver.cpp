// bindings/driver.cpp: what driver was loaded, what it can do, and its end.
#include "runtime/driver.h"

#include "bindings/module.h"
#include "memory/caching_allocator.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

// What differs between drivers once emulate has filled the mandatory groups. Tests are marked with these names.
std::vector<std::string> capabilities() {
  const Driver* d = loaded_driver();
  std::vector<std::string> names;
  if (d == nullptr) return names;
  const auto add = [&names](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(d->host_exec != nullptr, "host_exec");
  add(d->host_view != nullptr, "host_view");
  add(d->zero_copy, "zero_copy");
  add(d->peer != nullptr, "peer");
  add(d->vmm != nullptr, "vmm");
  add(d->ipc != nullptr, "ipc");
  add(d->table.memory_info != nullptr, "memory_info");
  add(d->table.pointer_info != nullptr, "pointer_info");
  add(d->table.host_register != nullptr, "host_register");
  add(d->table.stream_native != nullptr, "stream_native");
  add(d->table.stream_from_native != nullptr, "stream_from_native");
  add(d->table.stream_callback != nullptr, "stream_callback");
  add(d->table.set_current != nullptr, "set_current");
  add(device_count() > 1, "multi_device");
  if (device_count() > 0) {
    const auto& p = device_properties(0);
    add(p.priority_least != p.priority_greatest, "priorities");
    add(p.stream_limit != 1, "streams");
  }
  return names;
}

py::dict info_dict() {
  const DriverInfo info = driver_info();
  py::dict d;
  d["path"] = info.path;
  d["shims"] = info.shims;
  d["options"] = info.options;
  d["refusal"] = info.refusal;
  return d;
}

void close() {
  if (const Driver* d = driver_if_open(); d != nullptr) {
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) synchronize_device(i);
    caching_allocator().emptyCache();
  }
  close_driver();
}

}  // namespace

void bind_driver(py::module_& module) {
  def_blocking(module, "load_driver", [] { return load_driver(); });
  def_quick(module, "driver_info", info_dict);
  def_blocking(module, "capabilities", capabilities);
  def_blocking(module, "close", close);
  module.attr("abi") = py::make_tuple(BP_ABI_MAJOR, BP_ABI_MINOR);
}

}  // namespace backplane::bindings
