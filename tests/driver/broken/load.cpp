// tests/driver/broken/load.cpp: defects of the families load, device, error and ext.
#include <string.h>

#include "shim.h"

namespace broken {

void add_load_defects(Defects& d) {
  d["load.answer"] = d["load.refusal"] = d["load.instances"] = [](Shim&) {};  // in bp_driver_get itself
  d["load.abi"] = [](Shim& s) { s.table.abi_minor = BP_ABI_MINOR + 7; };
  d["load.size"] = [](Shim& s) { s.table.struct_size = 40; };
  d["load.minimum"] = [](Shim& s) { s.table.copy = nullptr; };
  d["load.groups"] = [](Shim& s) { s.table.event_query = nullptr; };

  d["device.count"] = [](Shim& s) {
    s.table.device_count = [](void* self, int32_t* out) {
      const int32_t status = INNER(of(self), device_count, out);
      if (of(self).opened) --*out;
      return status;
    };
    s.table.open = [](void* self) {
      of(self).opened = true;
      return INNER(of(self), open);
    };
  };
  d["device.properties"] = after<&bp_driver::device_properties, [](Shim& s, int32_t status, int32_t device, bp_device_properties* out) {
    out->alignment = 96;
    return status;
  }>;
  d["odd_copies"] = after<&bp_driver::device_properties, [](Shim& s, int32_t status, int32_t device, bp_device_properties* out) {
    out->copy_alignment = 3;
    return status;
  }>;
  d["wide_copies"] = after<&bp_driver::device_properties, [](Shim& s, int32_t status, int32_t device, bp_device_properties* out) {
    out->copy_alignment = 1u << 30;
    return status;
  }>;
  d["priorities"] = after<&bp_driver::device_properties, [](Shim& s, int32_t status, int32_t device, bp_device_properties* out) {
    out->priority_greatest = INT32_MIN;
    out->priority_least = INT32_MAX;
    return status;
  }>;
  d["other_group"] = instead<&bp_driver::query_ext, [](Shim& s, const char* id, uint32_t version, const bp_ext** out) {
    static bp_peer other;
    const int32_t status = INNER(s, query_ext, id, version, out);
    if (status != BP_OK || strcmp(id, BP_PEER_ID) != 0) return status;
    memcpy(&other, *out, sizeof other);
    other.head.id = "bp.other";
    *out = &other.head;
    return status;
  }>;
  d["device.constant"] = [](Shim& s) {
    // What is in use is taken off.
    s.table.device_properties = [](void* self, int32_t device, bp_device_properties* out) {
      const int32_t status = INNER(of(self), device_properties, device, out);
      if (status == BP_OK) out->total_memory -= of(self).address;
      return status;
    };
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      of(self).address += bytes;
      return INNER(of(self), alloc, device, bytes, flags, out);
    };
  };
  d["device.struct_size"] = instead<&bp_driver::device_properties, [](Shim& s, int32_t device, bp_device_properties* out) {
    const uint64_t size = out->struct_size;
    bp_device_properties whole{};
    whole.struct_size = sizeof whole;
    const int32_t status = INNER(s, device_properties, device, &whole);
    if (status == BP_OK) *out = whole;  // as if the caller's struct were always this long
    out->struct_size = size;
    return status;
  }>;
  d["device.invalid"] = after<&bp_driver::synchronize, [](Shim& s, int32_t status, int32_t device, uint64_t timeout) {
    return status == BP_INVALID_DEVICE ? int32_t{BP_INVALID_ARGUMENT} : status;
  }>;
  d["device.memory_info"] =
      after<&bp_driver::memory_info, [](Shim& s, int32_t status, int32_t device, uint64_t* free_bytes, uint64_t* total) {
        if (status == BP_OK) *free_bytes = *total;
        return status;
      }>;
  d["device.set_current"] = [](Shim& s) {
    s.table.set_current = [](void* self, int32_t device) {
      of(self).current = device;
      return INNER(of(self), set_current, device);
    };
    // Works on the current device, whatever the caller names.
    s.table.alloc = [](void* self, int32_t, uint64_t bytes, uint32_t flags, uint64_t* out) {
      return INNER(of(self), alloc, of(self).current, bytes, flags, out);
    };
  };

  d["error.text"] = instead<&bp_driver::last_error, [](Shim&, char* buf, uint64_t size) {
    if (size) buf[0] = 0;
    return int32_t{BP_OK};
  }>;
  d["error.cut"] = instead<&bp_driver::last_error, [](Shim& s, char* buf, uint64_t size) {
    char whole[512] = "";
    const int32_t status = INNER(s, last_error, whole, sizeof whole);
    memcpy(buf, whole, std::min<uint64_t>(size, strlen(whole) + 1));  // no NUL if it is cut
    return status;
  }>;
  d["error.per_thread"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (status == BP_OK) return status;
      char whole[512] = "";
      INNER(of(self), last_error, whole, sizeof whole);
      std::lock_guard lock(of(self).mutex);
      of(self).text = whole;
      return status;
    };
    s.table.last_error = [](void* self, char* buf, uint64_t size) {
      std::lock_guard lock(of(self).mutex);
      if (size) strncpy(buf, of(self).text.c_str(), size - 1)[size - 1] = 0;
      return int32_t{BP_OK};
    };
  };
  d["error.outputs"] = instead<&bp_driver::alloc, [](Shim& s, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    *out = 0;
    return INNER(s, alloc, device, bytes, flags, out);
  }>;

  d["error.flags"] = instead<&bp_driver::event_record, [](Shim& s, int32_t device, bp_stream* stream, bp_event* event, uint32_t) {
    return INNER(s, event_record, device, stream, event, 0u);
  }>;

  d["ext.unknown"] = instead<&bp_driver::query_ext, [](Shim& s, const char*, uint32_t, const bp_ext** out) {
    *out = &s.host_exec.head;
    return int32_t{BP_OK};
  }>;
  d["ext.heads"] = [](Shim& s) { s.host_exec.head.version = 7; };
}

}  // namespace broken
