// modules/key.h: kernels by the pieces of their texts: a function is found again without building its text, and without a lock.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "modules/unit.h"

namespace backplane {

// The pieces of a text, in order. Equal keys make equal texts.
class KernelKey {
 public:
  struct Piece {
    const void* text;  // of static storage, or none
    uint64_t what;
  };

  KernelKey() = default;
  KernelKey(const KernelKey&) = delete;
  KernelKey& operator=(const KernelKey&) = delete;

  void add(const void* text, uint64_t what);
  void add_bytes(const void* bytes, size_t size);  // as pieces, with zeros behind
  size_t size() const { return size_; }
  const Piece& operator[](size_t i) const { return pieces_[i]; }

  // The device's function of this key. make: its source, where none was looked for yet. NULL as of find_function.
  const Function* find(c10::DeviceIndex device, c10::function_ref<KernelSource()> make) const;

 private:
  static constexpr size_t kFew = 64;  // as most have
  void grow();

  size_t size_ = 0, capacity_ = kFew;
  uint64_t hash_ = 0;
  Piece* pieces_ = few_;
  std::unique_ptr<Piece[]> many_;
  Piece few_[kFew];
};

}  // namespace backplane
