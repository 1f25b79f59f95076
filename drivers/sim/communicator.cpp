// drivers/sim/communicator.cpp: batches in their turn, failures, and splits.
#include "communicator.h"

#include <algorithm>
#include <memory>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::sim {
namespace {

using End = Rendezvous::End;
using Progress = Rendezvous::Progress;

/// Goes on with a batch.
class Runner {
 public:
  Runner(Batch& batch, const Rendezvous& rendezvous)
      : batch_(batch), rendezvous_(rendezvous), held_(2 * static_cast<size_t>(rendezvous.size())) {}

  Progress advance() {
    bool moved = false;
    if (at_ < batch_.exchanges.size()) {
      const Progress progress = batch_.exchanges[at_].advance(rendezvous_);
      if (progress == Progress::done) ++at_;
      moved = progress != Progress::stalled;
    }
    bool open = at_ < batch_.exchanges.size();
    std::fill(held_.begin(), held_.end(), false);
    for (Message& message : batch_.messages) {
      if (message.done) continue;
      auto held = held_[static_cast<size_t>(message.peer) * 2 + message.sends];
      if (!held) moved = message.advance(rendezvous_) != Progress::stalled || moved;
      if (!message.done) open = held = true;  // the next one between the two waits for this one
    }
    return !open ? Progress::done : moved ? Progress::moved : Progress::stalled;
  }

  bool needs(int32_t rank) const {
    if (at_ < batch_.exchanges.size() && batch_.exchanges[at_].needs(rendezvous_, rank)) return true;
    return std::any_of(batch_.messages.begin(), batch_.messages.end(),
                       [&](const Message& message) { return !message.done && message.peer == rank; });
  }

 private:
  Batch& batch_;
  const Rendezvous& rendezvous_;
  size_t at_ = 0;
  std::vector<bool> held_;  // [peer, sends]
};

}  // namespace

Communicator::Communicator(int32_t device, const bp_comm_config& config, File&& rendezvous)
    : device_(device),
      name_(config.name),
      work_timeout_ns_(config.work_timeout_ns ? config.work_timeout_ns : BP_NO_TIMEOUT),
      rendezvous_(std::move(rendezvous), config.rank, config.size, config.timeout_ns) {}

uint64_t Batch::bytes() const {
  uint64_t sum = 0;
  for (const Exchange& one : exchanges) sum += one.bytes();
  for (const Message& one : messages) sum += one.bytes;
  return sum;
}

const char* Batch::name() const {
  if (!messages.empty()) return name_of(messages.front().kind);
  return exchanges.empty() ? "group" : name_of(exchanges.front().kind());
}

void Communicator::queue(Stream& on, Batch&& batch, Recorder::Owned record) {
  const uint64_t turn = take_turn();
  try {
    on.submit_owned(
        [this, turn, batch = std::move(batch)](int32_t status) mutable {
          if (status != BP_OK) fail(Failure::device, format("device %d is in error", device_));
          run(batch, turn);
        },
        std::move(record));
  } catch (...) {
    fail(Failure::lost, "a call could not be queued");  // its turn would never come
    std::lock_guard lock(mutex_);
    ++ended_;
    throw;
  }
}

uint64_t Communicator::take_turn() {
  std::lock_guard lock(mutex_);
  return queued_++;
}

void Communicator::run(Batch& batch, uint64_t turn) {
  {
    std::unique_lock lock(mutex_);
    turned_.wait(lock, [&] { return begun_ == turn || failed(); });
  }
  if (!failed()) {
    Runner runner(batch, rendezvous_);
    int32_t who = -1;
    try {
      const End end = rendezvous_.work(
          work_timeout_ns_, [&] { return runner.advance(); }, [&] { return status() != BP_OK; },
          [&](int32_t rank) { return runner.needs(rank); }, &who);
      if (end == End::timeout) {
        fail(Failure::timeout, format("rank %d has waited for the others for longer than its work timeout", rank()));
      } else if (end == End::gone) {
        fail(Failure::lost, format("rank %d is gone", who));
      }
    } catch (const Disagreement& found) {
      fail(Failure::disagree, found.text);
    }
  }
  std::lock_guard lock(mutex_);
  ++begun_;
  ++ended_;
  turned_.notify_all();
}

