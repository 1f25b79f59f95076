// distributed/calls.h: what a collective of torch.distributed is made of, whichever transport carries it out.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "distributed/group_work.h"

namespace backplane::distributed {

// One collective, as the caller asks for it.
struct Request {
  c10d::OpType type;
  const char* title;  // BACKPLANE_TITLE("all_reduce")
  c10::Device device;
  std::chrono::milliseconds timeout;
  at::Tensor input;         // one that it reads; undefined: it has none
  bool is_batched = false;  // between startCoalescing and endCoalescing
};

// The calls of one collective, which are over together. Each gives false where the transport has no such call, after which none of them is
// made; throws c10::ValueError for tensors that are written and have several elements in one place. Ranks, sizes, dtypes, devices and
// numbers of tensors are right (process_group.h).
class Calls {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Bytes = std::vector<int64_t>;  // one number for each rank

  Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  virtual ~Calls() = default;

  // Every transport has these.
  virtual bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
  // `to`: where the root gets the result; others' is left alone.
  virtual bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) = 0;
  virtual bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) = 0;
  // The root's `from`, which others do not read; may be `to`.
  virtual bool broadcast(const at::Tensor& from, const at::Tensor& to, int root) = 0;
  virtual bool all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  // `is_even`: all parts of all ranks are of one size, as none gave sizes.
  virtual bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) = 0;
  virtual bool send(const at::Tensor& tensor, int destination, int tag) = 0;
  virtual bool recv(const at::Tensor& tensor, int source, int tag) = 0;
  virtual bool recv_from_any(const at::Tensor& tensor, int tag) = 0;

  // These are composed of the others, unless the transport has its own.
  virtual bool all_gather(const Tensors& outputs, const at::Tensor& input);         // each rank's size is its own
  virtual bool gather(const Tensors& outputs, const at::Tensor& input, int root);   // outputs: the root's alone
  virtual bool scatter(const at::Tensor& output, const Tensors& inputs, int root);  // inputs: the root's alone
  virtual bool all_to_all(const Tensors& outputs, const Tensors& inputs);
  virtual bool barrier(c10::Device device);

  // Queues them, in their order, as parts of `work`.
  virtual void submit(const c10::intrusive_ptr<GroupWork>& work) = 0;
};

}  // namespace backplane::distributed
