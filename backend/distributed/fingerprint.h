// distributed/fingerprint.h: the fingerprint of a call, which ranks compare before Gloo moves data. Gloo itself accepts a message that is
// shorter than its buffer, and terminates the process that receives a longer one.
//
// Note [What a comparison costs]: one additional reduction of a single number per collective, in the order of the group's calls, while the
// copies to the host run. The number is a hash of the call. All hashes are equal if their sum is the own hash times the number of ranks;
// only otherwise the fields are exchanged, to report what differs, because Gloo takes several times as long for a dozen numbers as for one.
// Comparing only a call's first occurrence is not possible: ranks that differ do not agree about what is the first. all_to_all also
// compares what each pair of ranks sends. Messages carry their size themselves (staged_calls.h), as no other rank takes part.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace backplane::distributed {

// For one collective: its calls are added, then it is compared once. One thread at a time.
class Fingerprint {
 public:
  explicit Fingerprint(c10d::OpType type);

  // `root`, `op`: -1 if there is none. `elements`: what must be the same on all ranks.
  void add(c10::ScalarType dtype, int64_t elements, int root = -1, int op = -1);
  // For all_to_all: bytes per rank.
  void add_parts(const std::vector<int64_t>& received, const std::vector<int64_t>& sent);

  void start(c10d::Backend& gloo, std::chrono::milliseconds timeout);
  // Waits at most until `deadline`; throws c10::Error that says what differs.
  void check(c10d::Backend& gloo, std::chrono::steady_clock::time_point deadline);

 private:
  int64_t hash() const;
  void check_parts(c10d::Backend& gloo, std::chrono::milliseconds timeout) const;
  std::string differences(c10d::Backend& gloo, std::chrono::milliseconds timeout) const;

  enum Field { kType, kDtype, kOp, kRoot, kElements, kSizes, kFields };

  std::array<int64_t, kFields> mine_{};
  std::vector<int64_t> received_, sent_;
  at::Tensor sum_;  // of the hashes of all ranks
  c10::intrusive_ptr<c10d::Work> comparison_;
};

}  // namespace backplane::distributed
