// tests/driver/fake_nccl/communicators.cpp: how communicators begin, part and end.
#include <cstring>

#include "fake.h"

namespace fake_nccl {
namespace {

constexpr uint64_t kEndTimeout = 20'000'000'000;

bp_comm_config config_of(int rank, int size) {
  bp_comm_config config{};
  config.struct_size = sizeof config;
  config.name = "fake NCCL";
  config.timeout_ns = kEndTimeout;
  config.rank = rank;
  config.size = size;
  return config;
}

ncclComm_t add_comm(const Shared& comm) {
  const std::lock_guard lock(state().mutex);
  auto handle = reinterpret_cast<ncclComm_t>(comm.get());
  state().comms[handle] = comm;
  return handle;
}

bool bad(const ncclConfig_t* config) { return !config || config->magic != kNcclMagic || config->blocking != 0; }

/// What the ranks of a split exchange.
struct Wish {
  int color, key;
};

std::shared_ptr<sim::Communicator> part_of(sim::Communicator& whole, Wish own, int* rank, int* size) {
  std::vector<Wish> all(static_cast<size_t>(whole.size()));
  sim::Batch batch;
  const sim::Call call{static_cast<uint32_t>(sim::Collective::all_gather), 0, 0, sizeof own, -1};
  batch.exchanges.push_back(sim::Exchange(call, reinterpret_cast<const char*>(&own), reinterpret_cast<char*>(all.data())));
  whole.run(batch, whole.take_turn());
  whole.check();
  *rank = *size = 0;
  for (int other = 0; other < whole.size(); ++other) {
    const Wish& wish = all[static_cast<size_t>(other)];
    if (wish.color != own.color) continue;
    ++*size;
    if (wish.key < own.key || (wish.key == own.key && other < whole.rank())) ++*rank;
  }
  const bp_comm_config config = config_of(*rank, *size);
  std::vector<sim::File> kept;
  sim::File file = whole.split(own.color, own.color < 0 ? nullptr : &config, kept);
  return own.color < 0 ? nullptr : std::make_shared<sim::Communicator>(0, config, std::move(file));
}

ncclResult_t end(const char* name, ncclComm_t handle, bool by_abort) {
  Shared comm;
  if (const ncclResult_t result = enter(name, "", handle, &comm, by_abort)) return result;
  comm->dead = true;
  std::shared_ptr<sim::Communicator> rendezvous = comm->met();
  if (rendezvous && by_abort) rendezvous->abort();
  if (!by_abort) pass(&State::holds_destroy);
  if (rendezvous) rendezvous->finish(kEndTimeout);
  const std::lock_guard lock(state().mutex);
  state().comms.erase(handle);
  const std::lock_guard held_comm(comm->mutex);
  comm->rendezvous.reset();
  return ncclSuccess;
}

}  // namespace

FAKE_NCCL(ncclGetUniqueId, ncclUniqueId* id) {
  if (const ncclResult_t result = enter("ncclGetUniqueId", "")) return result;
  sim::File file = sim::Rendezvous::make();
  const bp_ipc_handle handle = sim::handle_of(sim::What::rendezvous, file.number(), 0, 0);
  const std::lock_guard lock(state().mutex);
  state().made.push_back(std::move(file));
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &handle, sizeof handle);
  return ncclSuccess;
}

FAKE_NCCL(ncclCommInitRankConfig, ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const auto name = [&] { return config && config->size > offsetof(ncclConfig_t, commName) ? config->commName : "-"; };
  if (const ncclResult_t result = enter("ncclCommInitRankConfig", backplane::driver::format(" %d of %d, %s", rank, ranks, name())))
    return result;
  if (bad(config)) return refuse(ncclInvalidArgument, "the config is none of a communicator that does not block");
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->size = ranks;
  if (fake::cuda<int(void**)>("cuCtxGetCurrent")(&comm->context) != 0 || !comm->context) {
    return refuse(ncclUnhandledCudaError, "no context is current");
  }
  *out = add_comm(comm);
  bp_ipc_handle handle;
  std::memcpy(&handle, &id, sizeof handle);
  in_background(comm, [comm, handle] {
    auto rendezvous = std::make_shared<sim::Communicator>(0, config_of(comm->rank, comm->size),
                                                          sim::open_file(sim::name_of(handle, sim::What::rendezvous)));
    const std::lock_guard lock(comm->mutex);
    if (!comm->dead) comm->rendezvous = std::move(rendezvous);
  });
  return ncclInProgress;
}

FAKE_NCCL(ncclCommSplit, ncclComm_t handle, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  Shared comm;
  if (const ncclResult_t result = enter("ncclCommSplit", backplane::driver::format(" color %d key %d", color, key), handle, &comm))
    return result;
  if (bad(config)) return refuse(ncclInvalidArgument, "the config is none of a communicator that does not block");
  *part = nullptr;
  comm->state = ncclInProgress;
  in_background(comm, [comm, color, key, part] {
    auto made = std::make_shared<Comm>();
    made->context = comm->context;
    made->rendezvous = part_of(*comm->met(), {color, key}, &made->rank, &made->size);
    made->state = ncclSuccess;
    if (made->rendezvous) *part = add_comm(made);
  });
  return ncclInProgress;
}

FAKE_NCCL(ncclCommFinalize, ncclComm_t handle) {
  Shared comm;
  if (const ncclResult_t result = enter("ncclCommFinalize", "", handle, &comm)) return result;
  comm->state = ncclInProgress;
  in_background(comm, [comm] { comm->met()->finish(kEndTimeout); });
  return ncclInProgress;
}

FAKE_NCCL(ncclCommDestroy, ncclComm_t comm) { return end("ncclCommDestroy", comm, false); }
FAKE_NCCL(ncclCommAbort, ncclComm_t comm) { return end("ncclCommAbort", comm, true); }

FAKE_NCCL(ncclCommGetAsyncError, ncclComm_t handle, ncclResult_t* out) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().comms.find(handle);
  if (found == state().comms.end()) return refuse(ncclInvalidArgument, "ncclCommGetAsyncError of a communicator that is gone");
  *out = found->second->state;
  const auto rendezvous = *out == ncclSuccess ? found->second->met() : nullptr;
  if (!rendezvous) return ncclSuccess;
  std::string why;
  const int32_t status = rendezvous->status(&why);
  if (status != BP_OK) *out = refuse(status == BP_DEVICE_LOST ? ncclRemoteError : ncclInternalError, why);
  return ncclSuccess;
}

FAKE_NCCL(ncclCommCount, ncclComm_t handle, int* ranks) {
  Shared comm;
  if (const ncclResult_t result = enter("ncclCommCount", "", handle, &comm)) return result;
  *ranks = comm->size;
  return ncclSuccess;
}

FAKE_NCCL(ncclCommUserRank, ncclComm_t handle, int* rank) {
  Shared comm;
  if (const ncclResult_t result = enter("ncclCommUserRank", "", handle, &comm)) return result;
  *rank = comm->rank;
  return ncclSuccess;
}

}  // namespace fake_nccl
