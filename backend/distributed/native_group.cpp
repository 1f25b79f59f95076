// distributed/native_group.cpp: the life of communicators, and what is queued on them; native_batch.h has the calls.
#include "distributed/native_group.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "distributed/arguments.h"
#include "distributed/native_batch.h"
#include "distributed/recording.h"
#include "memory/caching_allocator.h"
#include "runtime/driver.h"
#include "runtime/stream.h"

namespace backplane::distributed {
namespace native_group_impl {
namespace {

bool is_message(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
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

std::vector<std::shared_ptr<NativeEngine>> NativeGroup::engines() {
  const std::lock_guard<std::mutex> lock(connecting_);
  return engines_;
}

std::shared_ptr<NativeEngine> NativeGroup::engine_if_there(c10::Device device) {
  for (const auto& engine : engines()) {
    if (engine->device() == device) return engine;
  }
  return nullptr;
}

std::shared_ptr<NativeEngine> NativeGroup::engine_on(c10::Device device) {
  if (auto engine = engine_if_there(device)) return engine;
  const std::lock_guard<std::mutex> lock(connecting_);
  const std::string key = c10::str("bp.collective/", engines_.size());  // the same on all ranks
  const auto exchange = [&](std::string id) {
    if (getRank() == 0) {
      store_->set(key, std::vector<uint8_t>(id.begin(), id.end()));
      return id;
    }
    store_->wait({key}, options_->timeout);
    const std::vector<uint8_t> bytes = store_->get(key);
    return std::string(bytes.begin(), bytes.end());
  };
  engines_.push_back(NativeEngine::connect(device, settings(), exchange));
  return engines_.back();
}

void NativeGroup::eagerConnectSingleDevice(at::Device device) { engine_on({kDevice, resolve_device(device.index())}); }

// A message needs no other rank: before there is a communicator, it is staged.
DeviceGroup::Work NativeGroup::carry_out(const Request& request, const Tensors& results, Fill fill) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto engine = is_message(request.type) ? engine_if_there(request.device) : engine_on(request.device);
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

void NativeGroup::abort() {
  for (const auto& engine : engines()) engine->abort("was aborted");
  StagedGroup::abort();
}

void NativeGroup::shutdown() {
  for (const auto& engine : engines()) engine->shutdown();
  StagedGroup::shutdown();
}

}  // namespace backplane::distributed
