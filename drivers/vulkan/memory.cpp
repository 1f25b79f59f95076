// drivers/vulkan/memory.cpp: allocates, and chooses how bytes move.
#include "memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "device.h"
#include "transfer.h"

namespace backplane::driver::vulkan {
namespace {

uint64_t in_buffer(const Memory::Found& found) { return found.handle.begin + found.offset; }

/// Between memory of two devices, or of the host (NULL), by the host.
void copy_by_host(const std::optional<Memory::Found>& to, char* to_host, const std::optional<Memory::Found>& from, char* from_host,
                  uint64_t bytes) {
  char* const dst = to ? Memory::host(*to) : to_host;
  char* const src = from ? Memory::host(*from) : from_host;
  if (dst && src) {
    std::memcpy(dst, src, bytes);
  } else if (src) {
    to->handle.device->transfer().to_device(to->handle.buffer->get(), in_buffer(*to), src, bytes);
  } else if (dst) {
    from->handle.device->transfer().to_host(dst, from->handle.buffer->get(), in_buffer(*from), bytes);
  } else {
    constexpr uint64_t kPart = uint64_t{16} << 20;
    std::vector<char> part(std::min(bytes, kPart));
    for (uint64_t at = 0; at < bytes; at += kPart) {
      const uint64_t size = std::min(kPart, bytes - at);
      from->handle.device->transfer().to_host(part.data(), from->handle.buffer->get(), in_buffer(*from) + at, size);
      to->handle.device->transfer().to_device(to->handle.buffer->get(), in_buffer(*to) + at, part.data(), size);
    }
  }
}

Work record_copy(const DeviceCalls& calls, VkBuffer to, uint64_t to_offset, VkBuffer from, uint64_t from_offset, uint64_t bytes) {
  const VkBufferCopy region{from_offset, to_offset, bytes};
  return {[&calls, to, from, region](Commands& commands) { calls.vkCmdCopyBuffer(commands.get(), from, to, 1, &region); }, {}};
}

/// Bytes of the device that a word fills: whole words by vkCmdFillBuffer, what stands before and behind them by copies.
void fill_words(Commands& commands, const DeviceCalls& calls, VkBuffer buffer, uint64_t at, uint64_t bytes, uint64_t word) {
  const uint64_t head = std::min((4 - at % 4) % 4, bytes);
  const uint64_t middle = (bytes - head) & ~uint64_t{3}, tail = bytes - head - middle;
  if (middle) calls.vkCmdFillBuffer(commands.get(), buffer, at + head, middle, static_cast<uint32_t>(word));
  if (!head && !tail) return;
  const Commands::Piece pattern = commands.place(sizeof word);
  std::memcpy(pattern.host, &word, sizeof word);
  VkBufferCopy parts[2];
  uint32_t count = 0;
  if (head) parts[count++] = {pattern.offset, at, head};
  if (tail) parts[count++] = {pattern.offset, at + head + middle, tail};
  calls.vkCmdCopyBuffer(commands.get(), pattern.buffer, buffer, count, parts);
}

/// Patterns of eight bytes: a few of them, then what is there is copied behind itself.
void fill_pairs(Commands& commands, const DeviceCalls& calls, VkBuffer buffer, uint64_t at, uint64_t bytes, uint64_t word) {
  uint64_t done = std::min<uint64_t>(bytes, 4096);
  const Commands::Piece pattern = commands.place(done);
  fill_bytes(pattern.host, word, done);
  const VkBufferCopy first{pattern.offset, at, done};
  calls.vkCmdCopyBuffer(commands.get(), pattern.buffer, buffer, 1, &first);
  while (done < bytes) {
    commands.barrier();
    const VkBufferCopy more{at, at + done, std::min(done, bytes - done)};
    calls.vkCmdCopyBuffer(commands.get(), buffer, buffer, 1, &more);
    done += more.size;
  }
}

}  // namespace

uint64_t Memory::alloc(Device& device, uint64_t bytes) {
  device.take(bytes);
  try {
    // A driver need not align as the ABI asks.
    const auto mapped = device.info().memory_kind == MemoryKind::unified ? Buffer::Mapped::yes : Buffer::Mapped::no;
    auto buffer = std::make_shared<Buffer>(device.calls(), device.get(), bytes + BP_MIN_ALIGNMENT, device.info().memory_type, mapped);
    const uint64_t begin = (BP_MIN_ALIGNMENT - buffer->address() % BP_MIN_ALIGNMENT) % BP_MIN_ALIGNMENT;
    if (device.info().same_address && buffer->address() != reinterpret_cast<uint64_t>(buffer->host())) {
      throw Error(BP_INTERNAL, "alloc: the host's address is not the device's; take memory=staged");
    }
    if (device.info().tagged && Device::untagged(buffer->address()) != buffer->address()) {
      throw Error(BP_UNSUPPORTED, "alloc: device addresses of more than 56 bits, with several devices; choose one by the option device");
    }
    const uint64_t address = (buffer->address() + begin) | device.tag();
    table_.insert(address, bytes, Block{&device, std::move(buffer), begin});
    return address;
  } catch (const Error& error) {
    device.give(bytes);
    if (error.status() == BP_DEVICE_LOST) device.fail(BP_DEVICE_LOST, error.what());
    throw Error(error.status(), format("alloc: %llu bytes: %s", wide(bytes), error.what()));
  }
}

void Memory::free(int32_t device, uint64_t address) {
  const auto found = find(address);
  if (!found || found->offset != 0 || found->handle.device->index() != device) {
    throw Error(BP_INVALID_ARGUMENT, format("free: 0x%llx is not an address of alloc on device %d", wide(address), device));
  }
  const auto removed = table_.remove(address);
  if (!removed) throw Error(BP_INVALID_ARGUMENT, "free: another thread freed the address");
  removed->handle.device->give(removed->bytes);
}

Memory::Found Memory::range(Place place, uint64_t bytes, const char* what) const {
  Found found = table_.range(place.address, bytes, what);
  if (found.handle.device->index() != place.device) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: 0x%llx is of device %d, not of device %d", what, wide(place.address),
                                            found.handle.device->index(), place.device));
  }
  return found;
}

