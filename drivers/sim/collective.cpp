// drivers/sim/collective.cpp: the entries of bp.collective: what they check, and the part of a batch that each call becomes.
#include "collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "reduce.h"

namespace backplane::driver::sim {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, "collective." + text); }

uint64_t product(uint64_t a, int32_t b, const char* call) {
  uint64_t all = 0;
  if (__builtin_mul_overflow(a, static_cast<uint64_t>(b), &all)) refuse(std::string(call) + ": the size overflows");
  return all;
}

}  // namespace

/// Checks one call and puts its batch together.
class Collectives::Entry {
 public:
  Entry(Collectives& all, Collective kind, bp_comm* comm, bp_stream* stream)
      : all_(all), kind_(kind), comm_(all.find(comm, name_of(kind))), on_(all.stream_of(comm_->device(), stream)) {
    comm_->check();
  }

  int32_t rank() const { return comm_->rank(); }
  int32_t size() const { return comm_->size(); }
  void check_rank(const char* what, int32_t rank) const {
    if (rank < 0 || rank >= size()) refuse(format("%s: %s is %d, there are ranks 0 to %d", name_of(kind_), what, rank, size() - 1));
  }
  char* memory(uint64_t address, uint64_t bytes, uint64_t element = 1) const {
    if (address % element != 0) refuse(format("%s: an address is not aligned to its elements", name_of(kind_)));
    return all_.devices_.memory(comm_->device()).range(address, bytes, name_of(kind_));
  }

  void exchange(uint64_t count, uint64_t dtype, int32_t op, int64_t root, const char* in, char* out, std::vector<uint64_t> sizes = {}) {
    batch_.exchanges.push_back(Exchange({static_cast<uint32_t>(kind_), op, dtype, count, root}, in, out, std::move(sizes)));
  }
  void message(bool sends, int32_t peer, char* data, uint64_t bytes) { batch_.messages.push_back({kind_, sends, peer, data, bytes}); }
  void queue() { all_.queue(comm_, on_, std::move(batch_)); }

 private:
  Collectives& all_;
  const Collective kind_;
  const Owned comm_;
  Stream& on_;
  Batch batch_;
};

Stream& Collectives::stream_of(int32_t device, bp_stream* stream) {
  Stream& on = devices_.usable(device, stream);
  devices_.captures().check_stream("a call of bp.collective", &on);
  return on;
}

void Collectives::properties(int32_t device, bp_collective_properties* out) {
  devices_.check_index(device);
  out->id_bytes = sizeof(bp_ipc_handle);
  std::copy(reduced_dtypes().begin(), reduced_dtypes().end(), out->reduces);
  out->max_size = devices_.settings.ranks;
}

void Collectives::make_id(int32_t device, void* out) {
  devices_.at(device).check();
  if (!out) refuse("make_id: out must not be NULL");
  File file = Rendezvous::make();
  const bp_ipc_handle id = handle_of(What::rendezvous, file.number(), 0, 0);
  std::lock_guard lock(mutex_);
  made_.emplace(name_of(id, What::rendezvous).inode, std::move(file));
  std::memcpy(out, &id, sizeof id);
}

void Collectives::check_config(const bp_comm_config* config, const char* call) const {
  if (!config || config->struct_size < sizeof *config || !config->name || config->flags != 0) {
    refuse(std::string(call) + ": config, with its struct_size and name and without flags, is needed");
  }
  if (config->size < 1 || config->rank < 0 || config->rank >= config->size) {
    refuse(format("%s: rank %d of %d is out of range", call, config->rank, config->size));
  }
  if (config->size > devices_.settings.ranks) {
    throw Error(BP_UNSUPPORTED, format("collective.%s: %d ranks; this driver takes %d (option collective_ranks)", call, config->size,
                                       devices_.settings.ranks));
  }
}

void Collectives::create(int32_t device, const bp_comm_config* config, bp_comm** out) {
  devices_.at(device).check();
  check_config(config, "create");
  if (!config->id || !out) refuse("create: the id and out must not be NULL");
  bp_ipc_handle id;
  std::memcpy(&id, config->id, sizeof id);
  const Name name = name_of(id, What::rendezvous);
  const auto use_up = [&] {
    std::lock_guard lock(mutex_);
    made_.erase(name.inode);
  };
  try {
    add(std::make_shared<Communicator>(device, *config, open_file(name)), out);
  } catch (const Error& error) {
    if (error.status() != BP_INVALID_ARGUMENT) use_up();  // which is a mistake of one rank: the right ones may still meet
    throw;
  }
  use_up();
}

void Collectives::split(bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
  const Owned whole = find(comm, "split");
  if (color < -1 || !out) refuse("split: color is -1 or more, out must not be NULL");
  if (color >= 0) check_config(config, "split");
  whole->check();
  std::vector<File> kept;
  File file = whole->split(color, config, kept);
  if (color < 0) {
    *out = nullptr;
  } else {
    add(std::make_shared<Communicator>(whole->device(), *config, std::move(file)), out);
  }
}