File Communicator::split(int32_t color, const bp_comm_config* config, std::vector<File>& kept) {
  Wish own{color, -1, 0, {}};
  if (color >= 0) {
    own.rank = config->rank;
    own.size = config->size;
    if (own.rank == 0) {
      kept.push_back(Rendezvous::make());
      own.part = handle_of(What::rendezvous, kept.back().number(), 0, 0);
    }
  }
  const uint64_t number = splits_++;
  const auto wish = [&](int32_t rank) -> Wish& { return rendezvous_.of(rank).wishes[number % 2]; };
  wish(rank()) = own;
  rendezvous_.own().splits.store(number + 1);
  rendezvous_.changed();
  const auto waits_for = [&](int32_t rank) { return rendezvous_.of(rank).splits.load() <= number; };
  const auto advance = [&] {
    for (int32_t rank = 0; rank < size(); ++rank) {
      if (waits_for(rank)) return Progress::stalled;
    }
    return Progress::done;
  };
  int32_t who = -1;
  const auto stopped = [&] { return status() != BP_OK; };
  const End end = rendezvous_.work(config ? config->timeout_ns : BP_NO_TIMEOUT, advance, stopped, waits_for, &who);
  if (end == End::stopped) check();
  if (end == End::timeout) throw Error(BP_TIMEOUT, "collective.split: a rank did not come in time");
  if (end == End::gone) throw Error(BP_INTERNAL, format("collective.split: rank %d is gone", who));
  if (color < 0) return File();
  std::vector<int32_t> found;
  const Wish* first = nullptr;
  for (int32_t rank = 0; rank < size(); ++rank) {
    const Wish& one = wish(rank);
    if (one.color != color) continue;
    found.push_back(one.rank);
    if (one.rank == 0) first = &one;
    if (one.size != own.size) throw Error(BP_INVALID_ARGUMENT, "collective.split: the ranks of a part differ in its size");
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] != static_cast<int32_t>(i)) throw Error(BP_INVALID_ARGUMENT, "collective.split: the ranks of a part are not 0, 1, ...");
  }
  if (static_cast<int32_t>(found.size()) != own.size) {
    throw Error(BP_INVALID_ARGUMENT,
                format("collective.split: %zu ranks gave color %d, config->size is %d", found.size(), color, own.size));
  }
  return open_file(sim::name_of(first->part, What::rendezvous));
}

bool Communicator::finish(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  std::unique_lock lock(mutex_);
  return deadline.wait(turned_, lock, [&] { return ended_ == queued_; });
}

void Communicator::abort() { fail(Failure::abort, "it was aborted"); }

int32_t Communicator::status(std::string* text) {
  look();
  std::lock_guard lock(mutex_);
  if (text) *text = text_;
  return status_.load();
}

void Communicator::check() {
  std::string text;
  if (status(&text) != BP_OK) throw Error(BP_INTERNAL, "the communicator has failed: " + text);
}

void Communicator::fail(Failure failure, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (failed()) return;
    text_ = name_ + ": " + text;
    status_.store(failure == Failure::timeout ? BP_TIMEOUT : failure == Failure::lost ? BP_DEVICE_LOST : BP_INTERNAL);
    turned_.notify_all();
  }
  Failure none = Failure::none;
  rendezvous_.own().failure.compare_exchange_strong(none, failure);
  rendezvous_.changed();
}

void Communicator::look() {
  if (failed()) return;
  for (int32_t rank = 0; rank < size(); ++rank) {
    const Failure failure = rendezvous_.of(rank).failure.load();
    if (failure == Failure::none || rank == this->rank()) continue;
    static constexpr const char* why[] = {"",
                                          "has waited for longer than its work timeout",
                                          "says that the ranks disagree",
                                          "has lost a rank",
                                          "has aborted",
                                          "has a device in error"};
    const std::string text = format("rank %d %s", rank, why[static_cast<size_t>(failure)]);
    const bool stays = failure == Failure::timeout || failure == Failure::disagree;
    return fail(stays ? failure : Failure::lost, text);
  }
}

}  // namespace backplane::driver::sim
