// fallback/host_arguments.h: device tensors lent to the CPU for one operator, and what the operator made of them brought back.
//
// Where the driver has zero_copy, the CPU tensors alias device memory. Otherwise the bytes from the first to the last element of what is
// lent of a storage are staged in pinned memory, and written tensors are copied back. Tensors that share a storage share it on the CPU too,
// so that torch's checks for overlap see what they would see on the CPU. Of a compound tensor (tensor/tensor_parts.h) the parts are lent,
// and the CPU's counterpart is made of theirs.
//
// Small operands share one pinned block, and come by one copy where they lie close to each other (fallback/small_staging.h).
//
// Waits: for the stream once, before the operator runs, if any bytes are lent. What comes back is queued.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fallback/host_memory.h"
#include "fallback/small_staging.h"
#include "tensor/tensor_parts.h"

namespace backplane {

// What the operator does with a tensor. What it writes must reach the device; what it does not read need not be copied from there.
enum class Use : uint8_t { read = 1, write = 2, read_write = 3 };

constexpr Use both(Use a, Use b) { return static_cast<Use>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b)); }
constexpr bool is_read(Use use) { return use != Use::write; }
constexpr bool is_written(Use use) { return use != Use::read; }

// How much of device memory an operator saw, in bytes.
struct Traffic {
  uint64_t to_host = 0;    // copied
  uint64_t to_device = 0;  // copied
  uint64_t shared = 0;     // seen in place: what was lent, and results that were adopted
};

// What of the lent tensors the operator may look at. `layout`: for view operators, which need sizes and identities alone; nothing is
// copied or waited for.
enum class Content : uint8_t { full, layout };

// Used in this order: lend ..., open, host ..., (the operator runs), close, take ...
class HostArguments {
 public:
  // Device tensors of one device. Returns its number.
  size_t lend(const at::Tensor& tensor, Use use);

  // Waits for the current stream of the device, then makes the CPU tensors. Where zero_copy allows, and with `adopts`, because results are
  // to be taken, CPU memory that this thread allocates until the HostArguments is destroyed is device memory.
  void open(c10::DeviceIndex device, Content content, bool adopts);
  const at::Tensor& host(size_t number) const { return lent_[number].host; }
  const at::Tensor& device(size_t number) const { return lent_[number].device; }
  size_t count() const { return lent_.size(); }

  // Gives written tensors their new content, sizes and storage.
  void close();

  // A tensor that the operator returned, as a device tensor: the original where it is one of those lent, an alias where it shares memory
  // with one, and a new one otherwise, with the CPU's strides.
  at::Tensor take(at::Tensor result);

  const Traffic& traffic() const { return traffic_; }

 private:
  struct Lent {
    at::Tensor device;
    at::Tensor host;
    Use use;
    bool is_compound;
    uint32_t index;  // into storages_, or into compounds_
  };
  struct LentStorage {
    c10::Storage device;
    c10::Storage host;
    const void* lent_data;  // where host began; it is elsewhere when the operator has let the storage grow
    uint64_t begin;         // bytes of the device storage that host covers
    uint64_t end;
    Use use;  // of all that is lent of it
    void use_also(Use more) { use = both(use, more); }
    bool has_memory() const { return end == begin || (end <= device.nbytes() && device.data() != nullptr); }
  };
  struct Compound {
    c10::SmallVector<std::pair<at::Tensor, std::optional<size_t>>, 3> parts;  // the number of each that is lent
    std::optional<uint32_t> storage;
  };

  static constexpr uint64_t kSmall = 16 << 10;  // bytes of all operands of a call

  // Over that storage, with the rest of `like`.
  static at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like, int64_t offset);
  std::optional<size_t> find_lent(const at::Tensor& tensor, Use use);
  size_t lend_compound(const at::Tensor& tensor, Use use);
  uint32_t share_span(const at::Tensor& tensor, Use use);
  uint32_t share(const c10::Storage& storage, uint64_t begin, uint64_t end, Use use);
  bool must_wait() const;
  void materialize_written() const;
  void check_memory(const LentStorage& shared) const;
  void open_alias(LentStorage& shared) const;
  static void open_without_memory(LentStorage& shared);
  void open_staged(LentStorage& shared);
  bool is_small();
  void open_small(const c10::Stream& stream);
  at::Tensor make_host(const Lent& lent) const;
  at::Tensor make_host_compound(const Lent& lent) const;
  void adopt_growth(LentStorage& shared);
  void bring_back(const Lent& lent);
  void bring_back_compound(const Lent& lent);
  void bring_back_storage(const LentStorage& shared);
  at::Tensor take_compound(const at::Tensor& result);
  c10::Storage take_storage(c10::Storage host, bool sole_owner);
  c10::Storage adopt(c10::Storage host, bool sole_owner);
  void queue_to_device(const c10::Storage& device, const c10::Storage& host, uint64_t bytes);
  std::optional<size_t> find_host(const c10::StorageImpl* host) const;
  const at::Tensor& owner_of(size_t storage) const;

  c10::DeviceIndex device_ = -1;
  bool aliases_ = false;  // the CPU tensors lie in device memory
  Traffic traffic_;
  std::optional<SmallStaging> small_;  // outlives what is lent of it
  c10::SmallVector<Lent, 6> lent_;
  c10::SmallVector<LentStorage, 6> storages_;
  std::vector<Compound> compounds_;
  std::unordered_map<const void*, size_t> known_;  // tensors and storages lent so far, once they are too many to look through
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;  // host, device: results may share a storage with each other
  std::optional<DeviceBackedHostMemory> host_memory_;
};

}  // namespace backplane
