// check_driver/collective_team.h: the ranks of a check of bp.collective, each a process with an instance of its own; the check's own
// process is rank 0.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "context.h"
#include "other_process.h"

namespace backplane::check {

// One rank, as its process sees it.
struct Member {
  Context& c;
  bp_collective g;
  int32_t rank, size;
  int32_t device;
  bp_comm* comm = nullptr;
  const Channel* to_first = nullptr;                  // of the other ranks: to rank 0
  std::vector<std::unique_ptr<OtherProcess>> others;  // of rank 0: the processes of ranks 1, 2, ...

  bool has(uint32_t flag) const { return (g.head.flags & flag) != 0; }
  bp_comm_config config(int32_t of_rank, int32_t of_size) const;
  // What status reports.
  int32_t state(std::string* text = nullptr) const;
  // Waits for a state that is not BP_OK, for some seconds.
  int32_t failure() const;
  // The others have come here, too: by the sockets.
  void meet() const;
  // On rank 0: throws NotRun where work runs in the call that queues it, and none is ever pending.
  void needs_pending_work(bp_stream* stream) const;
  // Expects that all queued work ends and that nothing has failed.
  void finish(bp_stream* stream = nullptr) const;
  void destroy();

  // Device memory with these bytes; bytes of device memory.
  uint64_t upload(const std::vector<uint8_t>& bytes) const;
  std::vector<uint8_t> download(uint64_t address, uint64_t bytes) const;
  // The same for memory whose contents do not matter.
  uint64_t room(uint64_t bytes) const { return upload(std::vector<uint8_t>(bytes, 0xcc)); }
  // Fails unless device memory has these bytes.
  void expect_bytes(uint64_t address, const std::vector<uint8_t>& want, const char* rule, const std::string& what) const;
};

// Runs body as each of the ranks, with a communicator of all of them if `join`. Of `most` ranks, or fewer where each needs a device of its
// own. Throws NotOffered if that leaves less than `least`, or for a flag that the group does not set.
void in_ranks(Context& c, int32_t least, int32_t most, uint32_t flags, const std::function<void(Member&)>& body, bool join = true);

constexpr uint64_t second_ns = 1'000'000'000;

}  // namespace backplane::check
