// distributed/host_copy.h: a device tensor for the network: on the host, flat, in the order of its elements, so that strides may differ by
// rank. With zero-copy, a contiguous tensor is not copied.
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/reduction.h"

namespace backplane::distributed {

// Whether the network overwrites the input.
enum class Given { kept, overwritten };

// Not thread safe; for one call. The copies are queued on the current stream of the tensor's device.
class HostCopy {
 public:
  // The network reads `from` and writes `to`, which have the same sizes and dtype; one of them may be undefined, and both may be the same
  // tensor. `prepare`: computes the network's input from `from` when it is copied.
  HostCopy(at::Tensor from, at::Tensor to, Given given = Given::kept, Prepare prepare = {});

  void copy_to_host();
  void copy_from_host();

  const at::Tensor& host() const { return host_; }  // one dimension, contiguous, of the tensor's dtype
  at::Tensor bytes() const { return host_.view(at::kByte); }
  bool is_alias() const { return is_alias_; }
  bool is_read() const { return from_.defined(); }
  bool is_written() const { return to_.defined(); }
  const at::Tensor& tensor() const { return to_.defined() ? to_ : from_; }
  const at::Tensor& from() const { return from_; }

 private:
  at::Tensor from_, to_, host_;
  Prepare prepare_;
  bool is_alias_;
};

}  // namespace backplane::distributed
