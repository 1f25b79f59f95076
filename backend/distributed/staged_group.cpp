// distributed/staged_group.cpp: the life of the group; staged_batch.h has its collectives.
#include "distributed/staged_group.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "distributed/arguments.h"
#include "distributed/recording.h"
#include "distributed/staged_batch.h"

namespace backplane::distributed {

StagedGroup::StagedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
                         GlooFactory make_gloo)
    : DeviceGroup(rank, size, std::move(options)),
      make_gloo_(std::move(make_gloo)),
      engine_(std::make_shared<StagedEngine>(title_, make_gloo_(store, rank, size, options_->timeout))) {
  init();
}

StagedGroup::~StagedGroup() { engine_->shutdown(); }

StagedGroup::Work StagedGroup::carry_out(const Request& request, const Tensors& results, Fill fill) {
  Batch batch(*this, request);
  fill(batch);
  c10::intrusive_ptr<StagedWork> work = coalesced_;
  if (work == nullptr) {
    const Tensors inputs = request.input.defined() ? Tensors{request.input} : Tensors{};
    work = c10::make_intrusive<StagedWork>(getRank(), request.type, request.title, ++sequence_, request.device, inputs);
  }
  batch.submit(work);
  for (const at::Tensor& result : results) work->add_result(result);
  const Recording recording(*this, *options_, request.type, sequence_, request.input, results);
  if (coalesced_ == nullptr) end(*work, request.device);
  return work;
}

void StagedGroup::end(StagedWork& work, c10::Device device) {
  const c10::StreamGuard guard(engine_->copies_out(device));
  work.finish_part(nullptr);
}

void StagedGroup::startCoalescing() {
  TORCH_CHECK(coalesced_ == nullptr, "a batch of collectives of this group has begun already; they do not nest");
  coalesced_ = c10::make_intrusive<StagedWork>(getRank(), c10d::OpType::COALESCED, BACKPLANE_TITLE("coalesced"), ++sequence_, own_device(),
                                               Tensors{});
}

StagedGroup::Work StagedGroup::endCoalescing() {
  TORCH_CHECK(coalesced_ != nullptr, "no batch of collectives of this group has begun");
  const c10::intrusive_ptr<StagedWork> work = std::exchange(coalesced_, {});
  end(*work, own_device());
  return work;
}

c10::intrusive_ptr<c10d::Backend> StagedGroup::split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                                     const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;
  auto own = c10::make_intrusive<GroupOptions>(options->timeout);
  own->group_name = options->group_name;
  for (const int rank : ranks) {
    const auto place = static_cast<size_t>(rank);
    own->global_ranks_in_group.push_back(place < options_->global_ranks_in_group.size() ? options_->global_ranks_in_group[place] : place);
  }
  // torch gives the backends of all devices one store, in which each that is Gloo's would meet the others.
  const auto own_store = c10::make_intrusive<c10d::PrefixStore>("device", store);
  auto part = make_part(own_store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), std::move(own));
  part->setBoundDeviceId(getBoundDeviceId());
  return part;
}

c10::intrusive_ptr<c10d::Backend> StagedGroup::make_part(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                         c10::intrusive_ptr<GroupOptions> options) {
  return c10::make_intrusive<StagedGroup>(store, rank, size, std::move(options), make_gloo_);
}

c10d::ErrorType StagedGroup::getError() { return engine_->failure() == nullptr ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR; }

void StagedGroup::abort() { engine_->abort("was aborted"); }
void StagedGroup::shutdown() { engine_->shutdown(); }

}  // namespace backplane::distributed
