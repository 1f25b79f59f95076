// distributed/staged_group.h: all collectives, on every driver, by way of the host. Note [Staged calls] (staged_engine.h) tells how.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/device_group.h"
#include "distributed/own_messages.h"
#include "distributed/staged_engine.h"

namespace backplane::distributed {

// Makes a Gloo group: store, rank, size, timeout. Blocks until all ranks are there.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                                    std::chrono::milliseconds timeout)>;

class StagedGroup : public DeviceGroup {
 public:
  // Blocks until all ranks are there.
  StagedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
              GlooFactory make_gloo);
  ~StagedGroup() override;

  const char* engine() const override { return "staged"; }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  // NULL on a rank that is not among `ranks`.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 protected:
  // Of the host's part; NULL: none.
  std::exception_ptr failure() const { return engine_->failure(); }
  // As abort(), with another reason: "process group 'x' (rank 0 of 2) " and `why`.
  void fail(const std::string& why) { engine_->abort(why); }

  Work carry_out(const Request& request, const Tensors& results, Fill fill) override;
  // What a split of the group becomes.
  virtual c10::intrusive_ptr<c10d::Backend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      c10::intrusive_ptr<GroupOptions> options);

  const GlooFactory make_gloo_;

 private:
  class Batch;
  void end(StagedWork& work, c10::Device device);

  const std::shared_ptr<StagedEngine> engine_;
  const std::shared_ptr<OwnMessages> own_ = std::make_shared<OwnMessages>();
  std::atomic<uint32_t> messages_{0};         // sent
  c10::intrusive_ptr<StagedWork> coalesced_;  // between startCoalescing and endCoalescing
};

}  // namespace backplane::distributed
