// aten/loan.h: device tensors lent to the CPU for one operator, and what the operator made of them brought back.
//
// Where the driver has zero_copy, the CPU tensors alias device memory. Otherwise the bytes from the first to the last element of what is
// lent of a storage are staged in pinned memory, and written tensors are copied back. Tensors that share a storage share it on the CPU too,
// so that torch's checks for overlap see what they would see on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <unordered_map>

#include "aten/host_memory.h"

namespace backplane {

// Used in this order: lend ..., open, host ..., (the operator runs), close, take ...
class Loan {
 public:
  // Strided device tensors of one device; `written`: what the operator does to it must reach the device. Returns its number.
  size_t lend(const at::Tensor& tensor, bool written);

  // Waits for the current stream of the device, then makes the CPU tensors. Until the Loan is destroyed, CPU memory that this thread
  // allocates is device memory, where zero_copy allows.
  void open(c10::DeviceIndex device);
  const at::Tensor& host(size_t number) const { return lent_[number].host; }

  // Gives written tensors their new content, sizes and storage.
  void close();

  // A tensor that the operator returned, as a device tensor: the original where it is one of those lent, an alias where it shares memory
  // with one, and a new one otherwise, with the CPU's strides.
  at::Tensor take(at::Tensor result);

 private:
  struct Lent {
    at::Tensor device;
    at::Tensor host;
    bool written;
    size_t storage;  // index into storages_
  };
  struct SharedStorage {
    c10::Storage device;
    c10::Storage host;
    const void* lent_data;  // where host began; it is elsewhere when the operator has let the storage grow
    uint64_t begin;         // bytes of the device storage that host covers
    uint64_t end;
  };

  size_t share(const at::Tensor& tensor);
  void open_alias(SharedStorage& shared) const;
  void open_staged(SharedStorage& shared) const;
  at::Tensor make_host(const Lent& lent) const;
  void adopt_growth(SharedStorage& shared);
  void bring_back(const Lent& lent);
  c10::Storage adopt(c10::Storage host, bool sole_owner);
  std::optional<size_t> find_host(const c10::StorageImpl* host) const;

  c10::DeviceIndex device_ = -1;
  bool zero_copy_ = false;
  c10::SmallVector<Lent, 6> lent_;
  c10::SmallVector<SharedStorage, 6> storages_;
  std::unordered_map<const void*, size_t> known_;  // tensors and storages lent so far, once they are too many to look through
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;  // host, device: results may share a storage with each other
  std::optional<DeviceBackedHostMemory> host_memory_;
};

}  // namespace backplane
