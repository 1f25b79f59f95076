// fallback/host_arguments.h: device tensors as arguments of one operator on the CPU, and its results on the device.
//
// Where the driver has zero_copy, the CPU tensors alias device memory. Otherwise the bytes of a storage from the first to the last element
// of its arguments are staged in pinned memory, and written tensors are copied back. Tensors that share a storage also share it on the CPU,
// so that torch's checks for overlap give the CPU's results. The parts of a compound tensor (tensor/tensor_parts.h) are arguments of their
// own, and the CPU's counterpart is built from them.
//
// Small operands share one pinned block, and are copied together where they are close to each other (fallback/small_staging.h).
//
// Waits: for the stream once, before the operator runs, if an argument has bytes. Copies back are queued.
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

// How the operator uses a tensor. What it writes is copied back to the device; what it does not read need not be copied from there.
enum class Use : uint8_t { read = 1, write = 2, read_write = 3 };

constexpr Use both(Use a, Use b) { return static_cast<Use>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b)); }
constexpr bool is_read(Use use) { return use != Use::write; }
constexpr bool is_written(Use use) { return use != Use::read; }

// How much device memory an operator used, in bytes.
struct Traffic {
  uint64_t to_host = 0;    // copied
  uint64_t to_device = 0;  // copied
  uint64_t shared = 0;     // used in place: arguments, and results that were adopted
};

// How much of the arguments the operator may access. `layout`: for view operators, which only need sizes and identities; nothing is copied
// or waited for.
enum class Content : uint8_t { full, layout };

// Use in this order: add ..., open, host ..., (the operator runs), close, take ...
class HostArguments {
 public:
  // Adds a device tensor; all must be on one device. Returns its number.
  size_t add(const at::Tensor& tensor, Use use);

  // Waits for the current stream of the device, then creates the CPU tensors. Where zero_copy allows, and with `adopts`, because results
  // are taken later, CPU memory that this thread allocates until the HostArguments is destroyed is device memory.
  void open(c10::DeviceIndex device, Content content, bool adopts);
  const at::Tensor& host(size_t number) const { return arguments_[number].host; }
  const at::Tensor& device(size_t number) const { return arguments_[number].device; }
  size_t count() const { return arguments_.size(); }

  // Updates content, sizes and storage of written tensors.
  void close();

  // A tensor that the operator returned, as a device tensor: the argument itself if it is one, an alias if it shares memory with one, and
  // otherwise a new one, with the CPU's strides.
  at::Tensor take(at::Tensor result);

  const Traffic& traffic() const { return traffic_; }

 private:
  struct Argument {
    at::Tensor device;
    at::Tensor host;
    Use use;
    bool is_compound;
    uint32_t index;  // into storages_, or into compounds_
  };
  struct ArgumentStorage {
    c10::Storage device;
    c10::Storage host;
    const void* host_data;  // where host began; it is elsewhere when the operator has let the storage grow
    uint64_t begin;         // bytes of the device storage that host covers
    uint64_t end;
    Use use;  // the union over all arguments in it
    void use_also(Use more) { use = both(use, more); }
    bool has_memory() const { return end == begin || (end <= device.nbytes() && device.data() != nullptr); }
  };
  struct Compound {
    c10::SmallVector<std::pair<at::Tensor, std::optional<size_t>>, 3> parts;  // with the numbers of those that are arguments
    std::optional<uint32_t> storage;
  };

  static constexpr uint64_t kSmall = 16 << 10;  // bytes of all operands of a call

  // A tensor over that storage, with the rest of `like`.
  static at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like, int64_t offset);
  std::optional<size_t> find_argument(const at::Tensor& tensor, Use use);
  size_t add_compound(const at::Tensor& tensor, Use use);
  uint32_t share_span(const at::Tensor& tensor, Use use);
  uint32_t share(const c10::Storage& storage, uint64_t begin, uint64_t end, Use use);
  bool must_wait() const;
  void materialize_written() const;
  void check_memory(const ArgumentStorage& shared) const;
  void open_alias(ArgumentStorage& shared) const;
  static void open_without_memory(ArgumentStorage& shared);
  void open_staged(ArgumentStorage& shared);
  bool is_small();
  void open_small(const c10::Stream& stream);
  at::Tensor make_host(const Argument& argument) const;
  at::Tensor make_host_compound(const Argument& argument) const;
  void adopt_growth(ArgumentStorage& shared);
  void copy_back(const Argument& argument);
  void copy_back_compound(const Argument& argument);
  void copy_back_storage(const ArgumentStorage& shared);
  at::Tensor take_compound(const at::Tensor& result);
  c10::Storage take_storage(c10::Storage host, bool sole_owner);
  c10::Storage adopt(c10::Storage host, bool sole_owner);
  void queue_to_device(const c10::Storage& device, const c10::Storage& host, uint64_t bytes);
  std::optional<size_t> find_host(const c10::StorageImpl* host) const;
  const at::Tensor& owner_of(size_t storage) const;

  c10::DeviceIndex device_ = -1;
  bool aliases_ = false;  // the CPU tensors alias device memory
  Traffic traffic_;
  std::optional<SmallStaging> small_;  // outlives the tensors over it
  c10::SmallVector<Argument, 6> arguments_;
  c10::SmallVector<ArgumentStorage, 6> storages_;
  std::vector<Compound> compounds_;
  std::unordered_map<const void*, size_t> known_;  // tensors and storages added so far, once they are too many for a linear search
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;  // host, device: results may share a storage with each other
  std::optional<DeviceBackedHostMemory> host_memory_;
};

}  // namespace backplane
