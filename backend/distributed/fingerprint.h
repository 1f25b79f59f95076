// distributed/fingerprint.h: of a call: ranks compare it before Gloo moves data. Gloo itself takes a message that is shorter than its
// buffer for a right one, and ends the process of who gets a longer one.
//
// Note [What a comparison costs]: one reduction more for each collective, of a single number, in its place in the order of the group's
// calls, while the copies to the host are still going on. The number is a hash of the call; all ranks make the same one if the sum of all
// is as many times the own. Only if they do not is more exchanged, to say what differs: Gloo needs several times as long for a dozen
// numbers as for one. To compare a call's first time alone would not do: whether it is the first is what ranks that differ do not agree
// about. all_to_all then compares what each pair of ranks sends, too; messages bring their size themselves (staged_calls.h), as no other
// rank takes part.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace backplane::distributed {

// Of one collective; its calls are added, then it is compared once. One thread at a time.
class Fingerprint {
 public:
  explicit Fingerprint(c10d::OpType type);

  // `root`, `op`: -1 where there is none. Elements: what must be the same on all ranks.
  void add(c10::ScalarType dtype, int64_t elements, int root = -1, int op = -1);
  // Of all_to_all, in bytes, one number for each rank.
  void add_parts(const std::vector<int64_t>& received, const std::vector<int64_t>& sent);

  void start(c10d::Backend& gloo, std::chrono::milliseconds timeout);
  // Waits, until `deadline` in all; throws c10::Error, which says what differs.
  void check(c10d::Backend& gloo, std::chrono::steady_clock::time_point deadline);

 private:
  int64_t hash() const;
  void check_parts(c10d::Backend& gloo, std::chrono::milliseconds timeout) const;
  std::string differences(c10d::Backend& gloo, std::chrono::milliseconds timeout) const;

  enum Field { kType, kDtype, kOp, kRoot, kElements, kSizes, kFields };

  std::array<int64_t, kFields> mine_{};
  std::vector<int64_t> received_, sent_;
  at::Tensor sum_;  // of all ranks' hashes
  c10::intrusive_ptr<c10d::Work> comparison_;
};

}  // namespace backplane::distributed
