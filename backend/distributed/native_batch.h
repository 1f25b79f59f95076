// distributed/native_batch.h: the calls of bp.collective that one collective is, until they are queued together.
#pragma once

#include <functional>
#include <vector>

#include "distributed/arguments.h"
#include "distributed/native_group.h"
#include "runtime/driver.h"

namespace backplane::distributed {

// How the driver makes a reduction of such a tensor. Throws c10::ValueError for what has no meaning (check_reduction).
struct NativeReduction {
  NativeReduction(const c10d::ReduceOp& asked, const at::Tensor& tensor, const bp_collective_properties& properties);

  uint64_t dtype;  // BP_DTYPE_*; 0: it does not
  int32_t op;      // BP_REDUCE_*
  bool divides;    // by the number of ranks, behind it
};

class NativeGroup::Batch {
 public:
  Batch(c10::Device device, std::chrono::milliseconds timeout, const char* name) : device(device), timeout(timeout), name(name) {}

  // What the driver reads: the tensor, or a contiguous copy.
  at::Tensor reads(const at::Tensor& tensor);
  // What it writes; what is not contiguous is copied to its place afterwards. `finish`: on what was written, before that.
  at::Tensor writes(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& finish = {});

  // slot: of bp_collective, called as slot(self, comm, stream, arguments...).
  template <auto Slot, class... Arguments>
  void call(Arguments... arguments) {
    calls.push_back([=, device = device](bp_comm* comm, bp_stream* stream) {
      check_collective(detail::invoke<Slot>(open_driver(), comm, stream, arguments...), detail::slot_name<Slot>().c_str(), device);
    });
  }

  void add(const Batch& other);

  c10::intrusive_ptr<NativeWork> work;  // once the calls are known
  c10::Device device;
  std::chrono::milliseconds timeout;
  const char* name;
  Tensors kept;
  std::vector<NativeEngine::Queue> calls;
  std::vector<std::function<void()>> after;
};

}  // namespace backplane::distributed
