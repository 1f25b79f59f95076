// distributed/native_group.h: the process group over the driver's own links: what bp.collective takes is queued on a stream, and the host
// waits for nothing; the rest goes the way of staged_group.h, as a whole collective.
#pragma once

#include <memory>
#include <mutex>

#include "distributed/native_engine.h"
#include "distributed/native_work.h"
#include "distributed/staged_group.h"

namespace backplane::distributed {

// A communicator for each device that the rank's tensors are on, made by the first collective there, or of init_process_group's device_id;
// ranks come to their devices in the same order. Until it is there, sends and receives are staged: joining takes all ranks. A send and a
// receive that two ranks make in opposite order must be in one batch.
class NativeGroup : public StagedGroup {
 public:
  NativeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
              GlooFactory make_gloo);
  ~NativeGroup() override;

  const char* engine() const override { return "native"; }
  void eagerConnectSingleDevice(at::Device device) override;

  Work recvAnysource(Tensors& tensors, int tag) override;
  void startCoalescing() override;
  Work endCoalescing() override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 protected:
  Work carry_out(const Request& request, const Tensors& results, Fill fill) override;
  c10::intrusive_ptr<c10d::Backend> make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                              c10::intrusive_ptr<GroupOptions> options) override;

 private:
  struct Pending;
  class Batch;
  // Joins, if that was not done. One that failed is not tried again: the other ranks may be waiting for the first one, or have given up.
  std::shared_ptr<NativeEngine> engine_on(c10::Device device);
  std::shared_ptr<NativeEngine> engine_if_there(c10::Device device);  // NULL: not yet
  std::vector<std::shared_ptr<NativeEngine>> engines();
  CommunicatorSettings settings() const;
  // The one that it has a communicator for, whatever the current device is: the peers' next call goes there.
  c10::Device own_device() override;
  // Before there is one: that of the global rank modulo the number of devices, as NCCL's group has it.
  c10::Device barrier_device() override;
  Work run(Pending& pending, NativeEngine& engine, Work staged);

  std::shared_ptr<NativeEngine> join(c10::Device device);
  std::string exchange_id(const std::string& key, std::string id, NativeEngine::Deadline deadline);
  void throw_if_failed() const;

  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex joining_;        // one join at a time; taken before engines_mutex_
  std::mutex engines_mutex_;  // over engines_; never held while something blocks
  std::vector<std::shared_ptr<NativeEngine>> engines_;
  std::unique_ptr<Pending> coalesced_;  // between startCoalescing and endCoalescing
};

}  // namespace backplane::distributed
