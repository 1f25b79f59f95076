// drivers/cuda/communicator.cpp: see communicator.h.
#include "communicator.h"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "work.h"

namespace backplane::driver::cuda {

Communicator::Communicator(Gpu& gpu, std::shared_ptr<const Nccl> nccl, const bp_comm_config& config)
    : cuda_(gpu.cuda),
      gpu_(gpu),
      nccl_(std::move(nccl)),
      link_(std::make_shared<Link>(config.name)),
      rank_(config.rank),
      size_(config.size),
      timeout_ns_(config.timeout_ns) {
  CUevent event = nullptr;
  gpu_.device.check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  last_ = gpu_.device.events.add(std::make_unique<Event>(event, false).release());
}

// One that has ended, is left behind, or never was complete.
Communicator::~Communicator() {
  end(true);
  const Current current(cuda_, gpu_.device.context_if_any());
  if (!gpu_.device.events.forget(last_)) return;
  cuda_.cuEventDestroy_v2(last_->native);
  delete last_;
}

std::shared_ptr<Communicator> Communicator::join(Gpu& gpu, std::shared_ptr<const Nccl> nccl, const bp_comm_config& config) {
  std::shared_ptr<Communicator> made(new Communicator(gpu, std::move(nccl), config));
  ncclUniqueId id;
  std::memcpy(&id, config.id, sizeof id);
  ncclConfig_t settings = made->nccl_->config(made->link_->name.c_str(), config.max_units);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = made->nccl_->ncclCommInitRankConfig(&comm, config.size, id, config.rank, &settings);
  made->link_->comm = comm;
  made->taken("ncclCommInitRankConfig", result);
  made->settle("ncclCommInitRankConfig");
  return made;
}

std::shared_ptr<Communicator> Communicator::split(int32_t color, const bp_comm_config* config) {
  const Deadline deadline(config ? config->timeout_ns : timeout_ns_);
  // NCCL does not split while work is queued.
  if (!work_done(deadline.left_ns())) throw Error(BP_TIMEOUT, "collective.split: the communicator's work is not complete");
  std::shared_ptr<Communicator> made;
  ncclConfig_t settings = nccl_->config(link_->name.c_str(), 0);
  if (color >= 0) {
    made.reset(new Communicator(gpu_, nccl_, *config));
    settings = nccl_->config(made->link_->name.c_str(), config->max_units);
  }
  const int key = config ? config->rank : 0;
  link_->part = nullptr;
  Calls(*this).make("ncclCommSplit", [&](ncclComm_t comm) { return nccl_->ncclCommSplit(comm, color, key, &link_->part, &settings); });
  settle("ncclCommSplit");
  if (!made) return nullptr;
  made->link_->comm = std::exchange(link_->part, nullptr);
  int ranks = 0, rank = 0;
  Calls calls(*made);
  calls.make("ncclCommCount", [&](ncclComm_t comm) { return nccl_->ncclCommCount(comm, &ranks); });
  calls.make("ncclCommUserRank", [&](ncclComm_t comm) { return nccl_->ncclCommUserRank(comm, &rank); });
  if (ranks != config->size || rank != config->rank) {
    throw Error(BP_INVALID_ARGUMENT,
                format("collective.split: NCCL makes it rank %d of %d, config has rank %d of %d", rank, ranks, config->rank, config->size));
  }
  return made;
}

// ---- calls

Communicator::Calls::Calls(Communicator& of) : of_(&of), lock_(of.link_->calls) { of.check(); }

void Communicator::taken(const char* name, ncclResult_t result) {
  const bp_status status = status_of_call(result);
  if (status == BP_OK || status == BP_PENDING) return;
  const std::string text = nccl_->text(name, result);
  // NCCL's error came from CUDA, which gives it here, too.
  if (result == ncclUnhandledCudaError) gpu_.device.query(cuda_.cuStreamQuery(nullptr), "cuStreamQuery");
  throw Error(status, text);
}

void Communicator::settle(const char* name) {
  const auto progress = [&] {
    const std::lock_guard lock(link_->calls);
    return ask();
  };
  if (wait(timeout_ns_, progress) == BP_TIMEOUT) {
    const std::string text = format("%s: not all ranks came within %.3f s", name, static_cast<double>(timeout_ns_) * 1e-9);
    fail(BP_TIMEOUT, text);
    throw Error(BP_TIMEOUT, text);
  }
  check();
}

void Communicator::queued_on(CUstream stream) {
  gpu_.device.check(cuda_.cuEventRecord(last_->native, stream), "cuEventRecord");
  used_ = true;
}

int32_t Communicator::ask() {
  ncclComm_t comm = link_->comm.load();
  if (failed() || !comm) return BP_OK;
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = nccl_->ncclCommGetAsyncError(comm, &state);
  if (result == ncclSuccess) result = state;
  if (result == ncclInProgress) return BP_PENDING;
  if (result != ncclSuccess) fail(status_of_failure(result), nccl_->text("NCCL", result));
  return BP_OK;
}

// ---- failures

int32_t Communicator::status(std::string* text) {
  // While a call of NCCL is under way it reports nothing new.
  if (const std::unique_lock lock(link_->calls, std::try_to_lock); lock && !failed()) {
    if (gpu_.device.failed()) fail(BP_INTERNAL, format("device %d is in error", gpu_.device.ordinal()));
    ask();
  }
  const std::lock_guard lock(mutex_);
  if (text) *text = text_;
  return status_.load();
}

void Communicator::check() {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  throw Error(BP_INTERNAL, "the communicator has failed: " + text_);
}

void Communicator::fail(int32_t status, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (failed()) return;
    text_ = link_->name + ": " + text;
    status_.store(status, std::memory_order_release);
  }
  end(true);  // what is queued waits for peers until then
}

