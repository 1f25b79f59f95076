// memory/copy_bytes.cpp: the driver's copy and copy_async, and the copies that they do not support.
#include "memory/copy_bytes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "memory/retry.h"
#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/peer.h"
#include "runtime/stream.h"
#include "runtime/sync_debug.h"

namespace backplane {
namespace copy_bytes_impl {
namespace {

int32_t submit(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, bool async) {
  bp_stream* handle = stream_handle(stream);
  if (dst.device >= 0 && src.device >= 0 && dst.device != src.device) {
    enable_peer_access(stream.device_index(), stream.device_index() == dst.device ? src.device : dst.device);
  }
  const int32_t dst_index = driver_index(dst.device);
  const int32_t src_index = driver_index(src.device);
  if (async) {
    const int32_t status = memory::retry_when_full([&] {
      return try_call<&bp_driver::copy_async>(stream.device_index(), handle, dst.address, dst_index, src.address, src_index, bytes, 0u);
    });
    if (status == BP_OK) note_queued(stream, "copy", bytes);
    return status;
  }
  refuse_in_capture(stream, "A copy that the host waits for");
  synchronize_stream(stream);  // the driver's own wait has no timeout, names no stream, and cannot be interrupted
  const int32_t status = memory::retry_when_full(
      [&] { return try_call<&bp_driver::copy>(stream.device_index(), handle, dst.address, dst_index, src.address, src_index, bytes, 0u); });
  if (status == BP_OK) note(ActivityKind::stream_done, stream.device_index(), stream.id());  // copy blocks
  return status;
}

void submit_or_throw(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, bool async) {
  const int32_t status = submit(dst, src, bytes, stream, async);
  if (C10_UNLIKELY(status != BP_OK)) throw_status(status, async ? "copy_async" : "copy", stream.device_index(), last_error_text());
}

// Host memory that satisfies a device's copy alignment.
class AlignedBuffer {
 public:
  AlignedBuffer(uint64_t bytes, uint64_t alignment)
      : alignment_(std::max<uint64_t>(alignment, 64)), data_(static_cast<char*>(::operator new(bytes, std::align_val_t(alignment_)))) {}
  ~AlignedBuffer() { ::operator delete(data_, std::align_val_t(alignment_)); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  char* data() const { return data_; }
  CopyEnd at(uint64_t offset) const { return {reinterpret_cast<uint64_t>(data_ + offset), -1}; }

 private:
  uint64_t alignment_;
  char* data_;
};

// The copy alignment of a device; the host (-1) supports any address.
uint64_t copy_alignment(c10::DeviceIndex device) {
  return device < 0 ? 1 : std::max<uint64_t>(device_properties(device).copy_alignment, 1);
}

bool is_aligned(CopyEnd dst, CopyEnd src, uint64_t bytes, uint64_t alignment) {
  return ((dst.address | src.address | bytes) & (alignment - 1)) == 0;
}

// Note [Odd copies]: the aligned blocks around the range are copied instead. They are in the same allocation, since allocations start and
// end at multiples of BP_MIN_ALIGNMENT, and copy alignments are not larger. Bytes around a written range are read first and written back.
void read_odd(char* dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, uint64_t alignment) {
  const uint64_t begin = src.address & ~(alignment - 1);
  const uint64_t end = (src.address + bytes + alignment - 1) & ~(alignment - 1);
  const AlignedBuffer buffer(end - begin, alignment);
  submit_or_throw(buffer.at(0), {begin, src.device}, end - begin, stream, /*async=*/false);
  std::memcpy(dst, buffer.data() + (src.address - begin), bytes);
}

void write_odd(CopyEnd dst, const char* src, uint64_t bytes, const c10::Stream& stream, uint64_t alignment) {
  const uint64_t begin = dst.address & ~(alignment - 1);
  const uint64_t end = (dst.address + bytes + alignment - 1) & ~(alignment - 1);
  const AlignedBuffer buffer(end - begin, alignment);
  if (begin != dst.address) submit_or_throw(buffer.at(0), {begin, dst.device}, alignment, stream, false);
  if (end != dst.address + bytes) {
    submit_or_throw(buffer.at(end - alignment - begin), {end - alignment, dst.device}, alignment, stream, false);
  }
  std::memcpy(buffer.data() + (dst.address - begin), src, bytes);
  submit_or_throw({begin, dst.device}, buffer.at(0), end - begin, stream, false);
}

// The stream of a copy, or, on the other one of the two devices, its current stream.
c10::Stream stream_at(c10::DeviceIndex device, const c10::Stream& stream) {
  return stream.device_index() == device ? stream : current_stream(device);
}

// Copies on each device with its own alignment and stream.
void copy_odd(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream) {
  if (src.device < 0) {
    write_odd(dst, reinterpret_cast<const char*>(src.address), bytes, stream, copy_alignment(dst.device));
  } else if (dst.device < 0) {
    read_odd(reinterpret_cast<char*>(dst.address), src, bytes, stream, copy_alignment(src.device));
  } else {
    const auto buffer = std::make_unique_for_overwrite<char[]>(bytes);
    read_odd(buffer.get(), src, bytes, stream_at(src.device, stream), copy_alignment(src.device));
    write_odd(dst, buffer.get(), bytes, stream_at(dst.device, stream), copy_alignment(dst.device));
  }
}

// Copies between two devices that the driver cannot connect.
void copy_through_host(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, uint64_t alignment) {
  constexpr uint64_t kChunk = 16u << 20;
  const AlignedBuffer buffer(std::min(bytes, kChunk), std::max<uint64_t>(alignment, BP_MIN_ALIGNMENT));
  synchronize_stream(stream);
  const c10::Stream from = stream_at(src.device, stream);
  const c10::Stream to = stream_at(dst.device, stream);
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    const uint64_t part = std::min(bytes - done, kChunk);
    submit_or_throw(buffer.at(0), {src.address + done, src.device}, part, from, false);
    submit_or_throw({dst.address + done, dst.device}, buffer.at(0), part, to, false);
  }
}

}  // namespace
}  // namespace copy_bytes_impl

void copy_bytes(CopyEnd dst, CopyEnd src, uint64_t bytes, const c10::Stream& stream, bool async) {
  if (bytes == 0) return;
  if (!async) about_to_wait("a copy that the host waits for");
  const uint64_t alignment = std::max(copy_bytes_impl::copy_alignment(dst.device), copy_bytes_impl::copy_alignment(src.device));
  if (C10_UNLIKELY(!copy_bytes_impl::is_aligned(dst, src, bytes, alignment))) {
    if (async) about_to_wait("a copy that the device's copy alignment does not allow");
    copy_bytes_impl::copy_odd(dst, src, bytes, stream);
    return;
  }
  const int32_t status = copy_bytes_impl::submit(dst, src, bytes, stream, async);
  if (C10_LIKELY(status == BP_OK)) return;
  if (status == BP_UNSUPPORTED && dst.device >= 0 && src.device >= 0 && dst.device != src.device) {
    about_to_wait("a copy between two devices that goes through the host");
    copy_bytes_impl::copy_through_host(dst, src, bytes, stream, alignment);
    return;
  }
  throw_status(status, async ? "copy_async" : "copy", stream.device_index(), last_error_text());
}

}  // namespace backplane
