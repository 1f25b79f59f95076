// distributed/staged_batch.h: the calls of one collective of the staged engine, which share a Work: what each reads and writes, and what
// Gloo is asked for. Data that is only moved goes as bytes.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/staged_group.h"

namespace backplane::distributed {

// Gloo's options, with a timeout.
template <class T>
T with_timeout(T options, std::chrono::milliseconds timeout) {
  options.timeout = timeout;
  return options;
}

class StagedGroup::Batch {
 public:
  Batch(StagedGroup& group, c10d::OpType type, const char* title, c10::Device device, std::chrono::milliseconds timeout,
        const Tensors& inputs);

  std::shared_ptr<StagedCall> call() const { return std::make_shared<StagedCall>(name(), device_, work_, timeout_); }
  const char* name() const { return name_in(title_); }

  // `start(gloo, timeout)` gives the Work of Gloo.
  template <class Start>
  void submit(const std::shared_ptr<StagedCall>& call, Start start, std::function<void()> finish = {}) const {
    for (const HostCopy& copy : call->copies) check_on(copy.tensor(), device_, name());
    call->start = [gloo = group_.engine_->gloo(), start](std::chrono::milliseconds timeout) mutable { return start(*gloo, timeout); };
    call->finish = std::move(finish);
    work_->add_part();
    group_.engine_->submit(call);
  }

  // Behind all calls; gives the Work of the collective.
  Work end(const Tensors& results = {}) const;

  // One call each, or several. Throw c10::ValueError for wrong sizes, dtypes and devices.
  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  // `from`: what the root sends if it is not `tensor`.
  void broadcast(const at::Tensor& tensor, int root, const at::Tensor& from = {}) const;
  // `to`: where the root gets the result; others' is left alone.
  void reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) const;
  void all_gather(const at::Tensor& output, const at::Tensor& input) const;
  // Sizes may differ between ranks; then each sends its own.
  void all_gather(const Tensors& outputs, const at::Tensor& input) const;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) const;

 private:
  StagedGroup& group_;
  c10d::OpType type_;
  const char* title_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  at::Tensor input_;
  bool is_coalesced_;
  c10::intrusive_ptr<StagedWork> work_;
};

}  // namespace backplane::distributed
