// distributed/native_group.cpp: the life of communicators, and what is queued on them; native_batch.h has the calls.
#include "distributed/native_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/native_batch.h"
#include "distributed/recording.h"
#include "memory/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane::distributed {
namespace native_group_impl {
namespace {

// A message does not join, since it needs no other rank: before there is a communicator it is staged. Of a batch of messages all ranks
// take part in the first (torch.distributed.batch_isend_irecv).
bool joins(c10d::OpType type, bool is_batched) {
  return is_batched || (type != c10d::OpType::SEND && type != c10d::OpType::RECV && type != c10d::OpType::RECVANYSOURCE);
}

}  // namespace
}  // namespace native_group_impl

using namespace native_group_impl;

NativeGroup::NativeGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                         GlooFactory make_gloo)
    : StagedGroup(store, rank, size, std::move(options), std::move(make_gloo)), store_(store) {}

NativeGroup::~NativeGroup() {
  for (const auto& engine : engines()) engine->shutdown();
}

CommunicatorSettings NativeGroup::settings() const { return {title_, getRank(), getSize(), options_->timeout}; }

c10::Device NativeGroup::own_device() {
  const auto there = engines();
  return bound_device_id_ || there.empty() ? StagedGroup::own_device() : there.front()->device();
}

c10::Device NativeGroup::barrier_device() {
  if (bound_device_id_ || !engines().empty()) return own_device();
  const auto place = static_cast<size_t>(getRank());
  const auto& ranks = options_->global_ranks_in_group;
  const uint64_t rank = place < ranks.size() ? ranks[place] : place;
  return {kDevice, static_cast<c10::DeviceIndex>(rank % static_cast<uint64_t>(std::max<int>(device_count(), 1)))};
}

std::vector<std::shared_ptr<NativeEngine>> NativeGroup::engines() {
  const std::lock_guard<std::mutex> lock(engines_mutex_);
  return engines_;
}

std::shared_ptr<NativeEngine> NativeGroup::engine_if_there(c10::Device device) {
  for (const auto& engine : engines()) {
    if (engine->device() == device) return engine;
  }
  return nullptr;
}

void NativeGroup::throw_if_failed() const {
  if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
}

