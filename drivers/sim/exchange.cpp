// drivers/sim/exchange.cpp: the steps of an exchange and the packets of a message.
//
// A slot is written again two steps later. By then the others have shown the step between, which they do when they are done with this one:
// so one wait a step is enough.
#include "exchange.h"

#include <algorithm>
#include <cstring>

#include <backplane/driver/cxx/error.hpp>

#include "reduce.h"

namespace backplane::driver::sim {
namespace {

using Progress = Rendezvous::Progress;

void carry(char* to, const char* from, uint64_t bytes) {
  if (bytes && to != from) std::memcpy(to, from, bytes);
}

std::string text_of(const Call& call) {
  std::string text = name_of(static_cast<Collective>(call.kind));
  text += format("(%llu", wide(call.count));
  if (call.dtype) text += format(", dtype 0x%llx, op %d", wide(call.dtype), call.op);
  if (call.root >= 0) text += format(", root %d", static_cast<int>(call.root));
  return text + ")";
}

}  // namespace

const char* name_of(Collective kind) {
  static constexpr const char* names[] = {"all_reduce", "reduce",     "reduce_scatter", "broadcast", "all_gather", "send",
                                          "recv",       "all_to_all", "all_to_all_v",   "gather",    "scatter",    "barrier"};
  return names[static_cast<size_t>(kind)];
}

uint64_t Exchange::element() const { return call_.dtype ? bytes_of_dtype(call_.dtype) : 1; }

/// Elements that each rank shows in a step for each rank that takes them.
uint64_t Exchange::part(const Rendezvous& rendezvous) const {
  const uint64_t shares = kind() == Collective::reduce_scatter ? static_cast<uint64_t>(rendezvous.size()) : 1;
  const bool moves = kind() <= Collective::all_gather;
  return moves ? std::min(call_.count - at_, Rendezvous::kSlot / shares / element()) : 0;
}

void Exchange::show(const Rendezvous& rendezvous, uint64_t count) const {
  const uint64_t step = rendezvous.own().steps.load(std::memory_order_relaxed), bytes = count * element(), at = at_ * element();
  char* slot = rendezvous.slot(rendezvous.rank(), step);
  if (kind() == Collective::reduce_scatter) {
    for (int32_t rank = 0; rank < rendezvous.size(); ++rank) {
      carry(slot + static_cast<uint64_t>(rank) * bytes, in_ + static_cast<uint64_t>(rank) * call_.count * element() + at, bytes);
    }
  } else if (kind() != Collective::broadcast || call_.root == rendezvous.rank()) {
    carry(slot, in_ + at, bytes);
  }
  if (!sizes_.empty()) std::memcpy(slot, sizes_.data(), sizes_.size() * sizeof(uint64_t));
  rendezvous.own().calls[step % 2] = call_;
  rendezvous.own().steps.store(step + 1);
  rendezvous.changed();
}

void Exchange::check(const Rendezvous& rendezvous, uint64_t step) const {
  for (int32_t rank = 0; rank < rendezvous.size(); ++rank) {
    const Call& theirs = rendezvous.of(rank).calls[step % 2];
    if (theirs == call_) continue;
    throw Disagreement{
        format("rank %d calls %s where rank %d calls %s", rendezvous.rank(), text_of(call_).c_str(), rank, text_of(theirs).c_str())};
  }
}

void Exchange::check_sizes(const Rendezvous& rendezvous, uint64_t step) const {
  const auto of = [&](int32_t rank, int32_t place) {
    uint64_t size;
    std::memcpy(&size, rendezvous.slot(rank, step) + static_cast<uint64_t>(place) * sizeof size, sizeof size);
    return size;
  };
  for (int32_t from = 0; from < rendezvous.size(); ++from) {
    for (int32_t to = 0; to < rendezvous.size(); ++to) {
      const uint64_t sent = of(from, to), taken = of(to, rendezvous.size() + from);
      if (sent == taken) continue;
      throw Disagreement{
          format("rank %d expects %llu bytes of rank %d by %s, which sends %llu", to, wide(taken), from, name_of(kind()), wide(sent))};
    }
  }
}

void Exchange::take(const Rendezvous& rendezvous, uint64_t step, uint64_t count) const {
  const uint64_t bytes = count * element(), at = at_ * element();
  const uint64_t inside = kind() == Collective::reduce_scatter ? static_cast<uint64_t>(rendezvous.rank()) * bytes : 0;
  const auto slot = [&](int64_t rank) { return rendezvous.slot(static_cast<int32_t>(rank), step) + inside; };
  switch (kind()) {
    case Collective::reduce:
      if (call_.root != rendezvous.rank()) break;
      [[fallthrough]];
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      std::vector<const char*> all;
      for (int32_t rank = 0; rank < rendezvous.size(); ++rank) all.push_back(slot(rank));
      if (count) reduce(call_.op, call_.dtype, out_ + at, all, count);
      break;
    }
    case Collective::broadcast:
      carry(out_ + at, slot(call_.root), bytes);
      break;
    case Collective::all_gather:
      for (int32_t rank = 0; rank < rendezvous.size(); ++rank)
        carry(out_ + static_cast<uint64_t>(rank) * call_.count + at, slot(rank), bytes);
      break;
    default:
      break;
  }
}

