// drivers/sim/exchange.h: what a queued collective does, as two kinds of work that go on as far as they come and never block: an exchange
// of all ranks, step by step through their slots, and a message from one rank to another, in packets.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous.h"

namespace backplane::driver::sim {

/// What a call is, for the other ranks and for messages.
enum class Collective : uint32_t {
  all_reduce,
  reduce,
  reduce_scatter,
  broadcast,
  all_gather,
  send,
  recv,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  barrier
};
const char* name_of(Collective kind);

/// What a rank does that the others do not: thrown by the work, and then the communicator fails.
struct Disagreement {
  std::string text;
};

/// Parts of at most a slot: each rank shows its own, and when all have, takes what it needs of theirs. The kinds that send messages
/// exchange nothing but their call, and all_to_all_v the sizes of its messages: `sizes`, those that it sends to each rank and, behind
/// them, those that it takes of each.
class Exchange {
 public:
  Exchange(const Call& call, const char* in, char* out, std::vector<uint64_t> sizes = {})
      : call_(call), in_(in), out_(out), sizes_(std::move(sizes)) {}

  /// Throws Disagreement.
  Rendezvous::Progress advance(const Rendezvous& rendezvous);
  bool needs(const Rendezvous& rendezvous, int32_t rank) const;

  Collective kind() const { return static_cast<Collective>(call_.kind); }
  uint64_t bytes() const { return element() * call_.count; }

 private:
  uint64_t element() const;
  uint64_t part(const Rendezvous& rendezvous) const;
  void show(const Rendezvous& rendezvous, uint64_t count) const;
  void check(const Rendezvous& rendezvous, uint64_t step) const;
  void check_sizes(const Rendezvous& rendezvous, uint64_t step) const;
  void take(const Rendezvous& rendezvous, uint64_t step, uint64_t count) const;

  const Call call_;
  const char* const in_;
  char* const out_;
  const std::vector<uint64_t> sizes_;
  bool shown_ = false;
  uint64_t at_ = 0;  // elements done
};

struct Message {
  Collective kind;  // of the call
  bool sends;
  int32_t peer;
  char* data;
  uint64_t bytes;
  uint64_t at = 0;
  bool done = false;

  /// Throws Disagreement.
  Rendezvous::Progress advance(const Rendezvous& rendezvous);
};

}  // namespace backplane::driver::sim
