// distributed/calls.h: what a collective of torch.distributed is made of, whichever engine carries it out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace backplane::distributed {

// The calls of one collective, which are over together. Each gives false where the engine has no such call, after which none of them is
// made; throws c10::ValueError for tensors of wrong sizes, dtypes and devices. Ranks and numbers of tensors are right (device_group.h).
class Calls {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Bytes = std::vector<int64_t>;  // one number for each rank

  Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  virtual ~Calls() = default;

  virtual bool all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
  // `to`: where the root gets the result; others' is left alone.
  virtual bool reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) = 0;
  virtual bool reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) = 0;
  virtual bool broadcast(const at::Tensor& tensor, int root) = 0;
  virtual bool all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual bool all_gather(const Tensors& outputs, const at::Tensor& input) = 0;         // each rank's size is its own
  virtual bool gather(const Tensors& outputs, const at::Tensor& input, int root) = 0;   // outputs: the root's alone
  virtual bool scatter(const at::Tensor& output, const Tensors& inputs, int root) = 0;  // inputs: the root's alone
  // `is_even`: all parts of all ranks are of one size, as none gave sizes.
  virtual bool all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool is_even) = 0;
  virtual bool all_to_all(const Tensors& outputs, const Tensors& inputs) = 0;
  virtual bool send(const at::Tensor& tensor, int destination, int tag) = 0;
  virtual bool recv(const at::Tensor& tensor, int source, int tag) = 0;
  virtual bool recv_from_any(const at::Tensor& tensor, int tag) = 0;
  virtual bool barrier() = 0;
};

}  // namespace backplane::distributed