bool Exchange::needs(const Rendezvous& rendezvous, int32_t rank) const {
  return rendezvous.of(rank).steps.load() < rendezvous.own().steps.load(std::memory_order_relaxed);
}

Progress Exchange::advance(const Rendezvous& rendezvous) {
  const uint64_t count = part(rendezvous);
  const bool first = !shown_;
  if (first) show(rendezvous, count);
  shown_ = true;
  for (int32_t rank = 0; rank < rendezvous.size(); ++rank) {
    if (needs(rendezvous, rank)) return first ? Progress::moved : Progress::stalled;
  }
  const uint64_t step = rendezvous.own().steps.load(std::memory_order_relaxed) - 1;
  check(rendezvous, step);
  if (!sizes_.empty()) check_sizes(rendezvous, step);
  take(rendezvous, step, count);
  at_ += count;
  shown_ = false;
  return part(rendezvous) == 0 ? Progress::done : Progress::moved;
}

Progress Message::advance(const Rendezvous& rendezvous) {
  const int32_t own = rendezvous.rank();
  const int32_t from = sends ? own : peer, to = sends ? peer : own;
  Rendezvous::Channel& channel = rendezvous.channel(from, to);
  for (bool moved = false;; moved = true) {
    const uint64_t written = channel.written.load(), taken = channel.taken.load();
    const uint64_t number = sends ? written : taken, here = std::min(bytes - at, Rendezvous::kPacket);
    if (sends ? written - taken == 2 : written == taken) return moved ? Progress::moved : Progress::stalled;
    auto& packet = channel.packets[number % 2];
    char* room = rendezvous.packet(from, to, number);
    const uint64_t tag = kind == Collective::recv ? static_cast<uint64_t>(Collective::send) : static_cast<uint64_t>(kind);
    if (sends) {
      packet = {bytes, at, tag};
      carry(room, data + at, here);
      channel.written.store(written + 1);
    } else {
      if (packet.bytes != bytes || packet.at != at || packet.kind != tag) {
        throw Disagreement{format("rank %d expects %llu bytes of rank %d by %s, which sends %llu by %s", own, wide(bytes), peer,
                                  name_of(kind), wide(packet.bytes), name_of(static_cast<Collective>(packet.kind)))};
      }
      carry(data + at, room, here);
      channel.taken.store(taken + 1);
    }
    rendezvous.changed();
    at += here;
    done = at == bytes;
    if (done) return Progress::done;
  }
}

}  // namespace backplane::driver::sim
