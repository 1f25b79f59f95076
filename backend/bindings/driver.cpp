// bindings/driver.cpp: the loaded driver, its capabilities, and its shutdown.
#include "runtime/driver.h"

#include "bindings/module.h"
#include "memory/caching_allocator.h"
#include "runtime/stream.h"

namespace backplane::bindings {
namespace {

// What differs between drivers once emulate has supplied the mandatory groups. Tests are marked with these names.
struct Capability {
  const char* name;
  std::string text;
  bool (*has)(const Driver&);
};

const std::vector<Capability>& known_capabilities() {
  static const auto* const all = [] {
    auto* list = new std::vector<Capability>;
    driver::for_each_group([&](auto traits) {
      using Group = typename decltype(traits)::Group;
      list->push_back(
          {traits.name, std::string(traits.about) + " (" + traits.id + ")", [](const Driver& d) { return d.group<Group>() != nullptr; }});
    });
    const auto single = [&](const char* name, const char* text, bool (*has)(const Driver&)) { list->push_back({name, text, has}); };
    single("zero_copy", "host views at the same address, coherent and cached: the fallback copies nothing",
           [](const Driver& d) { return d.zero_copy; });
    single("memory_info", "reports free memory", [](const Driver& d) { return d.table.memory_info != nullptr; });
    single("pointer_info", "knows the device of an address", [](const Driver& d) { return d.table.pointer_info != nullptr; });
    single("host_register", "pins memory of the caller's", [](const Driver& d) { return d.table.host_register != nullptr; });
    single("stream_native", "has a native stream object behind the handle",
           [](const Driver& d) { return d.table.stream_native != nullptr; });
    single("stream_from_native", "supports streams that others created with the vendor's runtime",
           [](const Driver& d) { return d.table.stream_from_native != nullptr; });
    single("stream_callback", "runs host callbacks in stream order", [](const Driver& d) { return d.table.stream_callback != nullptr; });
    single("set_current", "receives the current device", [](const Driver& d) { return d.table.set_current != nullptr; });
    single("multi_device", "has more than one visible device", [](const Driver&) { return device_count() > 1; });
    single("priorities", "has streams of more than one priority", [](const Driver&) {
      return device_count() > 0 && device_properties(0).priority_least != device_properties(0).priority_greatest;
    });
    single("streams", "has more than one stream besides the default one",
           [](const Driver&) { return device_count() > 0 && device_properties(0).stream_limit != 1; });
    return list;
  }();
  return *all;
}

std::vector<std::string> capabilities() {
  std::vector<std::string> names;
  if (const Driver* d = loaded_driver()) {
    for (const Capability& one : known_capabilities()) {
      if (one.has(*d)) names.emplace_back(one.name);
    }
  }
  return names;
}

py::dict capability_texts() {
  py::dict texts;
  for (const Capability& one : known_capabilities()) texts[one.name] = one.text;
  return texts;
}

// Why the driver does not offer a group, in its own words; "" if it does, and if no driver is loaded.
std::string group_refusal(const std::string& name) {
  const Driver* d = loaded_driver();
  std::string why;
  bool is_known = false;
  driver::for_each_group([&](auto traits) {
    using Group = typename decltype(traits)::Group;
    if (name != traits.name) return;
    is_known = true;
    if (d == nullptr || d->group<Group>() != nullptr) return;
    const bp_ext* found = nullptr;
    if (d->table.query_ext == nullptr) {
      why = "it has no groups";
    } else if (d->table.query_ext(d->table.self, traits.id, traits.version, &found) == BP_OK) {
      why = "it does not have all of the group's entries";
    } else {
      why = driver::last_error_text(d->table);
    }
  });
  TORCH_CHECK_VALUE(is_known, "there is no group ", name);
  return why;
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
  def_blocking(module, "load", [] { return load_driver(); });
  def_quick(module, "info", info_dict);
  def_blocking(module, "capabilities", capabilities);
  def_quick(module, "capability_texts", capability_texts);
  def_blocking(module, "group_refusal", group_refusal);
  def_blocking(module, "close", close);
}

}  // namespace backplane::bindings
