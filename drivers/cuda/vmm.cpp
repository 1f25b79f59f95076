// drivers/cuda/vmm.cpp: reservations and mappings.
#include "vmm.h"

#include <iterator>
#include <string>
#include <vector>

namespace backplane::driver::cuda {
namespace {

template <class Map>
typename Map::const_iterator entry_of(const Map& map, uint64_t address) {
  const auto next = map.upper_bound(address);
  return next == map.begin() ? map.end() : std::prev(next);
}

}  // namespace

Vmm::~Vmm() {
  for (const auto& [address, mapping] : mapped_) drop(address, mapping);
  for (const auto& [address, bytes] : reserved_) cuda_.cuMemAddressFree(address, bytes);
}

CUmemAllocationProp Vmm::property() const {
  CUmemAllocationProp out{};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_.ordinal()};
  return out;
}

uint64_t Vmm::granularity() {
  if (const uint64_t known = unit_.load(std::memory_order_relaxed)) return known;
  if (!device_.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    throw Error(BP_UNSUPPORTED, "vmm: device " + std::to_string(device_.ordinal()) + " has no virtual memory management");
  }
  const CUmemAllocationProp prop = property();
  size_t unit = 0;
  cuda_.check(cuda_.cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity");
  unit_.store(unit, std::memory_order_relaxed);
  return unit;
}

uint64_t Vmm::reserve(uint64_t bytes) {
  const uint64_t unit = granularity();
  if (bytes == 0 || bytes % unit != 0) {
    throw Error(BP_INVALID_ARGUMENT, "vmm.reserve: bytes must be a multiple of " + std::to_string(unit));
  }
  CUdeviceptr address = 0;
  device_.check(cuda_.cuMemAddressReserve(&address, bytes, unit, 0, 0), "cuMemAddressReserve");
  const std::lock_guard<std::mutex> lock(mutex_);
  reserved_.emplace(address, bytes);
  any_.store(true, std::memory_order_release);
  return address;
}

uint64_t Vmm::reservation_of(uint64_t address, uint64_t bytes, const char* what) const {
  const auto found = entry_of(reserved_, address);
  const uint64_t unit = unit_.load(std::memory_order_relaxed);
  if (unit == 0 || found == reserved_.end() || bytes == 0 || (address | bytes) % unit != 0 || bytes > found->second ||
      address - found->first > found->second - bytes) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: [0x%llx, +%llu) is no part of a reservation of device %d, in multiples of %llu", what,
                                            wide(address), wide(bytes), device_.ordinal(), wide(unit)));
  }
  return found->first;
}

void Vmm::release(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto inside = mapped_.lower_bound(address);
  if (reservation_of(address, bytes, "vmm.release") != address || reserved_.at(address) != bytes ||
      (inside != mapped_.end() && inside->first < address + bytes)) {
    throw Error(BP_INVALID_ARGUMENT, "vmm.release: not the whole of a reservation, or some of it is mapped");
  }
  reserved_.erase(address);
  any_.store(!reserved_.empty(), std::memory_order_release);
  device_.note(cuda_.cuMemAddressFree(address, bytes));
}

void Vmm::map(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reservation_of(address, bytes, "vmm.map");
  const auto before = entry_of(mapped_, address);
  const auto next = mapped_.lower_bound(address);
  if ((before != mapped_.end() && before->first + before->second.bytes > address) ||
      (next != mapped_.end() && next->first < address + bytes)) {
    throw Error(BP_INVALID_ARGUMENT, "vmm.map: some of the range is mapped already");
  }
  const CUmemAllocationProp prop = property();
  CUmemGenericAllocationHandle memory = 0;
  device_.check(cuda_.cuMemCreate(&memory, bytes, &prop, 0), "cuMemCreate");
  std::vector<CUmemAccessDesc> access;
  access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, device_.ordinal()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  for (int32_t peer : peers_) access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const auto undo = [&](CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    cuda_.cuMemRelease(memory);
    device_.check(result, call);
  };
  undo(cuda_.cuMemMap(address, bytes, 0, memory, 0), "cuMemMap");
  const CUresult result = cuda_.cuMemSetAccess(address, bytes, access.data(), access.size());
  if (result != CUDA_SUCCESS) cuda_.cuMemUnmap(address, bytes);
  undo(result, "cuMemSetAccess");
  mapped_.emplace(address, Mapping{bytes, memory});
}

void Vmm::drop(uint64_t address, const Mapping& mapping) {
  device_.note(cuda_.cuMemUnmap(address, mapping.bytes));
  device_.note(cuda_.cuMemRelease(mapping.memory));
}

void Vmm::unmap(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = mapped_.find(address);
  if (found == mapped_.end() || found->second.bytes != bytes) {
    throw Error(BP_INVALID_ARGUMENT, format("vmm.unmap: [0x%llx, +%llu) is not the range of one map of device %d", wide(address),
                                            wide(bytes), device_.ordinal()));
  }
  drop(address, found->second);
  mapped_.erase(found);
}

void Vmm::give_access(const Device& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!peers_.insert(peer.ordinal()).second) return;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer.ordinal()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (const auto& [address, mapping] : mapped_) {
    device_.check(cuda_.cuMemSetAccess(address, mapping.bytes, &access, 1), "cuMemSetAccess");
  }
}

std::optional<AddressPlace<int>> Vmm::find(uint64_t address) const {
  if (!any_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  auto first = entry_of(mapped_, address);
  if (first == mapped_.end() || address - first->first >= first->second.bytes) return std::nullopt;
  const auto touch = [](const auto& a, const auto& b) { return a->first + a->second.bytes == b->first; };
  auto last = first;
  for (auto next = std::next(last); next != mapped_.end() && touch(last, next); ++next) last = next;
  while (first != mapped_.begin() && touch(std::prev(first), first)) --first;
  // Reservations may lie side by side.
  const auto whole = entry_of(reserved_, address);
  const uint64_t begin = std::max(first->first, whole->first);
  const uint64_t end = std::min(last->first + last->second.bytes, whole->first + whole->second);
  return AddressPlace<int>{begin, end - begin, address - begin, 0};
}

void Vmm::check(uint64_t address, uint64_t bytes, const char* what) const {
  if (!any_.load(std::memory_order_acquire) || bytes == 0) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entry_of(reserved_, address);
    if (found == reserved_.end() || address - found->first >= found->second) return;
  }
  const auto place = find(address);
  if (!place || bytes > place->bytes - place->offset) {
    throw Error(BP_INVALID_ARGUMENT, format("%s: [0x%llx, +%llu) is reserved on device %d, and has no memory", what, wide(address),
                                            wide(bytes), device_.ordinal()));
  }
}

}  // namespace backplane::driver::cuda
