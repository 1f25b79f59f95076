// drivers/shims/fault/fault.cpp: the shim that makes a sound driver fail on request, so that what stands above it can be tested.
//
// It goes over a complete driver: emulate, where it is needed, stands below. Streams and events keep the handles of the driver below, so
// every group of it passes through; the SDK's are wrapped, so that their errors have a text.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "collectives.h"
#include "memory.h"
#include "waits.h"
#include "work.h"

namespace backplane::driver::fault {

class Fault : public Driver<Fault>, public MemoryFaults, public WorkFaults, public WaitFaults, public CollectiveFaults {
 public:
  explicit Fault(const Host& host)
      : Below(host), Driver(host), MemoryFaults(host), WorkFaults(host), WaitFaults(host), CollectiveFaults(host) {
    set_flags(below_.flags);
    if (!below_.memory_info) drop(&bp_driver::memory_info);
    if (!below_.set_current) drop(&bp_driver::set_current);
    if (!below_.stream_from_native) drop(&bp_driver::stream_from_native);
    if (!below_.stream_callback) drop(&bp_driver::stream_callback);
    if (!below_.pointer_info) drop(&bp_driver::pointer_info);
    if (!has_host_register(below_)) {
      drop(&bp_driver::host_register);
      drop(&bp_driver::host_unregister);
    }
  }

  ~Fault() {
    communicators_.release_all();
    below_.close(below_.self);  // first: work that ends there still asks for the state of its device
  }

  void device_count(int32_t* out) { pass(&bp_driver::device_count, out); }
  void device_properties(int32_t device, bp_device_properties* out) {
    out->struct_size = sizeof *out;
    pass(&bp_driver::device_properties, device, out);
  }

  void open() {
    int32_t count = 0;
    device_count(&count);
    for (int32_t i = 0; i < count; ++i) devices_.push_back(std::make_unique<DeviceFault>());
    pass(&bp_driver::open);
  }

  void set_current(int32_t device) { pass(&bp_driver::set_current, device); }

  void query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) throw Error(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    if (!below_.query_ext) throw Error(BP_UNSUPPORTED, "the driver has no groups");
    std::call_once(found_, [this] { find_groups(); });
    const bp_ext* found = nullptr;
    const auto look = [&](const auto& group) {
      if (std::strcmp(id, group.id) != 0) return;
      if (!group.below || version != group.version) {
        throw Error(BP_UNSUPPORTED, "no group " + std::string(id) + " version " + std::to_string(version));
      }
      found = &group.offered.head;
    };
    std::apply([&](const auto&... group) { (look(group), ...); }, wrapped_);
    if (!found) return static_cast<void>(pass(&bp_driver::query_ext, id, version, out));
    *out = found;
  }

  void profile_start(uint64_t kinds, bp_activity_callback fn, void* arg) {
    if (strikes(settings_.profile, settings_.device))
      throw Error(BP_INTERNAL, settings_.profile.text("profile.start: no counters are free"));
    pass_group<&bp_profile::start>(kinds, fn, arg);
  }

 private:
  /// The C function for a slot that passes through, whose parameters it takes apart.
  template <auto Slot>
  struct Pass;
  template <class Group, class... Args, int32_t (*Group::*Slot)(void*, Args...)>
  struct Pass<Slot> {
    static constexpr auto entry() { return slot<&Fault::pass_group<Slot, Args...>>(); }
  };
  /// The same for a call of bp.collective that queues: it takes a communicator and a stream.
  template <auto Slot>
  struct Queue {
    static constexpr bool is = false;
  };
  template <class... Args, int32_t (*bp_collective::*Slot)(void*, bp_comm*, bp_stream*, Args...)>
  struct Queue<Slot> {
    static constexpr bool is = true;
    static constexpr auto entry() { return slot<&Fault::collective_queue<Slot, Args...>>(); }
  };
  static_assert(Queue<&bp_collective::barrier>::is && Queue<&bp_collective::all_to_all_v>::is && !Queue<&bp_collective::abort>::is);
  template <class Group>
  void find(Wrapped<Group>& group) {
    group.below = find_group<Group>(below_);
    if (!group.below) return;
    group.offered.head = group_head<Group>(group.below->head.flags);
    GroupTraits<Group>::each_slot([&](auto slot) { group.offered.*decltype(slot)::value = Pass<decltype(slot)::value>::entry(); });
  }
  /// Looks for the groups below; what may fail, or counts as work, goes by a method of the shim's.
  void find_groups() {
    std::apply([this](auto&... group) { (find(group), ...); }, wrapped_);
    std::get<Wrapped<bp_host_exec>>(wrapped_).offered.enqueue = slot<&Fault::exec_enqueue>();
    auto& vmm = std::get<Wrapped<bp_vmm>>(wrapped_).offered;
    vmm.reserve = slot<&Fault::vmm_reserve>();
    vmm.release = slot<&Fault::vmm_release>();
    vmm.map = slot<&Fault::vmm_map>();
    vmm.unmap = slot<&Fault::vmm_unmap>();
    std::get<Wrapped<bp_compiler>>(wrapped_).offered.compile = slot<&Fault::compiler_compile>();
    auto& module = std::get<Wrapped<bp_module>>(wrapped_).offered;
    module.load = slot<&Fault::module_load>();
    module.unload = slot<&Fault::module_unload>();
    module.launch = slot<&Fault::module_launch>();
    auto& graph = std::get<Wrapped<bp_graph>>(wrapped_).offered;
    graph.capture_begin = slot<&Fault::graph_capture_begin>();
    graph.instantiate = slot<&Fault::graph_instantiate>();
    graph.launch = slot<&Fault::graph_launch>();
    graph.recording_destroy = slot<&Fault::graph_recording_destroy>();
    graph.exec_destroy = slot<&Fault::graph_exec_destroy>();
    auto& collective = std::get<Wrapped<bp_collective>>(wrapped_).offered;
    collective.create = slot<&Fault::collective_create>();
    collective.split = slot<&Fault::collective_split>();
    collective.destroy = slot<&Fault::collective_destroy>();
    collective.abort = slot<&Fault::collective_abort>();
    collective.status = slot<&Fault::collective_status>();
    std::get<Wrapped<bp_profile>>(wrapped_).offered.start = slot<&Fault::profile_start>();
    GroupTraits<bp_collective>::each_slot([&](auto entry) {
      using Entry = Queue<decltype(entry)::value>;
      if constexpr (Entry::is) collective.*decltype(entry)::value = Entry::entry();
    });
  }

  std::once_flag found_;
};

}  // namespace backplane::driver::fault

BP_DEFINE_DRIVER(backplane::driver::fault::Fault)
