// drivers/shims/emulate/emulate.cpp: the shim that completes a partial driver: nine functions below, a whole table above.
//
// What the driver below has, goes through to it. Streams and events come in pairs: if it lacks either group, both are the shim's own
// (drivers/engine), its work runs on the default stream below, and groups below that take a stream are hidden or wrapped, since they
// would not know the shim's handles. Pinned memory, host_register, fill and copy_async are supplied where they are missing. A driver with
// BP_DRIVER_SERIALIZE is locked here, and is waited for outside the lock; its bp.compiler is called without the lock. bp.profile is made
// where it is missing: by the host's clock on the shim's own streams, else of timing events. bp.graph passes only where the shim supplies
// neither streams, pinned memory, fill nor the lock.
#include <cstring>
#include <mutex>
#include <string>
#include <tuple>

#include "kernels.h"
#include "memory.h"
#include "profile.h"
#include "streams.h"

namespace backplane::driver::emulate {

class Emulate final : public Driver<Emulate>, public MemoryEntries, public StreamEntries, public KernelEntries, public ProfileEntries {
 public:
  explicit Emulate(const Host& host)
      : Below(host), Driver(host), MemoryEntries(host), StreamEntries(host), KernelEntries(host), ProfileEntries(host) {
    set_flags((below_.flags & ~BP_DRIVER_SERIALIZE) | (own_streams_ ? BP_DRIVER_OWN_STREAMS : 0u));
    if (!below_.memory_info) drop(&bp_driver::memory_info);
    if (!below_.set_current) drop(&bp_driver::set_current);
    if (!below_.pointer_info) drop(&bp_driver::pointer_info);
    if (own_streams_ || !below_.stream_native) drop(&bp_driver::stream_native);
    if (!own_streams_ && !below_.stream_from_native) drop(&bp_driver::stream_from_native);
    if (!own_streams_ && !below_.stream_callback) drop(&bp_driver::stream_callback);
    if (!has_host_register(below_) && !knows_pinned_) {
      drop(&bp_driver::host_register);
      drop(&bp_driver::host_unregister);
    }
  }

  ~Emulate() {
    shutdown();
    below_.close(below_.self);
  }

  // ---- the minimum

  void device_count(int32_t* out) { inner_(&bp_driver::device_count, out); }

  void device_properties(int32_t device, bp_device_properties* out) {
    out->struct_size = sizeof *out;
    inner_(&bp_driver::device_properties, device, out);
    if (!own_streams_) return;
    out->stream_limit = settings_.streams;
    out->priority_least = kPriorityLeast;
    out->priority_greatest = kPriorityGreatest;
  }

  void open() {
    int32_t devices = 0;
    inner_(&bp_driver::device_count, &devices);
    inner_(&bp_driver::open);
    configure({"emulate", devices, settings_.workers, settings_.streams});
    open_engine();
  }

  void set_current(int32_t device) { inner_(&bp_driver::set_current, device); }

  // ---- groups

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    find_groups();
    const bp_ext* found = nullptr;
    const auto look = [&](const bp_ext& head) {
      if (head.struct_size && version == head.version && std::strcmp(id, head.id) == 0) found = &head;
    };
    look(exec_.head);
    std::apply([&](const auto&... group) { (look(group.offered.head), ...); }, passing_);
    if (!found) {
      if (std::strcmp(id, BP_GRAPH_ID) == 0 && hides_graphs()) {
        throw Error(BP_UNSUPPORTED,
                    "bp.graph: emulate supplies streams, copies, fills or the lock, which no capture of the driver's can hold");
      }
      if (!own_streams_ && !inner_.serialize() && below_.query_ext) return inner_(&bp_driver::query_ext, id, version, out);
      throw Error(BP_UNSUPPORTED, std::string("no group ") + id + " version " + std::to_string(version) + " can pass through emulate");
    }
    *out = found;
    return BP_OK;
  }

