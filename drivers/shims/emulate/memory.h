// drivers/shims/emulate/memory.h: memory of the device and of the host, copies and fills.
#pragma once

#include "../../engine/fill.h"
#include "below.h"
#include "transfer.h"

namespace backplane::driver::emulate {

class MemoryEntries : public virtual Below {
 public:
  using Below::Below;

  void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
    check(device);
    inner_(&bp_driver::alloc, device, bytes, flags, out);
  }
  void free(int32_t device, uint64_t address) { inner_(&bp_driver::free, device, address); }

  void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
            uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (!own_streams_) {
      drain_outside_lock(device, stream);
      return events_.around(Records::copy(device, dst_device, src_device, bytes), stream,
                            [&] { copy_below(inner_, device, stream, copy); });
    }
    Stream& on = usable(device, stream);
    auto record = bytes ? recorder_.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr;
    on.run_blocking([&] {
      if (record) record->begin();
      watched(device, [&] { copy_below(inner_, device, nullptr, copy); });
      if (record) record.release()->end(true);
    });
    on.device().check();
  }

  void copy_async(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
                  uint32_t flags) {
    const Copy copy{dst, dst_device, src, src_device, bytes, flags};
    if (knows_pinned_) {
      if (copy.from_host()) pinned_.check(src, bytes);
      if (copy.to_host()) pinned_.check(dst, bytes);
    }
    if (!own_streams_) {
      return events_.around(Records::copy(device, dst_device, src_device, bytes), stream, [&] {
        // The driver below does not know the shim's pinned memory: for it that is pageable.
        if (own_pinned_ && !copy.between_devices()) return copy_below(inner_, device, stream, copy);
        inner_(&bp_driver::copy_async, device, stream, dst, dst_device, src, src_device, bytes, flags);
      });
    }
    need_no_flags("copy_async", flags);  // here: what a queued call refuses would be a fault of the device
    queue(
        usable(device, stream), device, [&] { copy_below(inner_, device, nullptr, copy); },
        {[](Job& job, int32_t status) {
           const auto& [self, to, from, size, on, devices] = job.words;
           if (status != BP_OK) return;
           copy_below(reinterpret_cast<MemoryEntries*>(self)->inner_, static_cast<int32_t>(on), nullptr,
                      {to, high(devices), from, low(devices), size, 0});
         },
         {reinterpret_cast<uint64_t>(this), dst, src, bytes, static_cast<uint64_t>(device), pack(dst_device, src_device)}},
        bytes ? recorder_.queue_copy(device, stream, dst_device, src_device, bytes) : nullptr);
  }

  void fill(int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count, uint32_t flags) {
    const FillPattern row(pattern, pattern_size, count, dst);
    if (own_streams_ || !below_.fill) need_no_flags("fill", flags);
    if (!own_streams_) {
      return events_.around(Records::work(BP_ACTIVITY_FILL, device, row.bytes), stream,
                            [&] { fill_below(device, stream, dst, row, flags); });
    }
    queue(
        usable(device, stream), device, [&] { fill_below(device, nullptr, dst, row, 0); },
        {[](Job& job, int32_t status) {
           if (status != BP_OK) return;
           const auto& [self, on, to, word, size, bytes] = job.words;
           reinterpret_cast<MemoryEntries*>(self)->fill_below(static_cast<int32_t>(on), nullptr, to,
                                                              FillPattern(&word, static_cast<uint32_t>(size), bytes / size), 0);
         },
         {reinterpret_cast<uint64_t>(this), static_cast<uint64_t>(device), dst, row.word, row.size, row.bytes}},
        row.bytes ? recorder_.queue(BP_ACTIVITY_FILL, device, stream, row.bytes) : nullptr);
  }

  void host_alloc(uint64_t bytes, uint32_t flags, void** out) {
    if (own_pinned_) {
      if (!out || flags != 0) throw Error(BP_INVALID_ARGUMENT, "host_alloc: out must not be NULL, flags must be 0");
      *out = pinned_.alloc(bytes);
    } else {
      inner_(&bp_driver::host_alloc, bytes, flags, out);
      if (knows_pinned_) pinned_.adopt(*out, bytes);
    }
  }
  void host_free(void* ptr) {
    if (own_pinned_) return pinned_.free(ptr);
    if (knows_pinned_) pinned_.disown(ptr);
    inner_(&bp_driver::host_free, ptr);
  }
  void host_register(void* ptr, uint64_t bytes) {
    if (knows_pinned_) pinned_.add(ptr, bytes);
    if (!has_host_register(below_)) return;
    try {
      inner_(&bp_driver::host_register, ptr, bytes);
    } catch (...) {
      if (knows_pinned_) pinned_.remove(ptr);
      throw;
    }
  }
  void host_unregister(void* ptr) {
    if (knows_pinned_) pinned_.remove(ptr);
    if (has_host_register(below_)) inner_(&bp_driver::host_unregister, ptr);
  }

  void memory_info(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
    inner_(&bp_driver::memory_info, device, free_bytes, total_bytes);
  }
  void pointer_info(uint64_t address, bp_pointer_info* out) {
    if (const auto block = pinned_.find(address)) {
      *out = {out->struct_size, block->kind, BP_HOST_DEVICE, block->base, block->bytes};
      return;
    }
    out->struct_size = sizeof *out;
    inner_(&bp_driver::pointer_info, address, out);
  }

 private:
  static uint64_t pack(int32_t high, int32_t low) {
    return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
  }
  static int32_t high(uint64_t word) { return static_cast<int32_t>(word >> 32); }
  static int32_t low(uint64_t word) { return static_cast<int32_t>(word); }

  void fill_below(int32_t device, bp_stream* stream, uint64_t dst, const FillPattern& row, uint32_t flags) {
    if (below_.fill) {
      inner_(&bp_driver::fill, device, stream, dst, static_cast<const void*>(&row.word), row.size, row.bytes / row.size, flags);
      if (own_streams_) inner_.wait(&bp_driver::synchronize, BP_NO_TIMEOUT, device);
      return;
    }
    fill_by_copies(inner_, device, stream, dst, row);
  }
};

}  // namespace backplane::driver::emulate