int32_t Collectives::destroy(bp_comm* comm, uint64_t timeout_ns) {
  const Owned gone = find(comm, "destroy");
  if (!gone->finish(timeout_ns)) throw Error(BP_TIMEOUT, "collective.destroy: the communicator's work is not complete");
  std::lock_guard lock(mutex_);
  comms_.erase(comm);
  return BP_OK;
}

void Collectives::abort(bp_comm* comm) { find(comm, "abort")->abort(); }

void Collectives::status(bp_comm* comm, int32_t* out, char* text, uint64_t size) {
  if (!out || (size && !text)) refuse("status: out, and text of a size, must not be NULL");
  std::string why;
  *out = find(comm, "status")->status(&why);
  if (size) std::snprintf(text, size, "%s", why.c_str());
}

void Collectives::abort_all() {
  std::lock_guard lock(mutex_);
  for (auto& [handle, comm] : comms_) {
    if (!comm->finish(0)) comm->abort();
  }
}

Collectives::Owned Collectives::find(bp_comm* comm, const char* call) {
  std::lock_guard lock(mutex_);
  const auto found = comms_.find(comm);
  if (found == comms_.end()) refuse(std::string(call) + ": no live communicator of this driver");
  return found->second;
}

void Collectives::add(Owned&& comm, bp_comm** out) {
  std::lock_guard lock(mutex_);
  bp_comm* handle = reinterpret_cast<bp_comm*>(comm.get());
  comms_.emplace(handle, std::move(comm));
  *out = handle;
}

// ---- groups

void Collectives::group_begin() {
  std::lock_guard lock(mutex_);
  if (groups_[std::this_thread::get_id()].depth++ == 0) open_groups_.fetch_add(1);
}

void Collectives::group_end() {
  Group group;
  {
    std::lock_guard lock(mutex_);
    const auto found = groups_.find(std::this_thread::get_id());
    if (found == groups_.end()) refuse("group_end: no group was begun on this thread");
    if (--found->second.depth != 0) return;
    group = std::move(found->second);
    groups_.erase(found);
    open_groups_.fetch_sub(1);
  }
  for (const Group::Part& part : group.parts) devices_.at(part.comm->device()).check();
  for (Group::Part& part : group.parts) {
    enqueue(part.comm, *part.stream, std::move(part.batch));
  }
}

/// The calling thread's, with the lock held; nullptr if there is none.
Collectives::Group* Collectives::open_group() {
  const auto found = groups_.find(std::this_thread::get_id());
  return found == groups_.end() ? nullptr : &found->second;
}

void Collectives::queue(const Owned& comm, Stream& on, Batch&& batch) {
  if (open_groups_.load() != 0) {
    std::lock_guard lock(mutex_);
    if (Group* group = open_group()) {
      auto part = std::find_if(group->parts.begin(), group->parts.end(), [&](const Group::Part& one) { return one.comm == comm; });
      if (part == group->parts.end()) part = group->parts.insert(part, {comm, &on, {}});
      if (part->stream != &on) refuse("a group: the calls of one communicator name the same stream");
      for (Exchange& one : batch.exchanges) part->batch.exchanges.push_back(std::move(one));
      for (Message& one : batch.messages) part->batch.messages.push_back(std::move(one));
      return;
    }
  }
  for (const Message& one : batch.messages) {
    if (batch.exchanges.empty() && one.peer == comm->rank()) refuse("send or recv with the own rank: in a group alone, which has both");
  }
  enqueue(comm, on, std::move(batch));
}

void Collectives::enqueue(const Owned& comm, Stream& on, Batch&& batch) {
  auto record_of = devices_.record(on, {BP_ACTIVITY_COLLECTIVE, batch.bytes(), 0, 0, batch.name()});
  devices_.pause(on, devices_.delay());
  comm->queue(on, std::move(batch), std::move(record_of));
}

// ---- what queues

void Collectives::reduction(Collective kind, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype,
                            int32_t op, int32_t root) {
  Entry entry(*this, kind, comm, stream);
  if (op < 0 || op >= BP_REDUCE_COUNT || bytes_of_dtype(dtype) == 0 || !(reduced_dtypes()[static_cast<size_t>(op)] & dtype)) {
    refuse(format("%s: op %d does not take dtype 0x%llx", name_of(kind), op, wide(dtype)));
  }
  if (kind == Collective::reduce) entry.check_rank("root", root);
  const uint64_t element = bytes_of_dtype(dtype);
  const uint64_t bytes = product(count, static_cast<int32_t>(element), name_of(kind));
  const uint64_t all = kind == Collective::reduce_scatter ? product(bytes, entry.size(), name_of(kind)) : bytes;
  const bool writes = kind != Collective::reduce || root == entry.rank();
  entry.exchange(count, dtype, op, root, entry.memory(in, all, element), writes ? entry.memory(out, bytes, element) : nullptr);
  entry.queue();
}