// What a store waits for cannot be interrupted, and holds others who ask it: it is asked again and again, more and more rarely.
std::string NativeGroup::exchange_id(const std::string& key, std::string id, NativeEngine::Deadline deadline) {
  if (getRank() == 0) {
    store_->set(key, std::vector<uint8_t>(id.begin(), id.end()));
    return id;
  }
  std::chrono::nanoseconds pause = std::chrono::milliseconds(1);
  const int32_t status = interruptible_wait([&](uint64_t slice_ns) -> int32_t {
    throw_if_failed();
    if (store_->check({key})) return BP_OK;
    if (std::chrono::steady_clock::now() >= deadline) return BP_PENDING;
    std::this_thread::sleep_for(std::min(pause, std::chrono::nanoseconds(std::min<uint64_t>(slice_ns, 1'000'000'000))));
    pause *= 2;
    return BP_TIMEOUT;
  });
  TORCH_CHECK_WITH(DistBackendError, status == BP_OK, "rank 0 has not come within ",
                   status == BP_PENDING ? c10::str(options_->timeout.count(), " ms, which is the timeout") : "what the watchdog allows");
  const std::vector<uint8_t> bytes = store_->get(key);
  return std::string(bytes.begin(), bytes.end());
}

std::shared_ptr<NativeEngine> NativeGroup::engine_on(c10::Device device) {
  if (auto engine = engine_if_there(device)) return engine;
  const std::lock_guard<std::mutex> lock(joining_);
  if (auto engine = engine_if_there(device)) return engine;  // another thread has joined meanwhile
  throw_if_failed();
  try {
    return join(device);
  } catch (const std::exception& error) {
    const auto* torchs = dynamic_cast<const c10::Error*>(&error);
    for (const auto& engine : engines()) engine->abort("cannot be used any more, since another device of this rank has not joined");
    fail(c10::str("has not joined its ranks on ", device, ": ", torchs != nullptr ? torchs->what_without_backtrace() : error.what(),
                  "\nDestroy it, and make another."));
    if (dynamic_cast<const c10::DistError*>(&error) != nullptr) throw_if_failed();  // the store's errors are of other classes
    throw;
  }
}

std::shared_ptr<NativeEngine> NativeGroup::join(c10::Device device) {
  const std::string key = c10::str("bp.collective/", engines().size());  // the same on all ranks
  auto engine = NativeEngine::connect(
      device, settings(), [&](std::string id, NativeEngine::Deadline deadline) { return exchange_id(key, std::move(id), deadline); },
      [&] { throw_if_failed(); });
  const std::lock_guard<std::mutex> lock(engines_mutex_);
  throw_if_failed();  // aborted meanwhile: who does that looks at engines_ afterwards
  engines_.push_back(engine);
  return engine;
}

void NativeGroup::eagerConnectSingleDevice(at::Device device) { engine_on({kDevice, resolve_device(device.index())}); }

DeviceGroup::Work NativeGroup::carry_out(const Request& request, const Tensors& results, Fill fill) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto engine = joins(request.type, coalesced_ != nullptr) ? engine_on(request.device) : engine_if_there(request.device);
  if (engine == nullptr) return StagedGroup::carry_out(request, results, fill);
  Batch batch(*engine, request, getRank(), getSize(), coalesced_ != nullptr);
  if (!fill(batch)) return StagedGroup::carry_out(request, results, fill);
  Pending& pending = batch.pending;
  if (coalesced_ != nullptr) {
    TORCH_CHECK_VALUE(coalesced_->calls.empty() || coalesced_->device == pending.device, pending.name, ": a tensor is on ", pending.device,
                      ", the calls before it in the batch are of ", coalesced_->device);
    pending.work = coalesced_->work;
  } else {
    const Tensors inputs = request.input.defined() ? Tensors{request.input} : Tensors{};
    pending.work = c10::make_intrusive<NativeWork>(getRank(), request.type, request.title, ++sequence_, request.device, inputs);
  }
  for (const at::Tensor& result : results) pending.work->add_result(result);
  const Recording recording(*this, *options_, request.type, sequence_, request.input, results);
  if (coalesced_ == nullptr) return run(pending, *engine, nullptr);
  coalesced_->add(pending);
  return pending.work;
}

DeviceGroup::Work NativeGroup::run(Pending& pending, NativeEngine& engine, Work staged) {
  const uint32_t most = engine.properties().max_group;
  TORCH_CHECK_NOT_IMPLEMENTED(pending.calls.size() <= 1 || most == 0 || pending.calls.size() <= most, pending.name, " is ",
                              pending.calls.size(), " calls of the driver at once, which takes ", most, ": use smaller batches, or ",
                              BACKPLANE_ENV_PREFIX, "_DIST=staged");
  // Before: of calls that fail in their midst, some are queued.
  for (const at::Tensor& tensor : pending.kept) {
    if (tensor.numel() > 0) caching_allocator().recordStream(tensor.storage().data_ptr(), engine.stream());
  }
  const auto call = engine.run(
      pending.name, pending.timeout, pending.calls.size() > 1,
      [&](bp_comm* comm, bp_stream* stream) {
        for (const auto& one : pending.calls) one(comm, stream);
      },
      [&] {
        for (const auto& one : pending.after) one();
      });
  const c10::StreamGuard guard(engine.stream());  // which the future's callbacks find
  pending.work->queued(engine.shared_from_this(), call, std::move(staged));
  return pending.work;
}

DeviceGroup::Work NativeGroup::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_NOT_IMPLEMENTED(tag != 0,
                              "a receive from any rank goes through the host, where it needs the sender's message: give both a tag that is "
                              "not 0, or name the rank");
  return DeviceGroup::recvAnysource(tensors, tag);
}

void NativeGroup::startCoalescing() {
  StagedGroup::startCoalescing();
  const c10::Device device = own_device();
  coalesced_ = std::make_unique<Pending>(Pending{device, options_->timeout, "a batch of calls"});
  coalesced_->work =
      c10::make_intrusive<NativeWork>(getRank(), c10d::OpType::COALESCED, BACKPLANE_TITLE("coalesced"), ++sequence_, device, Tensors{});
}

DeviceGroup::Work NativeGroup::endCoalescing() {
  Work staged = StagedGroup::endCoalescing();
  const std::unique_ptr<Pending> pending = std::exchange(coalesced_, nullptr);
  if (pending->calls.empty()) return staged;
  return run(*pending, *engine_if_there(pending->device), std::move(staged));
}

c10::intrusive_ptr<c10d::Backend> NativeGroup::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  auto part = StagedGroup::split(store, ranks, options);
  for (const auto& engine : engines()) {
    if (!engine->has(BP_COLLECTIVE_SPLIT)) return part;
    if (part == nullptr) {
      engine->split(-1, settings());
    } else {
      auto& own = static_cast<NativeGroup&>(*part);
      own.engines_.push_back(engine->split(ranks.front(), own.settings()));
    }
  }
  return part;
}

c10::intrusive_ptr<c10d::Backend> NativeGroup::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                         c10::intrusive_ptr<GroupOptions> options) {
  return c10::make_intrusive<NativeGroup>(store, rank, size, std::move(options), make_gloo_);
}

c10d::ErrorType NativeGroup::getError() {
  for (const auto& engine : engines()) {
    if (engine->failure() != nullptr) return c10d::ErrorType::COMM_ERROR;
  }
  return StagedGroup::getError();
}

// The host's part first: a thread that is joining finds its failure, and adds no communicator to those that end here.
void NativeGroup::abort() {
  StagedGroup::abort();
  for (const auto& engine : engines()) engine->abort("was aborted");
}

void NativeGroup::shutdown() {
  StagedGroup::shutdown();
  for (const auto& engine : engines()) engine->shutdown();
}

}  // namespace backplane::distributed
