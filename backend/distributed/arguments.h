// distributed/arguments.h: what a group asks of the tensors of a call, and how they name it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "runtime/device.h"

namespace backplane::distributed {

// What the profiler shows of a collective, "mydeviceccl:all_reduce", and its name in errors, "all_reduce".
#define BACKPLANE_TITLE(name) BACKPLANE_DEVICE_NAME "ccl:" name
inline const char* name_in(const char* title) { return title + sizeof(BACKPLANE_DEVICE_NAME "ccl:") - 1; }

// All throw c10::ValueError.
const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* name);
// The tensors of all ranks.
const std::vector<at::Tensor>& of_ranks(const std::vector<std::vector<at::Tensor>>& lists, int ranks, const char* name);
// Those that the root alone has; `which`: "outputs".
std::vector<at::Tensor> of_root(const std::vector<std::vector<at::Tensor>>& lists, int root, int rank, int ranks, const char* name,
                                const char* which);
int check_rank(int64_t rank, int ranks, const char* name);                                 // gives it
void check_device(const at::Tensor& tensor, const char* name);                             // is one of this device type's
void check_on(const at::Tensor& tensor, c10::Device device, const char* name);             // is on that one, and dense
void check_bound(c10::Device device, std::optional<c10::Device> bound, const char* name);  // is the group's, if it has one
void check_written(const at::Tensor& tensor, const char* name);                            // has a place for each element
void check_dtype(const at::Tensor& output, const at::Tensor& input, const char* name);
void check_size(int64_t elements, int64_t expected, const char* name, const char* what);
// In bytes; `splits` counts rows, and where it is empty all ranks get the same.
std::vector<int64_t> split_bytes(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks, const char* which);
// To itself a rank sends in a batch alone, which has both ends.
void check_peer(int peer, int rank, bool is_batched, const char* name);

}  // namespace backplane::distributed