 private:
  /// What of a capture the shim does by itself, the recording would lack: work on streams of its own, copies and fills that wait; and a
  /// wait under the lock only asks, so that no capture hears of it.
  bool hides_graphs() const { return own_streams_ || own_pinned_ || !below_.fill || inner_.serialize(); }

  /// Looks once for the groups below that the shim wraps.
  void find_groups() {
    std::call_once(groups_found_, [&] {
      exec_below_ = inner_.find<bp_host_exec>();
      std::apply([this](auto&... group) { (find_passing(group), ...); }, passing_);
      auto& vmm = group<bp_vmm>().offered;
      vmm.reserve = slot<&Emulate::pass_if_sound<&bp_vmm::reserve, bp_vmm, uint64_t, uint64_t*>>();
      vmm.map = slot<&Emulate::pass_if_sound<&bp_vmm::map, bp_vmm, uint64_t, uint64_t>>();
      if (hides_graphs()) group<bp_graph>().offered.head.struct_size = 0;
      if (own_streams_ && group<bp_module>().below) {
        auto& module = group<bp_module>().offered;
        module.load = slot<&Emulate::pass_if_sound<&bp_module::load, bp_module, const void*, uint64_t, bp_module_code**>>();
        module.unload = slot<&Emulate::module_unload>();
        module.function = slot<&Emulate::module_function>();
        module.launch = slot<&Emulate::module_launch>();
      }
      find_profile();
      const auto& view = group<bp_host_view>().below;
      constexpr uint32_t in_place = BP_HOST_VIEW_SAME_ADDRESS | BP_HOST_VIEW_COHERENT;
      const bool host_sees = view && (view->head.flags & in_place) == in_place;
      if (exec_below_ || (own_streams_ && host_sees)) exec_.head = group_head<bp_host_exec>();
    });
  }

  /// The shim's own, where the streams are or the driver below has none.
  void find_profile() {
    auto& [below, offered] = group<bp_profile>();
    if (below && !own_streams_) return;
    const uint32_t ranges = below ? below->head.flags & BP_PROFILE_RANGES : 0;
    offered.head = group_head<bp_profile>(ranges | (own_streams_ ? BP_PROFILE_NAMES : 0));
    offered.start = slot<&Emulate::profile_start>();
    offered.stop = slot<&Emulate::profile_stop>();
    offered.tag = slot<&Emulate::profile_tag>();
    offered.launch_begin = slot<&Emulate::profile_launch_begin>();
    offered.launch_end = slot<&Emulate::profile_launch_end>();
    if (!ranges) {
      offered.range_push = offered.mark = slot<&Emulate::profile_no_name>();
      offered.range_pop = slot<&Emulate::profile_no_range>();
    }
    if (own_streams_) return;
    if (group<bp_module>().below) group<bp_module>().offered.launch = slot<&Emulate::module_launch_below>();
    if (group<bp_graph>().below) group<bp_graph>().offered.launch = slot<&Emulate::graph_launch_below>();
  }

  /// The C function for a slot, whose parameters it takes apart.
  template <auto Slot>
  struct Pass;
  template <class Group, class... Args, int32_t (*Group::*Slot)(void*, Args...)>
  struct Pass<Slot> {
    static constexpr auto entry() { return slot<&Emulate::pass<Slot, Group, Args...>>(); }
  };
  template <class Group>
  void find_passing(Passing<Group>& group) {
    group.below = inner_.find<Group>();
    if (!group.below) return;
    group.offered.head = group_head<Group>(group.below->head.flags);
    GroupTraits<Group>::each_slot([&](auto slot) { group.offered.*decltype(slot)::value = Pass<decltype(slot)::value>::entry(); });
  }

  std::once_flag groups_found_;
  bp_host_exec exec_ = {{}, slot<&Emulate::exec_enqueue>(), slot<&Emulate::exec_map>()};
};

}  // namespace backplane::driver::emulate

BP_DEFINE_DRIVER(backplane::driver::emulate::Emulate)
