// distributed/fingerprint.cpp: compares fingerprints by reductions of Gloo.
#include "distributed/fingerprint.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/util/hash.h>

#include <string>

#include "distributed/deadline.h"
#include "distributed/reduction.h"

namespace backplane::distributed {

using std::chrono::milliseconds;

Fingerprint::Fingerprint(c10d::OpType type) {
  mine_[kType] = static_cast<int64_t>(type);
  mine_[kDtype] = mine_[kOp] = mine_[kRoot] = -1;
}

void Fingerprint::add(c10::ScalarType dtype, int64_t elements, int root, int op) {
  const bool is_first = mine_[kSizes] == 0;
  if (is_first) {
    mine_[kDtype] = static_cast<int64_t>(dtype);
    mine_[kRoot] = root;
    mine_[kOp] = op;
  }
  mine_[kElements] += elements;
  auto sizes = static_cast<size_t>(mine_[kSizes]);
  for (const int64_t number : {static_cast<int64_t>(dtype), elements, int64_t{root}}) {
    sizes = c10::hash_combine(sizes, static_cast<size_t>(number));
  }
  mine_[kSizes] = static_cast<int64_t>(sizes);
}

void Fingerprint::add_parts(const std::vector<int64_t>& received, const std::vector<int64_t>& sent) {
  received_ = received;
  sent_ = sent;
}

int64_t Fingerprint::hash() const {
  size_t all = 0;
  for (const int64_t word : mine_) all = c10::hash_combine(all, static_cast<size_t>(word));
  // Mixes all bits, so that sums of hashes of similar calls do not coincide.
  uint64_t mixed = all;
  mixed = (mixed ^ (mixed >> 33)) * 0xff51afd7ed558ccdULL;
  mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return static_cast<int64_t>(mixed ^ (mixed >> 33));
}

void Fingerprint::start(c10d::Backend& gloo, milliseconds timeout) {
  sum_ = at::tensor(std::vector<int64_t>{hash()});
  std::vector<at::Tensor> tensors{sum_};
  c10d::AllreduceOptions options;
  options.timeout = timeout;
  comparison_ = gloo.allreduce(tensors, options);
}

// Called by all ranks, or by none.
std::string Fingerprint::differences(c10d::Backend& gloo, milliseconds timeout) const {
  std::vector<int64_t> words(mine_.begin(), mine_.end());
  for (const int64_t word : mine_) words.push_back(~word);  // the maximum of these gives the minimum of the words
  const at::Tensor largest_words = at::tensor(words);
  std::vector<at::Tensor> tensors{largest_words};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  options.timeout = timeout;
  gloo.allreduce(tensors, options)->wait(timeout);
  const int64_t* all = largest_words.const_data_ptr<int64_t>();
  std::string differences;
  for (size_t field = 0; field < kFields; ++field) {
    const int64_t mine = mine_[field], largest = all[field], smallest = ~all[kFields + field];
    const int64_t other = largest != mine ? largest : smallest;
    if (other == mine) continue;
    const auto report = [&](const char* what, const std::string& here, const std::string& there) {
      differences += c10::str(differences.empty() ? "" : "; ", what, here, " here and ", there, " on another rank");
    };
    const auto dtype_of = [](int64_t word) { return word < 0 ? "none" : c10::toString(static_cast<c10::ScalarType>(word)); };
    switch (field) {
      case kType:
        report("the collective is ", c10d::opTypeToString(static_cast<c10d::OpType>(mine)),
               c10d::opTypeToString(static_cast<c10d::OpType>(other)));
        break;
      case kDtype:
        report("the dtype is ", dtype_of(mine), dtype_of(other));
        break;
      case kOp:
        report("the operation is ", name_of_reduction(mine), name_of_reduction(other));
        break;
      case kRoot:
        report("the root is ", std::to_string(mine), std::to_string(other));
        break;
      case kElements:
        report("the number of elements is ", std::to_string(mine), std::to_string(other));
        break;
      default:
        if (differences.empty()) differences = "the tensors of the lists differ in their sizes";
    }
  }
  return differences;
}

void Fingerprint::check(c10d::Backend& gloo, std::chrono::steady_clock::time_point deadline) {
  comparison_->wait(left_of(deadline));
  const auto expected = static_cast<uint64_t>(hash()) * static_cast<uint64_t>(gloo.getSize());
  const auto sum = static_cast<uint64_t>(*sum_.const_data_ptr<int64_t>());
  TORCH_CHECK(sum == expected, "the ranks do not make the same call: ", differences(gloo, left_of(deadline)));
  if (!sent_.empty()) check_parts(gloo, left_of(deadline));
}

// Called by all ranks, since they make the same call.
void Fingerprint::check_parts(c10d::Backend& gloo, milliseconds timeout) const {
  at::Tensor sent = at::tensor(sent_), received = at::empty({static_cast<int64_t>(sent_.size())}, at::kLong);
  std::vector<int64_t> even;
  c10d::AllToAllOptions options;
  options.timeout = timeout;
  gloo.alltoall_base(received, sent, even, even, options)->wait(timeout);
  const int64_t* of_others = received.const_data_ptr<int64_t>();
  for (size_t rank = 0; rank < received_.size(); ++rank) {
    TORCH_CHECK(of_others[rank] == received_[rank], "the ranks do not make the same call: rank ", rank, " sends ", of_others[rank],
                " bytes to this one, which expects ", received_[rank]);
  }
}

}  // namespace backplane::distributed
