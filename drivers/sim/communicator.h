// drivers/sim/communicator.h: one rank of a communicator: the order of its work, how it failed, and its splits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <backplane/driver/collective.h>

#include "../engine/stream.h"
#include "exchange.h"
#include "rendezvous.h"

namespace backplane::driver::sim {

/// What a communicator does at one time: the messages all at once, beside the exchanges one after the other.
struct Batch {
  std::vector<Exchange> exchanges;
  std::vector<Message> messages;

  /// What its calls name, added up, and the name of the first: for bp.profile.
  uint64_t bytes() const;
  const char* name() const;
};

/// Lives until finish() was true, or its streams have ended.
class Communicator {
 public:
  /// Blocks until all ranks are there. Throws as bp.collective's create.
  Communicator(int32_t device, const bp_comm_config& config, File&& rendezvous);

  int32_t device() const { return device_; }
  int32_t rank() const { return rendezvous_.rank(); }
  int32_t size() const { return rendezvous_.size(); }

  /// Queues a batch. Whatever the streams are, batches run in the order of these calls. Throws std::bad_alloc, and then it was not taken.
  void queue(Stream& on, Batch&& batch, Recorder::Owned record = nullptr);
  /// The same for work that runs elsewhere: a place in that order, and the batch in it. Each place is for one run().
  uint64_t take_turn();
  void run(Batch& batch, uint64_t turn);

  /// Publishes to the ranks of each part where it meets, and finds this one's. Throws as split. The file is for Communicator().
  File split(int32_t color, const bp_comm_config* config, std::vector<File>& kept);

  /// True if its queued work was done in time.
  bool finish(uint64_t timeout_ns);

  void abort();
  /// BP_OK or how it failed, and why.
  int32_t status(std::string* text = nullptr);
  /// Throws INTERNAL if it has failed.
  void check();

 private:
  void fail(Failure failure, const std::string& text);
  /// Another rank's failure is this one's, too.
  void look();
  bool failed() const { return status_.load(std::memory_order_acquire) != BP_OK; }

  const int32_t device_;
  const std::string name_;
  const uint64_t work_timeout_ns_;
  Rendezvous rendezvous_;
  uint64_t splits_ = 0;

  std::mutex mutex_;
  std::condition_variable turned_;
  uint64_t queued_ = 0, begun_ = 0, ended_ = 0;
  std::atomic<int32_t> status_{BP_OK};
  std::string text_;
};

}  // namespace backplane::driver::sim
