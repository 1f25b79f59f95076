// drivers/sim/rendezvous.cpp: joining and leaving, locks that show who lives, and the sleep between two looks.
#include "rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <backplane/driver/cxx/error.hpp>

#include "../engine/spin.h"

namespace backplane::driver::sim {
namespace {

constexpr uint32_t kAbsent = 0, kHere = 1, kLeft = 2;
constexpr uint32_t kJoining = 0, kComplete = 1, kGivenUp = 2;
constexpr uint64_t kNap = 5'000'000;  // ns; also how long it may take to notice that a rank is gone

uint64_t whole_pages(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

bool lock(int file, int32_t rank, int command, short* type) {
  struct flock range{};
  range.l_type = *type;
  range.l_whence = SEEK_SET;
  range.l_start = rank;
  range.l_len = 1;
  const bool done = fcntl(file, command, &range) == 0;
  *type = range.l_type;
  return done;
}

}  // namespace

struct Rendezvous::Head {
  std::atomic<int32_t> size;      // that the first rank came with
  std::atomic<uint32_t> phase;    // joining, complete or given up
  std::atomic<uint32_t> changes;  // who waits sleeps on it
  std::atomic<uint32_t> sleepers;
};

Rendezvous::Rendezvous(File&& file, int32_t rank, int32_t size, uint64_t timeout_ns) : file_(std::move(file)), rank_(rank), size_(size) {
  static_assert(sizeof(Head) <= kHead && std::atomic<uint64_t>::is_always_lock_free && std::atomic<Failure>::is_always_lock_free);
  map(0, kHead);
  int32_t known = 0;
  reinterpret_cast<Head*>(base_)->size.compare_exchange_strong(known, size);
  unmap();
  if (known != 0 && known != size) {
    throw Error(BP_INVALID_ARGUMENT, format("rank %d says that there are %d ranks, another one says %d", rank, size, known));
  }
  const uint64_t n = static_cast<uint64_t>(size), pairs = n * n;
  const uint64_t channels = kHead + whole_pages(n * sizeof(Rank)), slots = channels + whole_pages(pairs * sizeof(Channel));
  const uint64_t packets = slots + n * 2 * kSlot, bytes = packets + pairs * 2 * kPacket;
  if (ftruncate(file_.number(), static_cast<off_t>(bytes)) != 0) {
    throw Error(BP_OUT_OF_MEMORY, std::string("no memory for a communicator: ") + std::strerror(errno));
  }
  map(0, bytes);
  head_ = reinterpret_cast<Head*>(base_);
  ranks_ = reinterpret_cast<Rank*>(base_ + kHead);
  channels_ = reinterpret_cast<Channel*>(base_ + channels);
  slots_ = base_ + slots;
  packets_ = base_ + packets;
  try {
    join(timeout_ns);
  } catch (...) {
    unmap();
    throw;
  }
}

Rendezvous::~Rendezvous() {
  own().place.store(kLeft);
  changed();
  unmap();
}

void Rendezvous::map(uint64_t at, uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.number(), static_cast<off_t>(at));
  if (pages == MAP_FAILED) throw Error(BP_OUT_OF_MEMORY, std::string("cannot map a communicator: ") + std::strerror(errno));
  madvise(pages, bytes, MADV_DONTFORK);
  base_ = static_cast<char*>(pages);
  bytes_ = bytes;
}

void Rendezvous::unmap() { munmap(base_, bytes_); }

void Rendezvous::join(uint64_t timeout_ns) {
  short type = F_WRLCK;
  if (!lock(file_.number(), rank_, F_OFD_SETLK, &type) || own().place.load() != kAbsent) {
    throw Error(BP_INVALID_ARGUMENT, format("rank %d of %d is taken", rank_, size_));
  }
  own().process.store(getpid());
  own().place.store(kHere);
  changed();
  const auto here = [&](int32_t rank) { return of(rank).place.load() != kAbsent; };
  const auto advance = [&] {
    for (int32_t rank = 0; rank < size_; ++rank) {
      if (!here(rank)) return Progress::stalled;
    }
    uint32_t phase = kJoining;
    head_->phase.compare_exchange_strong(phase, kComplete);
    return phase == kGivenUp ? Progress::stalled : Progress::done;
  };
  int32_t who = -1;
  End end = work(timeout_ns, advance, [&] { return head_->phase.load() == kGivenUp; }, here, &who);
  uint32_t phase = kJoining;
  if (end == End::done || (!head_->phase.compare_exchange_strong(phase, kGivenUp) && phase == kComplete)) return;
  own().place.store(kLeft);
  changed();
  if (end == End::timeout) {
    std::string absent;
    for (int32_t rank = 0; rank < size_; ++rank) {
      if (!here(rank)) absent += (absent.empty() ? " " : ", ") + std::to_string(rank);
    }
    throw Error(BP_TIMEOUT, format("rank %d of %d timed out waiting for rank%s", rank_, size_, absent.c_str()));
  }
  throw Error(BP_INTERNAL, end == End::gone ? format("rank %d of %d: the process of rank %d has ended", rank_, size_, who)
                                            : format("rank %d of %d: another rank has given up", rank_, size_));
}

void Rendezvous::changed() const {
  // Sequentially consistent with nap(): either it sees the change, or we see the sleeper.
  head_->changes.fetch_add(1);
  if (head_->sleepers.load() != 0) wake_all(head_->changes);
}

bool Rendezvous::gone(int32_t rank) const {
  if (rank == rank_) return false;
  if (of(rank).place.load() != kHere) return true;
  short type = F_WRLCK;
  if (lock(file_.number(), rank, F_OFD_GETLK, &type) && type == F_UNLCK) return true;
  return has_ended(of(rank).process.load());
}

uint32_t Rendezvous::changes() const { return head_->changes.load(); }

void Rendezvous::relax(uint32_t looks) {
  if (looks < kLooks / 2 && processors() > 1) {
    cpu_relax();
  } else {
    std::this_thread::yield();
  }
}

bool Rendezvous::nap(uint32_t seen, const Deadline& deadline) const {
  head_->sleepers.fetch_add(1);
  if (changes() == seen) sleep_on(head_->changes, seen, std::min(deadline.left_ns(), kNap));
  head_->sleepers.fetch_sub(1);
  return changes() != seen;
}

}  // namespace backplane::driver::sim
