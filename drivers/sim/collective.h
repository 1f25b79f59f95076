// drivers/sim/collective.h: the simulator's bp.collective: communicators over memory that their processes share (rendezvous.h).
//
// Work runs on the stream's thread and sleeps where it waits for a peer; on an inline stream it runs in the call, so that ranks of one
// process need a thread each there. A call of a group goes out at group_end.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <backplane/driver/collective.h>

#include "communicator.h"
#include "devices.h"

namespace backplane::driver::sim {

class Collectives {
 public:
  explicit Collectives(Devices& devices) : devices_(devices) {}

  void properties(int32_t device, bp_collective_properties* out);
  void make_id(int32_t device, void* out);
  void create(int32_t device, const bp_comm_config* config, bp_comm** out);
  void split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out);
  int32_t destroy(bp_comm* comm, uint64_t timeout_ns);
  void abort(bp_comm* comm);
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
  void all_to_all(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);
  void all_to_all_v(bp_comm* comm, bp_stream* stream, uint64_t out, const uint64_t* out_bytes, const uint64_t* out_at, uint64_t in,
                    const uint64_t* in_bytes, const uint64_t* in_at);
  void gather(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);
  void scatter(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);
  void barrier(bp_comm* comm, bp_stream* stream);

  /// Ends all queued work: before the streams end.
  void abort_all();

 private:
  using Owned = std::shared_ptr<Communicator>;
  struct Group {
    struct Part {
      Owned comm;
      Stream* stream;
      Batch batch;
    };
    int depth = 0;
    std::vector<Part> parts;
  };
  /// One call on its way into a batch.
  class Entry;

  Stream& stream_of(int32_t device, bp_stream* stream);
  Owned find(bp_comm* comm, const char* call);
  void add(Owned&& comm, bp_comm** out);
  void check_config(const bp_comm_config* config, const char* call) const;
  Group* open_group();
  void queue(const Owned& comm, Stream& on, Batch&& batch);
  void enqueue(const Owned& comm, Stream& on, Batch&& batch);
  void reduction(Collective kind, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op,
                 int32_t root);

  Devices& devices_;
  std::mutex mutex_;
  std::map<bp_comm*, Owned> comms_;
  std::map<uint64_t, File> made_;  // by inode: what make_id gave and nobody here has joined yet
  std::map<std::thread::id, Group> groups_;
  std::atomic<size_t> open_groups_{0};
};

}  // namespace backplane::driver::sim
