// distributed/arguments.cpp: the checks of arguments.h.
#include "distributed/arguments.h"

#include <ATen/MemoryOverlap.h>

#include <numeric>

namespace backplane::distributed {

const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* name) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, " takes one tensor, not ", tensors.size(), ": a rank has one device");
  return tensors[0];
}

const std::vector<at::Tensor>& of_ranks(const std::vector<std::vector<at::Tensor>>& lists, int ranks, const char* name) {
  TORCH_CHECK_VALUE(lists.size() == 1, name, " takes one list of tensors, not ", lists.size(), ": a rank has one device");
  TORCH_CHECK_VALUE(lists[0].size() == static_cast<size_t>(ranks), name, " takes ", ranks, " tensors, one for each rank, not ",
                    lists[0].size());
  return lists[0];
}

std::vector<at::Tensor> of_root(const std::vector<std::vector<at::Tensor>>& lists, int root, int rank, int ranks, const char* name,
                                const char* which) {
  if (rank == root) return of_ranks(lists, ranks, name);
  TORCH_CHECK_VALUE(lists.empty(), name, ": only rank ", root, ", the root, has ", which);
  return {};
}

int check_rank(int64_t rank, int ranks, const char* name) {
  TORCH_CHECK_VALUE(rank >= 0 && rank < ranks, name, ": there is no rank ", rank, " in a group of ", ranks);
  return static_cast<int>(rank);
}

void check_device(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_VALUE(tensor.device().type() == kDevice, name, ": a tensor is on ", tensor.device(),
                    "; this process group supports tensors on ", BACKPLANE_DEVICE_NAME);
}

void check_on(const at::Tensor& tensor, c10::Device device, const char* name) {
  TORCH_CHECK_VALUE(tensor.device() == device, name, ": a tensor is on ", tensor.device(), ", the call is on ", device);
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, name, " takes dense tensors, not ", tensor.layout(),
                    ": communicate indices and values");
}

void check_bound(c10::Device device, std::optional<c10::Device> bound, const char* name) {
  TORCH_CHECK_VALUE(!bound || device == *bound, name, ": the call is on ", device, ", and the process group is bound by its device_id to ",
                    *bound, ": put the tensors there, or make a group without device_id");
}

void check_written(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, name,
                    ": a written tensor has overlapping elements, as expand() makes them; pass a clone()");
}

void check_dtype(const at::Tensor& output, const at::Tensor& input, const char* name) {
  TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(), name, ": the dtype of an output is ", output.scalar_type(),
                    ", that of the input ", input.scalar_type());
}

void check_size(int64_t elements, int64_t expected, const char* name, const char* what) {
  TORCH_CHECK_VALUE(elements == expected, name, ": ", what, " has ", elements, " elements; ", expected, " are required");
}

std::vector<int64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks, const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0), bytes = static_cast<int64_t>(tensor.nbytes());
  std::vector<int64_t> result = splits;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % ranks == 0, "all_to_all_single: the ", which, " has ", rows, " rows, which cannot be divided evenly among ",
                      ranks, " ranks; pass its split sizes");
    result.assign(static_cast<size_t>(ranks), rows / ranks);
  }
  TORCH_CHECK_VALUE(result.size() == static_cast<size_t>(ranks) && std::accumulate(result.begin(), result.end(), int64_t{0}) == rows,
                    "all_to_all_single: the split sizes of the ", which, " are ", c10::IntArrayRef(result), ", for ", ranks, " ranks and ",
                    rows, " rows");
  for (int64_t& size : result) size *= rows == 0 ? 0 : bytes / rows;
  return result;
}

void check_peer(int peer, int rank, bool is_batched, const char* name) {
  TORCH_CHECK_VALUE(peer != rank || is_batched, name, ": rank ", peer,
                    " is the caller itself: put send and recv into one call of torch.distributed.batch_isend_irecv, or copy the tensor");
}

}  // namespace backplane::distributed
