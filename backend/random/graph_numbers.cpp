// random/graph_numbers.cpp: GraphNumbers, and the object of each capture.
#include "random/graph_numbers.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "memory/caching_allocator.h"
#include "runtime/driver.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace backplane {
namespace graph_numbers_impl {
namespace {

struct ActiveCaptures {
  std::mutex mutex;
  std::unordered_map<uint64_t, GraphNumbers*> of;
};

ActiveCaptures& active_captures() {
  static auto* instance = new ActiveCaptures();
  return *instance;
}

}  // namespace
}  // namespace graph_numbers_impl

GraphNumbers::~GraphNumbers() { end(); }

void GraphNumbers::begin(uint64_t capture) {
  auto& all = graph_numbers_impl::active_captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  capture_ = capture;
  all.of[capture] = this;
}

void GraphNumbers::end() {
  auto& all = graph_numbers_impl::active_captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (capture_ != 0) all.of.erase(std::exchange(capture_, 0));
}

GraphNumbers& GraphNumbers::of(uint64_t capture) {
  auto& all = graph_numbers_impl::active_captures();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.of.find(capture);
  TORCH_CHECK(found != all.of.end(),
              "A random operator was recorded in a capture that the core did not begin; use torch.accelerator.Graph.");
  return *found->second;
}

PhiloxState GraphNumbers::take(c10::DeviceIndex device, const std::shared_ptr<PhiloxSequence>& sequence, uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = std::find_if(used_.begin(), used_.end(), [&](const Used& one) { return one.sequence == sequence; });
  if (found == used_.end()) {
    auto& allocator = caching_allocator();
    // Not from the graph's pool: prepare() writes it before the run, and there it could be memory of an earlier kernel of the run.
    void* const words = allocator.raw_alloc(2 * sizeof(uint64_t), default_stream(device));
    used_.push_back({sequence, c10::DataPtr(words, words, allocator.raw_deleter(), c10::Device(kDevice, device)), 0});
    found = std::prev(used_.end());
  }
  PhiloxState state;
  state.seed_address = static_cast<const uint64_t*>(found->words.get());
  state.offset_address = state.seed_address + 1;
  state.graph_offset = found->count;
  found->count += (count + 3) / 4 * 4;
  return state;
}

void GraphNumbers::prepare(const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Used& one : used_) {
    if (std::exchange(one.is_new, false)) {
      Event event;
      event.record(default_stream(stream.device_index()));
      event.block(stream);
    }
    const PhiloxState place = one.sequence->take(one.count);
    const auto address = reinterpret_cast<uint64_t>(one.words.get());
    const uint64_t words[] = {place.seed, place.offset};
    for (uint64_t i = 0; i < 2; ++i) {
      call<&bp_driver::fill>(stream.device_index(), stream_handle(stream), address + i * sizeof(uint64_t),
                             static_cast<const void*>(&words[i]), uint32_t{sizeof(uint64_t)}, uint64_t{1}, 0u);
    }
    caching_allocator().recordStream(one.words, stream);  // a run may outlive the graph
  }
}

}  // namespace backplane
