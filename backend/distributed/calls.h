// distributed/calls.h: the calls that make up a collective of torch.distributed, for any transport.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "distributed/group_work.h"

namespace backplane::distributed {

// One collective, as requested by the caller.
struct Request {
  c10d::OpType type;
  const char* title;  // BACKPLANE_TITLE("all_reduce")
  c10::Device device;
  std::chrono::milliseconds timeout;
  at::Tensor input;         // a tensor that it reads; undefined if there is none
  bool is_batched = false;  // between startCoalescing and endCoalescing
};

// The calls of one collective, which complete together. Each returns false if the transport does not support it; then none of them is made.
// Throws c10::ValueError for written tensors with overlapping elements. Ranks, sizes, dtypes, devices and numbers of tensors have been
// checked (process_group.h).
class Calls {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Bytes = std::vector<int64_t>;  // one number per rank

  Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  virtual ~Calls() = default;

  // Supported by every transport.
  virtual bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
  // `to`: the root's result; other ranks do not write it.
  virtual bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) = 0;
  virtual bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) = 0;
  // `from`: read only by the root; may be `to`.
  virtual bool broadcast(const at::Tensor& from, const at::Tensor& to, int root) = 0;
  virtual bool all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  // `is_even`: all parts of all ranks have one size, because no sizes were given.
  virtual bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) = 0;
  virtual bool send(const at::Tensor& tensor, int destination, int tag) = 0;
  virtual bool recv(const at::Tensor& tensor, int source, int tag) = 0;
  virtual bool recv_from_any(const at::Tensor& tensor, int tag) = 0;

  // Composed of the others, unless the transport overrides them.
  virtual bool all_gather(const Tensors& outputs, const at::Tensor& input);         // sizes may differ by rank
  virtual bool gather(const Tensors& outputs, const at::Tensor& input, int root);   // outputs: only on the root
  virtual bool scatter(const at::Tensor& output, const Tensors& inputs, int root);  // inputs: only on the root
  virtual bool all_to_all(const Tensors& outputs, const Tensors& inputs);
  virtual bool barrier(c10::Device device);

  // Queues the calls in order, as parts of `work`.
  virtual void submit(const c10::intrusive_ptr<GroupWork>& work) = 0;
};

}  // namespace backplane::distributed