void Collectives::all_reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op) {
  reduction(Collective::all_reduce, comm, stream, out, in, count, dtype, op, -1);
}
void Collectives::reduce(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op,
                         int32_t root) {
  reduction(Collective::reduce, comm, stream, out, in, count, dtype, op, root);
}
void Collectives::reduce_scatter(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op) {
  reduction(Collective::reduce_scatter, comm, stream, out, in, count, dtype, op, -1);
}

void Collectives::broadcast(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root) {
  Entry entry(*this, Collective::broadcast, comm, stream);
  entry.check_rank("root", root);
  entry.exchange(bytes, 0, 0, root, root == entry.rank() ? entry.memory(in, bytes) : nullptr, entry.memory(out, bytes));
  entry.queue();
}

void Collectives::all_gather(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes) {
  Entry entry(*this, Collective::all_gather, comm, stream);
  entry.exchange(bytes, 0, 0, -1, entry.memory(in, bytes), entry.memory(out, product(bytes, entry.size(), "all_gather")));
  entry.queue();
}

void Collectives::send(bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer) {
  Entry entry(*this, Collective::send, comm, stream);
  entry.check_rank("peer", peer);
  entry.message(true, peer, entry.memory(in, bytes), bytes);
  entry.queue();
}
void Collectives::recv(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer) {
  Entry entry(*this, Collective::recv, comm, stream);
  entry.check_rank("peer", peer);
  entry.message(false, peer, entry.memory(out, bytes), bytes);
  entry.queue();
}

void Collectives::all_to_all(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes) {
  Entry entry(*this, Collective::all_to_all, comm, stream);
  const uint64_t all = product(bytes, entry.size(), "all_to_all");
  char *from = entry.memory(in, all), *to = entry.memory(out, all);
  entry.exchange(bytes, 0, 0, -1, nullptr, nullptr);
  for (int32_t rank = 0; rank < entry.size(); ++rank) {
    entry.message(true, rank, from + static_cast<uint64_t>(rank) * bytes, bytes);
    entry.message(false, rank, to + static_cast<uint64_t>(rank) * bytes, bytes);
  }
  entry.queue();
}

void Collectives::all_to_all_v(bp_comm* comm, bp_stream* stream, uint64_t out, const uint64_t* out_bytes, const uint64_t* out_at,
                               uint64_t in, const uint64_t* in_bytes, const uint64_t* in_at) {
  Entry entry(*this, Collective::all_to_all_v, comm, stream);
  if (!out_bytes || !out_at || !in_bytes || !in_at) refuse("all_to_all_v: the four arrays must not be NULL");
  std::vector<uint64_t> sizes(in_bytes, in_bytes + entry.size());
  sizes.insert(sizes.end(), out_bytes, out_bytes + entry.size());
  entry.exchange(0, 0, 0, -1, nullptr, nullptr, std::move(sizes));
  for (int32_t rank = 0; rank < entry.size(); ++rank) {
    entry.message(true, rank, entry.memory(in + in_at[rank], in_bytes[rank]), in_bytes[rank]);
    entry.message(false, rank, entry.memory(out + out_at[rank], out_bytes[rank]), out_bytes[rank]);
  }
  entry.queue();
}

void Collectives::gather(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root) {
  Entry entry(*this, Collective::gather, comm, stream);
  entry.check_rank("root", root);
  entry.exchange(bytes, 0, 0, root, nullptr, nullptr);
  entry.message(true, root, entry.memory(in, bytes), bytes);
  if (root == entry.rank()) {
    char* to = entry.memory(out, product(bytes, entry.size(), "gather"));
    for (int32_t rank = 0; rank < entry.size(); ++rank) entry.message(false, rank, to + static_cast<uint64_t>(rank) * bytes, bytes);
  }
  entry.queue();
}

void Collectives::scatter(bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root) {
  Entry entry(*this, Collective::scatter, comm, stream);
  entry.check_rank("root", root);
  entry.exchange(bytes, 0, 0, root, nullptr, nullptr);
  if (root == entry.rank()) {
    char* from = entry.memory(in, product(bytes, entry.size(), "scatter"));
    for (int32_t rank = 0; rank < entry.size(); ++rank) entry.message(true, rank, from + static_cast<uint64_t>(rank) * bytes, bytes);
  }
  entry.message(false, root, entry.memory(out, bytes), bytes);
  entry.queue();
}

void Collectives::barrier(bp_comm* comm, bp_stream* stream) {
  Entry entry(*this, Collective::barrier, comm, stream);
  entry.exchange(0, 0, 0, -1, nullptr, nullptr);
  entry.queue();
}

}  // namespace backplane::driver::sim
