// distributed/recording.h: what profilers and execution traces read about a collective: torch's event "record_param_comms", as NCCL's group
// writes it.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace backplane::distributed {

// One event, during its lifetime. Without a profiler it costs some nanoseconds.
class Recording {
 public:
  // A call of `group`: its kind, input and results; an undefined tensor has no elements.
  Recording(const c10d::Backend& group, const c10d::Backend::Options& options, c10d::OpType type, uint64_t sequence,
            const at::Tensor& input, const std::vector<at::Tensor>& results);
  // A rank's wait for a call.
  Recording(int rank, uint64_t sequence);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  struct Call;
  void begin(const Call& call);

  std::optional<c10::DebugInfoGuard> info_;  // read at the end of the event
  std::optional<at::RecordFunction> event_;
};

}  // namespace backplane::distributed
