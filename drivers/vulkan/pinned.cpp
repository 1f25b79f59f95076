// drivers/vulkan/pinned.cpp: maps pages, and imports them.
#include "pinned.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "device.h"

namespace backplane::driver::vulkan {

void* Pinned::alloc(uint64_t bytes) {
  const uint64_t size = up(std::max<uint64_t>(bytes, 1));
  const uint64_t span = page_ > 4096 ? size + page_ : size;  // mmap aligns to the system's page
  const auto refuse = [&] { throw Error(BP_OUT_OF_MEMORY, format("host_alloc: the host has no %llu bytes", wide(bytes))); };
  if (size < bytes || span < size) refuse();
  void* const all = ::mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) refuse();
  const uint64_t begin = reinterpret_cast<uint64_t>(all), at = up(begin);
  if (at != begin) ::munmap(all, at - begin);
  if (begin + span != at + size) ::munmap(reinterpret_cast<void*>(at + size), begin + span - at - size);
  try {
    table_.insert(at, bytes, std::shared_ptr<HostBlock>(new HostBlock{true}));
  } catch (...) {
    ::munmap(reinterpret_cast<void*>(at), size);
    throw;
  }
  return reinterpret_cast<void*>(at);
}

void Pinned::add(void* memory, uint64_t bytes) {
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  if (base == 0 || bytes == 0 || base + bytes < base) throw Error(BP_INVALID_ARGUMENT, "host_register: an address and a size are needed");
  if (!table_.try_insert(base, bytes, std::shared_ptr<HostBlock>(new HostBlock{false}))) {
    throw Error(BP_INVALID_ARGUMENT, "host_register: part of the range is pinned already");
  }
}

void Pinned::drop(void* memory, bool own, const char* otherwise) {
  const auto found = table_.find(reinterpret_cast<uint64_t>(memory));
  if (!found || found->offset != 0 || found->handle->own != own || !table_.remove(found->base)) throw Error(BP_INVALID_ARGUMENT, otherwise);
  {
    std::lock_guard lock(found->handle->mutex);
    found->handle->imports.clear();
  }
  unmap(*found);
}

void Pinned::unmap(const Found& block) const {
  if (block.handle->own) ::munmap(reinterpret_cast<void*>(block.base), up(std::max<uint64_t>(block.bytes, 1)));
}

std::optional<Pinned::Piece> Pinned::piece(Device& device, uint64_t address, uint64_t bytes) {
  if (device.info().import_alignment == 0 || !table_.contains(address, bytes)) return std::nullopt;
  const auto found = table_.find(address);
  if (!found) return std::nullopt;
  const uint64_t begin = found->base & ~(page_ - 1);
  HostBlock& block = *found->handle;
  std::lock_guard lock(block.mutex);
  auto known = block.imports.find(&device);
  if (known == block.imports.end()) {
    std::unique_ptr<Buffer> made;
    try {
      const uint64_t size = up(found->base + std::max<uint64_t>(found->bytes, 1) - begin);
      made = std::make_unique<Buffer>(device.calls(), device.get(), reinterpret_cast<void*>(begin), size);
    } catch (const Error& error) {
      if (error.status() == BP_DEVICE_LOST) throw;  // else the host copies: memory of a file, for example, or more than the device takes
    }
    known = block.imports.emplace(&device, std::move(made)).first;
  }
  if (!known->second) return std::nullopt;
  return Piece{known->second->get(), address - begin};
}

void Pinned::forget_devices() {
  table_.each([](const Found& block) { block.handle->imports.clear(); });
}

Pinned::~Pinned() {
  table_.each([this](const Found& block) { unmap(block); });
}

}  // namespace backplane::driver::vulkan
