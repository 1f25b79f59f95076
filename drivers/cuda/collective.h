// drivers/cuda/collective.h: bp.collective over NCCL: what its entries check, and which calls of NCCL they are.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <backplane/driver/collective.h>
#include <backplane/driver/cxx/event_profile.hpp>

#include "communicator.h"
#include "graph.h"

namespace backplane::driver::cuda {

/// How NCCL makes a reduction: elements of `dtype`, `times` as many.
struct NcclReduction {
  ncclDataType_t dtype;
  ncclRedOp_t op;
  uint64_t times;
};

/// NCCL's reduction for BP_REDUCE_* and one BP_DTYPE_*, if it has one. float8: whether it reduces those there.
std::optional<NcclReduction> nccl_reduction(int32_t op, uint64_t dtype, bool float8);

class Collectives {
 public:
  Collectives(const Gpus& gpus, Graphs& graphs, EventProfile<>& profile) : gpus_(gpus), graphs_(graphs), profile_(profile) {}

  /// Loads NCCL, once. path: empty to look for it, "off" for none. False if there is none; then `why` is the reason.
  bool load(const std::string& path, std::string& why);
  /// BP_COLLECTIVE_* of what was loaded.
  uint32_t flags() const;
  /// Ends all communicators: before the streams end.
  void end_all() noexcept;

  void properties(int32_t device, bp_collective_properties* out);
  void make_id(int32_t device, void* out);
  void create(int32_t device, const bp_comm_config* config, bp_comm** out);
  void split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out);
  int32_t destroy(bp_comm* comm, uint64_t timeout_ns);
  void abort(bp_comm* comm) { find(comm, "abort")->abort(); }
  void status(bp_comm* comm, int32_t* out, char* text, uint64_t size);
  void group_begin();
  void group_end();
  void all_reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op);
  void reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op, int32_t root);
  void reduce_scatter(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op);
  void broadcast(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);
  void all_gather(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);
  void send(bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer);
  void recv(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer);
  // NCCL has none of these: the core makes them of sends and receives.
  void all_to_all(bp_comm*, bp_stream*, uint64_t, uint64_t, uint64_t) { unsupported("all_to_all"); }
  void all_to_all_v(bp_comm*, bp_stream*, uint64_t, const uint64_t*, const uint64_t*, uint64_t, const uint64_t*, const uint64_t*) {
    unsupported("all_to_all_v");
  }
  void gather(bp_comm*, bp_stream*, uint64_t, uint64_t, uint64_t, int32_t) { unsupported("gather"); }
  void scatter(bp_comm*, bp_stream*, uint64_t, uint64_t, uint64_t, int32_t) { unsupported("scatter"); }
  void barrier(bp_comm*, bp_stream*) { unsupported("barrier"); }

 private:
  using Owned = std::shared_ptr<Communicator>;
  struct Group {
    struct Part {
      Owned comm;
      bp_stream* stream;
      Communicator::Calls calls;
      const char* name;    // of the first call
      uint64_t bytes = 0;  // of all calls
    };
    int depth = 0;
    std::vector<Part> parts;
  };
  /// One entry: its communicator with its GPU, and the checks of its arguments.
  class Entry;
  struct Reduced;

  [[noreturn]] static void unsupported(const char* call);
  Owned find(bp_comm* comm, const char* call) const;
  void add(Owned comm, bp_comm** out);
  /// Of a call, or of a group's calls of one communicator.
  static EventProfile<>::Part record(const Communicator& comm, bp_stream* stream, const char* name, uint64_t bytes);
  /// The calling thread's group, which no other touches; NULL if there is none.
  Group* in_group();
  void check_config(const bp_comm_config* config, const char* call);
  bool reduces_float8(Gpu& gpu) const;

  const Gpus& gpus_;
  Graphs& graphs_;
  EventProfile<>& profile_;
  std::shared_ptr<const Nccl> nccl_;
  std::string why_;
  std::once_flag loaded_;
  mutable std::mutex mutex_;  // over what follows
  std::map<bp_comm*, Owned> comms_;
  std::map<std::thread::id, Group> groups_;
  std::atomic<size_t> open_groups_{0};
};

}  // namespace backplane::driver::cuda