// ---- the end

void Communicator::end(bool by_abort) {
  {
    const std::lock_guard lock(link_->mutex);
    if (link_->ending) return;
    link_->ending = true;
  }
  const auto work = [link = link_, nccl = nccl_, by_abort, make_current = cuda_.cuCtxSetCurrent, context = gpu_.device.context_if_any()] {
    make_current(context);  // else NCCL takes device 0 for this thread's
    ncclComm_t comm = nullptr;
    {
      // A call that hangs inside NCCL returns when the communicator is aborted.
      const std::unique_lock lock(link->calls, std::chrono::seconds(1));
      comm = link->comm.exchange(nullptr);
    }
    // Without the lock: waits for this communicator end at once.
    if (comm) by_abort ? nccl->ncclCommAbort(comm) : nccl->ncclCommDestroy(comm);
    const std::lock_guard lock(link->mutex);
    link->ended = true;
    link->over.notify_all();
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {
    const Current current(cuda_, gpu_.device.context_if_any());
    work();
  }
}

bool Communicator::ended_within(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  std::unique_lock lock(link_->mutex);
  return deadline.wait(link_->over, lock, [&] { return link_->ended; });
}

bool Communicator::work_done(uint64_t timeout_ns) {
  if (!used_) return true;
  const auto done = [&] {
    const CUresult result = cuda_.cuEventQuery(last_->native);
    gpu_.device.note(result);
    if (result != CUDA_ERROR_NOT_READY) return BP_OK;
    return status() == BP_OK ? BP_PENDING : BP_OK;
  };
  return wait(timeout_ns, done) == BP_OK;
}

bool Communicator::finish(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  if (!work_done(deadline.left_ns())) return false;
  if (status() == BP_OK && used_) {  // what peers have not read yet is sent
    try {
      if (!finalized_) Calls(*this).make("ncclCommFinalize", [&](ncclComm_t comm) { return nccl_->ncclCommFinalize(comm); });
      finalized_ = true;
    } catch (const Error& error) {
      fail(BP_INTERNAL, error.what());
    }
    const auto progress = [&] {
      const std::lock_guard lock(link_->calls);
      return ask();
    };
    if (wait(deadline.left_ns(), progress) == BP_TIMEOUT) return false;
  }
  end(false);
  // The abort ends its work; the other way waits for ranks of this machine, with which the caller has nothing to do.
  return ended_within(deadline.left_ns()) || !failed() || gpu_.device.failed();
}

}  // namespace backplane::driver::cuda
