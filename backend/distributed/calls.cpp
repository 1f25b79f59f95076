// distributed/calls.cpp: collectives composed of others, for transports without their own.
#include "distributed/calls.h"

#include <ATen/ops/zeros.h>

namespace backplane::distributed {

bool Calls::all_gather(const Tensors& outputs, const at::Tensor& input) {
  for (size_t root = 0; root < outputs.size(); ++root) {
    if (!broadcast(input, outputs[root], static_cast<int>(root))) return false;
  }
  return true;
}

bool Calls::gather(const Tensors& outputs, const at::Tensor& input, int root) {
  if (!send(input, root, 0)) return false;
  for (size_t rank = 0; rank < outputs.size(); ++rank) {
    if (!recv(outputs[rank], static_cast<int>(rank), 0)) return false;
  }
  return true;
}

bool Calls::scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (!send(inputs[rank], static_cast<int>(rank), 0)) return false;
  }
  return recv(output, root, 0);
}

bool Calls::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (!send(inputs[rank], peer, 0) || !recv(outputs[rank], peer, 0)) return false;
  }
  return true;
}

bool Calls::barrier(c10::Device device) {
  return all_reduce(at::zeros({1}, at::TensorOptions().device(device).dtype(at::kFloat)), c10d::ReduceOp::SUM);
}

}  // namespace backplane::distributed
