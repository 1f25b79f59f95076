// tests/driver/broken/shim.cpp: forwards the whole table, then applies the defect.
#include "shim.h"

#include <string.h>

#include <memory>

namespace broken {
namespace driver = backplane::driver;
namespace {

template <auto Slot>
struct Forward;

template <class... Args, int32_t (*bp_driver::*Slot)(void*, Args...)>
struct Forward<Slot> {
  static int32_t call(void* self, Args... args) { return (of(self).in.*Slot)(of(self).in.self, args...); }
};

// The same for a slot of a group that the shim holds as its member In.
template <auto In, auto Slot>
struct ForwardGroup;

template <auto In, class Group, class... Args, int32_t (*Group::*Slot)(void*, Args...)>
struct ForwardGroup<In, Slot> {
  static int32_t call(void* self, Args... args) { return ((of(self).*In)->*Slot)((of(self).*In)->head.self, args...); }
};

int32_t close(void* self) {
  std::unique_ptr<Shim> shim(&of(self));
  return INNER(*shim, close);
}

int32_t query_ext(void* self, const char* id, uint32_t version, const bp_ext** out) {
  Shim& s = of(self);
  const bp_ext* inner = nullptr;
  const int32_t status = INNER(s, query_ext, id, version, &inner);
  if (status != BP_OK) return status;
#define BP_OURS(group, GROUP, about) \
  if (s.in_##group && inner == &s.in_##group->head) *out = &s.group.head;
  BP_DRIVER_GROUPS(BP_OURS)
#undef BP_OURS
  return BP_OK;
}

void forward_table(Shim& s) {
  bp_driver& t = s.table;
  t = s.in;
  t.self = &s;
#define BP_FORWARD(group, entry) t.entry = Forward<&bp_driver::entry>::call;
  BP_DRIVER_SLOTS(BP_FORWARD)
#undef BP_FORWARD
  t.close = close;
  t.query_ext = query_ext;
}

template <auto In, class Group>
void forward_group(Shim& s, Group& ours) {
  using Traits = driver::GroupTraits<Group>;
  const bp_ext* ext = nullptr;
  if (INNER(s, query_ext, Traits::id, Traits::version, &ext) != BP_OK) return;
  s.*In = reinterpret_cast<const Group*>(ext);
  ours = *(s.*In);
  ours.head.self = &s;
  Traits::each_slot([&](auto slot) { ours.*decltype(slot)::value = ForwardGroup<In, decltype(slot)::value>::call; });
}

void forward_groups(Shim& s) {
#define BP_FORWARD(group, GROUP, about) forward_group<&Shim::in_##group>(s, s.group);
  BP_DRIVER_GROUPS(BP_FORWARD)
#undef BP_FORWARD
}

const Defects& defects() {
  static const Defects all = [] {
    Defects d;
    add_load_defects(d);
    add_memory_defects(d);
    add_work_defects(d);
    add_fault_defects(d);
#define BP_FAMILY(group, GROUP, about) add_##group##_defects(d);
    BP_DRIVER_GROUPS(BP_FAMILY)
#undef BP_FAMILY
    add_dialect_defects(d);
    add_ttir_defects(d);
    add_life_defects(d);
    add_kinds(d);
    d["none"] = [](Shim&) {};
    return d;
  }();
  return all;
}

int32_t get(const bp_host* host, const bp_driver** out) {
  const std::string config = host->config;
  const std::string names = config.starts_with("defect=") ? config.substr(7) : "";
  const size_t plus = names.find('+');
  const std::string name = names.substr(0, plus);
  const auto found = defects().find(name);
  const auto also = defects().find(plus == std::string::npos ? "none" : names.substr(plus + 1));
  if (found == defects().end() || also == defects().end() || !host->inner) {
    host->set_error(host->ctx, host->inner ? "broken.defect= must name a check" : "this is a shim: it needs a driver below");
    return BP_INVALID_ARGUMENT;
  }
  if (host->abi_major != BP_ABI_MAJOR || host->abi_minor != BP_ABI_MINOR) {
    if (name == "load.refusal") return BP_INTERNAL;
    host->set_error(host->ctx, "another ABI");
    return BP_UNSUPPORTED;
  }
  if (name == "load.answer") return BP_UNSUPPORTED;
  static Shim* first = nullptr;
  if (name == "load.instances" && first) {
    *out = &first->table;
    return BP_OK;
  }
  auto* shim = new Shim;
  if (!first) first = shim;
  shim->in = *host->inner;
  forward_table(*shim);
  forward_groups(*shim);
  found->second(*shim);
  also->second(*shim);
  *out = &shim->table;
  return BP_OK;
}

}  // namespace

bp_stream* side_stream(Shim& shim) {
  std::lock_guard lock(shim.mutex);
  if (!shim.side) INNER(shim, stream_create, 0, 0, 0u, &shim.side);
  return shim.side;
}

}  // namespace broken

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) { return broken::get(host, out); }
