// distributed/recording.h: what profilers and execution traces read of a collective: torch's event "record_param_comms", as NCCL's group
// writes it.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace backplane::distributed {

// One event, as long as it lives. Without a profiler it does nothing, and costs some ns.
class Recording {
 public:
  // A call of `group`: its kind, what one rank puts in, and what it gets; an undefined tensor counts no elements. `global_ranks`: of the
  // group's ranks.
  Recording(const c10d::Backend& group, const c10d::Backend::Options& options, c10d::OpType type, uint64_t sequence,
            const at::Tensor& input, const std::vector<at::Tensor>& results);
  // The wait of a rank for a call.
  Recording(int rank, uint64_t sequence);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  struct Call;
  void begin(const Call& call);

  std::optional<c10::DebugInfoGuard> info_;  // which the end of the event reads
  std::optional<at::RecordFunction> event_;
};

}  // namespace backplane::distributed
