// distributed/arguments.h: checks of a call's tensors, and their errors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "runtime/device.h"

namespace backplane::distributed {

// The name of a collective in the profiler, "mydeviceccl:all_reduce", and in errors, "all_reduce".
#define BACKPLANE_TITLE(name) BACKPLANE_DEVICE_NAME "ccl:" name
inline const char* name_in(const char* title) { return title + sizeof(BACKPLANE_DEVICE_NAME "ccl:") - 1; }

// All throw c10::ValueError.
const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* name);
// The tensors of all ranks.
const std::vector<at::Tensor>& of_ranks(const std::vector<std::vector<at::Tensor>>& lists, int ranks, const char* name);
// The tensors that only the root passes. `which`: "outputs".
std::vector<at::Tensor> of_root(const std::vector<std::vector<at::Tensor>>& lists, int root, int rank, int ranks, const char* name,
                                const char* which);
int check_rank(int64_t rank, int ranks, const char* name);                                 // returns it
void check_device(const at::Tensor& tensor, const char* name);                             // on this device type
void check_on(const at::Tensor& tensor, c10::Device device, const char* name);             // on that device, and dense
void check_bound(c10::Device device, std::optional<c10::Device> bound, const char* name);  // on the group's device_id, if any
void check_written(const at::Tensor& tensor, const char* name);                            // without overlapping elements
void check_dtype(const at::Tensor& output, const at::Tensor& input, const char* name);
void check_size(int64_t elements, int64_t expected, const char* name, const char* what);
// The bytes for each rank; `splits` counts rows. Empty: all ranks get the same.
std::vector<int64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks, const char* which);
// A rank may send to itself only in a batch, which contains both calls.
void check_peer(int peer, int rank, bool is_batched, const char* name);

}  // namespace backplane::distributed
