// drivers/sim/rendezvous.h: the shared memory in which the ranks of a communicator meet: who has come, who is gone, who has failed, room
// for what they exchange, and the wait for one another.
//
// Each rank holds a lock on its own byte of the file (an OFD lock, which the system ends with the rank's descriptor, also of a process that
// is a zombie), and has its process's number there: a child that it forked keeps the lock, but is another process.
#pragma once

#include <atomic>
#include <cstdint>

#include <backplane/driver/ipc.h>
#include <backplane/driver/cxx/wait.hpp>

#include "shared_file.h"

namespace backplane::driver::sim {

/// Why a rank has given a communicator up, as the others read it.
enum class Failure : uint32_t { none, timeout, disagree, lost, abort, device };

/// What a rank does in a step; the same on all of them, or they disagree.
struct Call {
  uint32_t kind;
  int32_t op;
  uint64_t dtype;
  uint64_t count;
  int64_t root;
  bool operator==(const Call& other) const {
    return kind == other.kind && op == other.op && dtype == other.dtype && count == other.count && root == other.root;
  }
};

/// What a rank says of itself in a split.
struct Wish {
  int32_t color, rank, size;
  bp_ipc_handle part;  // rank 0 of a part: where that meets
};

class Rendezvous {
 public:
  static constexpr uint64_t kSlot = uint64_t{1} << 20;     // what a rank shows to all in one step
  static constexpr uint64_t kPacket = uint64_t{64} << 10;  // what one rank hands to another at once

  /// Of one rank. All members but `place` are the rank's own to write.
  struct alignas(64) Rank {
    std::atomic<uint32_t> place;  // absent, here, or left
    std::atomic<int32_t> process;
    std::atomic<Failure> failure;
    std::atomic<uint64_t> steps;   // shown so far; step n lies in [n % 2]
    std::atomic<uint64_t> splits;  // shown so far
    Call calls[2];
    Wish wishes[2];
  };
  /// From one rank to another. Packet n lies in [n % 2].
  struct alignas(64) Channel {
    std::atomic<uint64_t> written, taken;
    struct {
      uint64_t bytes;  // of the message
      uint64_t at;     // where in it the packet begins
      uint64_t kind;
    } packets[2];
  };

  /// A place to meet, of no size yet.
  static File make() { return make_file("backplane-sim-rendezvous", kHead); }

  /// Joins. Blocks until all ranks have, for timeout_ns at most. Throws TIMEOUT, INVALID_ARGUMENT or INTERNAL, as bp.collective's create.
  Rendezvous(File&& file, int32_t rank, int32_t size, uint64_t timeout_ns);
  /// Leaves.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  Rank& of(int32_t rank) const { return ranks_[rank]; }
  Rank& own() const { return ranks_[rank_]; }
  char* slot(int32_t rank, uint64_t step) const { return slots_ + (static_cast<uint64_t>(rank) * 2 + step % 2) * kSlot; }
  Channel& channel(int32_t from, int32_t to) const { return channels_[from * size_ + to]; }
  char* packet(int32_t from, int32_t to, uint64_t number) const {
    return packets_ + (static_cast<uint64_t>(from * size_ + to) * 2 + number % 2) * kPacket;
  }

  /// Something that others wait for is there.
  void changed() const;

  /// True for a rank that is not there any more: its process has ended, or it has left.
  bool gone(int32_t rank) const;

  enum class Progress { done, moved, stalled };
  enum class End { done, stopped, timeout, gone };
  /// Works by advance() until it is done, or stopped() says so, or nothing has moved for timeout_ns, or a rank r is gone for which needs(r)
  /// holds; then *who is r. While it stalls the thread sleeps, and wakes when a rank calls changed().
  template <class Advance, class Stopped, class Needs>
  End work(uint64_t timeout_ns, Advance&& advance, Stopped&& stopped, Needs&& needs, int32_t* who) const {
    Deadline deadline(timeout_ns);
    int32_t suspect = -1;
    for (uint32_t looks = 0;; ++looks) {
      const uint32_t seen = changes();  // first: what comes while we look wakes us
      if (stopped()) return End::stopped;
      const Progress progress = advance();
      if (progress == Progress::done) return End::done;
      if (progress == Progress::moved) {
        deadline = Deadline(timeout_ns);
        looks = 0;
      } else if (suspect >= 0 && needs(suspect)) {  // nor had it shown anything before it went
        *who = suspect;
        return End::gone;
      } else if (looks >= kLooks) {
        if (deadline.passed()) return End::timeout;
        if (!nap(seen, deadline)) suspect = find_gone(needs);
      } else {
        relax(looks);
      }
    }
  }

 private:
  static constexpr uint64_t kHead = 4096;
  static constexpr uint32_t kLooks = 80;  // before it sleeps
  struct Head;

  void map(uint64_t at, uint64_t bytes);
  void unmap();
  void join(uint64_t timeout_ns);
  uint32_t changes() const;
  static void relax(uint32_t looks);
  /// Sleeps for a moment; false if nothing has changed meanwhile.
  bool nap(uint32_t seen, const Deadline& deadline) const;
  template <class Needs>
  int32_t find_gone(Needs&& needs) const {
    for (int32_t rank = 0; rank < size_; ++rank) {
      if (needs(rank) && gone(rank)) return rank;
    }
    return -1;
  }

  const File file_;
  const int32_t rank_, size_;
  char* base_ = nullptr;
  uint64_t bytes_ = 0;
  Head* head_ = nullptr;
  Rank* ranks_ = nullptr;
  Channel* channels_ = nullptr;
  char* slots_ = nullptr;
  char* packets_ = nullptr;
};

}  // namespace backplane::driver::sim
