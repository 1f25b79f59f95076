// distributed/recording.cpp: fills torch's event "record_param_comms".
#include "distributed/recording.h"

#include <algorithm>
#include <array>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <utility>

namespace backplane::distributed {

struct Recording::Call {
  std::string name;
  std::tuple<std::string, std::string> group;  // name and description
  int rank, size, first, stride;               // the global ranks, if they are evenly spaced
  uint64_t sequence;
  std::vector<at::Tensor> inputs, outputs;
};

namespace recording_impl {
namespace {

int64_t elements(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

// The distance between evenly spaced ranks; otherwise 0.
int stride_of(const std::vector<uint64_t>& ranks) {
  const int stride = ranks.size() < 2 ? 1 : static_cast<int>(ranks[1]) - static_cast<int>(ranks[0]);
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (static_cast<int>(ranks[i]) - static_cast<int>(ranks[i - 1]) != stride) return 0;
  }
  return std::max(stride, 0);
}

// "allreduce", the spelling of torch's tools.
std::string name_of(c10d::OpType type) {
  std::string name = c10d::opTypeToString(type);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace
}  // namespace recording_impl

using namespace recording_impl;

Recording::Recording(const c10d::Backend& group, const c10d::Backend::Options& options, c10d::OpType type, uint64_t sequence,
                     const at::Tensor& input, const std::vector<at::Tensor>& results) {
  if (!at::hasCallbacks()) return;
  const std::vector<uint64_t>& ranks = options.global_ranks_in_group;
  begin({name_of(type),
         {options.group_name, group.getGroupDesc()},
         group.getRank(),
         group.getSize(),
         ranks.empty() ? 0 : static_cast<int>(ranks[0]),
         stride_of(ranks),
         sequence,
         input.defined() ? std::vector<at::Tensor>{input} : std::vector<at::Tensor>{},
         results});
}

Recording::Recording(int rank, uint64_t sequence) {
  if (at::hasCallbacks()) begin({"wait", {}, rank, 0, 0, 0, sequence, {}, {}});
}

void Recording::begin(const Call& call) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) return;
  const at::ScalarType dtype = call.inputs.empty() ? at::kByte : call.inputs[0].scalar_type();
  const std::vector<int64_t> splits;
  std::string name = call.name;
  info_.emplace(
      c10::DebugInfoKind::PARAM_COMMS_INFO,
      std::make_shared<torch::ParamCommsDebugInfo>(call.group, call.rank, std::move(name), elements(call.inputs), elements(call.outputs),
                                                   dtype, splits, splits, call.first, call.stride, call.size));
  event_.emplace(std::move(*callbacks));
  if (!event_->needsInputs()) return event_->before(at::kParamCommsCallName);
  const std::array<const c10::IValue, 11> inputs{call.inputs, static_cast<int64_t>(call.sequence),
                                                 call.group,  call.rank,
                                                 call.name,   splits,
                                                 splits,      call.first,
                                                 call.stride, call.size,
                                                 true};
  event_->before(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

}  // namespace backplane::distributed