char* Memory::host(const Found& found) {
  char* const begin = found.handle.buffer->host();
  return begin ? begin + in_buffer(found) : nullptr;
}

Work Memory::copy(Device& on, Place dst, Place src, uint64_t bytes, Caller caller) {
  if (dst.device == BP_HOST_DEVICE && src.device == BP_HOST_DEVICE) {
    throw Error(BP_INVALID_ARGUMENT, "copy: one of the two sides is a device");
  }
  if (dst.device != on.index() && src.device != on.index()) {
    throw Error(BP_INVALID_ARGUMENT, format("copy: device %d is neither of the two sides", on.index()));
  }
  std::optional<Found> to, from;
  if (dst.device != BP_HOST_DEVICE) to = range(dst, bytes, "copy: dst");
  if (src.device != BP_HOST_DEVICE) from = range(src, bytes, "copy: src");
  on.check();
  if (bytes == 0) return {};
  if (to && from && dst.device == src.device) {
    return record_copy(on.calls(), to->handle.buffer->get(), in_buffer(*to), from->handle.buffer->get(), in_buffer(*from), bytes);
  }
  if (!to || !from) {
    const uint64_t address = to ? src.address : dst.address;
    if (caller == Caller::goes_on && !pinned_.contains(address, bytes)) {
      throw Error(BP_INVALID_ARGUMENT, "copy_async: the host memory is not pinned; use host_alloc or host_register, or copy");
    }
    // A caller that waits copies faster itself, where it reaches the memory.
    const bool in_place = caller == Caller::waits && host(to ? *to : *from);
    const auto piece = in_place ? std::nullopt : pinned_.piece(on, address, bytes);
    if (piece && to) return record_copy(on.calls(), to->handle.buffer->get(), in_buffer(*to), piece->buffer, piece->offset, bytes);
    if (piece) return record_copy(on.calls(), piece->buffer, piece->offset, from->handle.buffer->get(), in_buffer(*from), bytes);
  }
  return {{}, [=] { copy_by_host(to, reinterpret_cast<char*>(dst.address), from, reinterpret_cast<char*>(src.address), bytes); }};
}

Work Memory::fill(Device& on, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count) const {
  const FillPattern of(pattern, pattern_size, count, dst);
  const Found to = range({dst, on.index()}, of.bytes, "fill: dst");
  on.check();
  if (count == 0) return {};
  const auto fill_by = of.word >> 32 == (of.word & 0xffffffff) ? fill_words : fill_pairs;
  return {[fill_by, &calls = on.calls(), buffer = to.handle.buffer->get(), at = in_buffer(to), of](Commands& commands) {
            fill_by(commands, calls, buffer, at, of.bytes, of.word);
          },
          {}};
}

}  // namespace backplane::driver::vulkan
