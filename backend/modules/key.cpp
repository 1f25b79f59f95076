// modules/key.cpp: one table of all functions that were requested.
#include "modules/key.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace backplane {
namespace key_impl {
namespace {

// Never freed: a reader may be at it.
struct Found {
  uint64_t hash;
  c10::DeviceIndex device;
  size_t size;
  std::unique_ptr<KernelKey::Piece[]> pieces;
  const Function* function;
  const Found* next;
};
std::array<std::atomic<const Found*>, 1024> found{};  // by 10 bits of the hash

bool are_equal(const KernelKey::Piece* a, const KernelKey::Piece* b, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (a[i].text != b[i].text || a[i].what != b[i].what) return false;
  }
  return true;
}

}  // namespace
}  // namespace key_impl

void KernelKey::add(const void* text, uint64_t what) {
  if (C10_UNLIKELY(size_ == capacity_)) grow();
  pieces_[size_++] = {text, what};
  hash_ += ((reinterpret_cast<uint64_t>(text) + size_) ^ (what << 32 | what >> 32)) * 0x9e3779b97f4a7c15u;
}

void KernelKey::add_bytes(const void* bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(Piece)) {
    uint64_t words[2]{};
    std::memcpy(words, static_cast<const char*>(bytes) + at, std::min(sizeof words, size - at));
    add(reinterpret_cast<const void*>(words[0]), words[1]);
  }
}

void KernelKey::grow() {
  auto more = std::make_unique<Piece[]>(2 * capacity_);
  std::copy_n(pieces_, size_, more.get());
  capacity_ *= 2;
  many_ = std::move(more);
  pieces_ = many_.get();
}

const Function* KernelKey::find(c10::DeviceIndex device, c10::function_ref<KernelSource()> make) const {
  using key_impl::Found;
  std::atomic<const Found*>& head = key_impl::found[hash_ >> 54];
  for (const Found* one = head.load(std::memory_order_acquire); one != nullptr; one = one->next) {
    if (one->hash == hash_ && one->device == device && one->size == size_ && key_impl::are_equal(one->pieces.get(), pieces_, size_)) {
      return one->function;
    }
  }
  bool later = false;
  const Function* const function = find_function(device, make(), &later);
  if (later) return nullptr;
  auto* const mine = new Found{hash_, device, size_, std::make_unique<Piece[]>(size_), function, head.load(std::memory_order_relaxed)};
  std::copy_n(pieces_, size_, mine->pieces.get());
  while (!head.compare_exchange_weak(mine->next, mine, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return function;
}

}  // namespace backplane
