// tests/driver/broken/memory.cpp: defects of the families memory, copy, pinned, fill and pointer.
#include <string.h>

#include "shim.h"

namespace broken {
namespace {

// fill that reads the caller's pattern when the work runs.
struct LateFill {
  Shim* shim;
  int32_t device;
  uint64_t dst;
  const void* pattern;
  uint32_t size;
  uint64_t count;
};

int32_t run_fill(void* arg) {
  const auto* f = static_cast<LateFill*>(arg);
  void* memory = nullptr;
  const int32_t status = INNER_GROUP(f->shim->in_host_exec, map, f->device, f->dst, &memory);
  for (uint64_t i = 0; status == BP_OK && i < f->count; ++i) memcpy(static_cast<char*>(memory) + i * f->size, f->pattern, f->size);
  return status;
}

}  // namespace

void add_memory_defects(Defects& d) {
  d["memory.patterns"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (++of(self).calls % 5 == 0) *out = of(self).address;  // gives the same memory twice
      of(self).address = *out;
      return status;
    };
  };
  d["memory.alignment"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes + 64, flags, out);
      if (status == BP_OK) *out += 64;
      return status;
    };
    s.table.free = [](void* self, int32_t device, uint64_t address) { return INNER(of(self), free, device, address - 64); };
  };
  d["memory.zero"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      if (bytes) return INNER(of(self), alloc, device, bytes, flags, out);
      *out = 0;
      return int32_t{BP_OK};
    };
  };
  d["memory.unique"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (device == 0) of(self).address = *out;
      if (device == 1 && of(self).address) *out = of(self).address;
      return status;
    };
  };
  d["memory.bad_free"] = [](Shim& s) {
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      INNER(of(self), free, device, address);
      return int32_t{BP_OK};
    };
  };
  d["memory.wrong_device"] = [](Shim& s) {
    s.table.free = [](void* self, int32_t device, uint64_t address) {
      if (INNER(of(self), free, device, address) == BP_OK) return int32_t{BP_OK};
      return INNER(of(self), free, 1 - device, address);
    };
  };
  d["memory.out_of_memory"] = [](Shim& s) {
    s.table.alloc = [](void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
      if (of(self).calls) return int32_t{BP_OUT_OF_MEMORY};  // sticky
      const int32_t status = INNER(of(self), alloc, device, bytes, flags, out);
      if (status == BP_OUT_OF_MEMORY) ++of(self).calls;
      return status;
    };
  };
  d["memory.reuse"] = [](Shim& s) { s.table.free = [](void*, int32_t, uint64_t) { return int32_t{BP_OK}; }; };

  d["alloc_timeout"] = [](Shim& s) { s.table.alloc = [](void*, int32_t, uint64_t, uint32_t, uint64_t*) { return int32_t{BP_TIMEOUT}; }; };
  d["copy_timeout"] = [](Shim& s) {
    s.table.copy = [](void*, int32_t, bp_stream*, uint64_t, int32_t, uint64_t, int32_t, uint64_t, uint32_t) { return int32_t{BP_TIMEOUT}; };
  };
  d["null_pinned"] = [](Shim& s) {
    s.table.host_alloc = [](void*, uint64_t, uint32_t, void** out) {
      *out = nullptr;
      return int32_t{BP_OK};
    };
  };

  d["copy.kinds"] = [](Shim& s) {
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (bytes >= 1 << 20) --bytes;
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["copy.odd"] = [](Shim& s) {
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes / 4 * 4, flags);
    };
  };
  d["copy.zero"] = [](Shim& s) {
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (!bytes) return int32_t{BP_INVALID_ARGUMENT};
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["copy.arrived"] = [](Shim& s) {
    // A copy to the device reads its source only at the next copy.
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      Shim& shim = of(self);
      for (const std::vector<uint64_t>& h : shim.held) {
        INNER(shim, copy, static_cast<int32_t>(h[0]), nullptr, h[1], static_cast<int32_t>(h[0]), h[2], BP_HOST_DEVICE, h[3], 0u);
      }
      shim.held.clear();
      if (src_device != BP_HOST_DEVICE) return INNER(shim, copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
      shim.held.push_back({static_cast<uint64_t>(device), dst, src, bytes});
      return int32_t{BP_OK};
    };
  };
  d["copy.ordered"] = [](Shim& s) {
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (device == 0) stream = side_stream(of(self));
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["copy.async"] = [](Shim& s) {
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      if (src_device == dst_device) return int32_t{BP_OK};
      return INNER(of(self), copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["copy.returns_at_once"] = [](Shim& s) {
    s.table.copy_async = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src,
                            int32_t src_device, uint64_t bytes, uint32_t flags) {
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };
  d["copy.devices"] = [](Shim& s) {
    s.table.copy = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                      uint64_t bytes, uint32_t flags) {
      if (between_devices(dst_device, src_device)) return int32_t{BP_INVALID_ARGUMENT};
      return INNER(of(self), copy, device, stream, dst, dst_device, src, src_device, bytes, flags);
    };
  };

  d["pinned.alloc"] = [](Shim& s) {
    s.table.host_alloc = [](void* self, uint64_t bytes, uint32_t flags, void** out) {
      const int32_t status = INNER(of(self), host_alloc, bytes + 8, flags, out);
      if (status == BP_OK) *out = static_cast<char*>(*out) + 8;
      return status;
    };
    s.table.host_free = [](void* self, void* ptr) { return INNER(of(self), host_free, static_cast<char*>(ptr) - 8); };
  };
  d["pinned.out_of_memory"] = [](Shim& s) {
    s.table.host_alloc = [](void* self, uint64_t bytes, uint32_t flags, void** out) {
      *out = nullptr;
      return INNER(of(self), host_alloc, bytes, flags, out);
    };
  };
  d["pinned.zero"] = [](Shim& s) {
    s.table.host_free = [](void* self, void* ptr) { return ptr ? INNER(of(self), host_free, ptr) : int32_t{BP_OK}; };
  };
  d["pinned.register"] = [](Shim& s) {
    s.table.host_register = [](void*, void*, uint64_t) { return int32_t{BP_OK}; };
    s.table.host_unregister = [](void*, void*) { return int32_t{BP_OK}; };
  };

  d["fill.patterns"] = [](Shim& s) {
    s.table.fill = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t size, uint64_t count,
                      uint32_t flags) {
      if (size == 8) return INNER(of(self), fill, device, stream, dst, pattern, 4u, count * 2, flags);
      return INNER(of(self), fill, device, stream, dst, pattern, size, count, flags);
    };
  };
  d["fill.pattern_is_read"] = [](Shim& s) {
    s.table.fill = [](void* self, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t size, uint64_t count,
                      uint32_t flags) {
      if (flags) return int32_t{BP_INVALID_ARGUMENT};
      auto* f = new LateFill{&of(self), device, dst, pattern, size, count};
      return INNER_GROUP(of(self).in_host_exec, enqueue, device, stream, run_fill, f,
                         [](void* arg) { delete static_cast<LateFill*>(arg); });
    };
  };

  d["pointer.device"] = [](Shim& s) {
    s.table.pointer_info = [](void* self, uint64_t address, bp_pointer_info* out) {
      const int32_t status = INNER(of(self), pointer_info, address, out);
      if (status == BP_OK && out->kind == BP_MEMORY_DEVICE) out->base = address;
      return status;
    };
  };
  d["pointer.host"] = [](Shim& s) {
    s.table.pointer_info = [](void* self, uint64_t address, bp_pointer_info* out) {
      const int32_t status = INNER(of(self), pointer_info, address, out);
      return status == BP_OK && out->kind == BP_MEMORY_UNKNOWN ? int32_t{BP_INVALID_ARGUMENT} : status;
    };
  };
  d["pointer.registered"] = [](Shim& s) {
    s.table.pointer_info = [](void* self, uint64_t address, bp_pointer_info* out) {
      const int32_t status = INNER(of(self), pointer_info, address, out);
      if (status == BP_OK && out->kind == BP_MEMORY_REGISTERED) out->kind = BP_MEMORY_PINNED;
      return status;
    };
  };
}

}  // namespace broken
