// tests/driver/broken/profile.cpp: defects of the family profile.
#include "shim.h"

#include <algorithm>

namespace broken {
namespace {

using Change = void (*)(bp_activity&);

/// Where records go, changed on their way. The change makes kind -1 of one that gets lost.
struct Relay {
  bp_activity_callback fn = nullptr;
  void* arg = nullptr;
  Change change = nullptr;
} relay;

void pass(void*, const bp_activity* const* records, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    bp_activity record = *records[i];
    relay.change(record);
    const bp_activity* one = &record;
    if (record.kind >= 0) relay.fn(relay.arg, &one, 1);
  }
}

template <class F>
void changed(Shim& s, F change) {
  relay.change = change;
  s.profile.start = [](void* self, uint64_t kinds, bp_activity_callback fn, void* arg) {
    relay.fn = fn;
    relay.arg = arg;
    return INNER_GROUP(of(self).in_profile, start, kinds, fn ? pass : nullptr, nullptr);
  };
}

}  // namespace

void add_profile_defects(Defects& d) {
  // Copies to the host look as if they came from there.
  d["profile.records"] = [](Shim& s) {
    changed(s, [](bp_activity& record) {
      if (record.dst_device == BP_HOST_DEVICE) std::swap(record.src_device, record.dst_device);
    });
  };
  // What waits for the stream counts as work of it.
  d["profile.order"] = [](Shim& s) {
    changed(s, [](bp_activity& record) { record.begin_ns = std::min(record.begin_ns, record.queued_ns); });
  };
  // One id for the process.
  d["profile.tags"] = [](Shim& s) {
    s.profile.tag = [](void* self, uint64_t correlation) {
      of(self).address = correlation;
      return int32_t{BP_OK};
    };
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      INNER_GROUP(of(self).in_profile, tag, of(self).address);
      return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["profile.kinds"] = instead<&bp_profile::start, [](Shim& s, uint64_t, bp_activity_callback fn, void* arg) {
    return INNER_GROUP(s.in_profile, start, (1u << BP_ACTIVITY_COUNT) - 1, fn, arg);
  }>;
  // What is on its way is lost.
  d["profile.unfinished"] = [](Shim& s) {
    changed(s, [](bp_activity& record) {
      if (record.end_ns == 0) record.kind = -1;
    });
  };
  // A second start takes the recording over.
  d["profile.invalid"] = after<&bp_profile::start, [](Shim& s, int32_t status, uint64_t kinds, bp_activity_callback fn, void* arg) {
    return status == BP_INVALID_ARGUMENT && fn && (kinds >> 63) == 0 ? int32_t{BP_OK} : status;
  }>;
  d["profile.launch"] = instead<&bp_profile::launch_end, [](Shim& s, int32_t device, bp_stream* stream, const char* name) {
    return INNER_GROUP(s.in_profile, launch_end, device, stream, name ? name : "nothing");
  }>;
  d["profile.ranges"] = [](Shim& s) { s.profile.range_pop = [](void*) { return int32_t{BP_OK}; }; };
}

}  // namespace broken
