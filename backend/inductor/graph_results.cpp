// inductor/graph_results.cpp: results over a graph's memory.
#include "inductor/graph_results.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "memory/caching_allocator.h"
#include "memory/storage.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace backplane {
namespace graph_results_impl {
namespace {

bool is_of_graph(const c10::StorageImpl& storage) { return storage.data_ptr().get_deleter() == &BorrowedMemory::release; }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

int64_t byte_offset(const at::Tensor& tensor) { return tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()); }

// Later work of `after` waits for what is queued on `before`.
void order(const c10::Stream& before, const c10::Stream& after) {
  if (before == after || is_capturing(before) || is_capturing(after)) return;
  const PooledEvent event = pooled_event(before.device_index());
  event->record(before);
  event->block(after);
}

// Copies storages to memory of their own on the current stream. Other streams may have read them, and may read the copies.
void move(c10::DeviceIndex device, const std::vector<c10::Storage>& storages) {
  const std::vector<c10::Stream> streams = known_streams(device);
  const c10::Stream current = current_stream(device);
  for (const c10::Stream& stream : streams) order(stream, current);
  for (const c10::Storage& storage : storages) resize_storage(storage, storage.nbytes());
  for (const c10::Stream& stream : streams) order(current, stream);
}

}  // namespace
}  // namespace graph_results_impl

class GraphResults::Borrowed : public BorrowedMemory {
 public:
  Borrowed(std::shared_ptr<Graph> graph, std::shared_ptr<Readers> readers) : graph_(std::move(graph)), readers_(std::move(readers)) {}

  void record_stream(c10::Stream stream) override {
    const std::lock_guard<std::mutex> lock(readers_->mutex);
    if (std::find(readers_->streams.begin(), readers_->streams.end(), stream) == readers_->streams.end())
      readers_->streams.push_back(stream);
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<Readers> readers_;
};

GraphResults::GraphResults(std::shared_ptr<Graph> graph, const std::vector<at::Tensor>& outputs,
                           const std::vector<std::optional<at::Tensor>>& inputs)
    : graph_(std::move(graph)) {
  using graph_results_impl::storage_of;
  const auto find = [&](const auto& matches) {
    return std::find_if(inputs.begin(), inputs.end(), [&](const auto& one) { return one && matches(*one); });
  };
  std::vector<const c10::StorageImpl*> seen;
  for (auto at = outputs.begin(); at != outputs.end(); ++at) {
    const at::Tensor& tensor = *at;
    TORCH_CHECK(tensor.layout() == at::kStrided, "a result of layout ", tensor.layout());
    const auto is_it = [&](const at::Tensor& one) { return one.is_same(tensor); };
    if (const auto input = find(is_it); input != inputs.end()) {
      outputs_.push_back({Kind::input, static_cast<size_t>(input - inputs.begin())});
      continue;
    }
    if (const auto earlier = std::find_if(outputs.begin(), at, is_it); earlier != at) {
      outputs_.push_back({Kind::earlier, static_cast<size_t>(earlier - outputs.begin())});
      continue;
    }
    const c10::StorageImpl* storage = storage_of(tensor);
    Output output{Kind::of_graph};
    output.offset = graph_results_impl::byte_offset(tensor);
    output.size = tensor.sizes().vec();
    output.stride = tensor.strides().vec();
    output.dtype = tensor.dtype();
    output.is_conj = tensor.is_conj();
    output.is_neg = tensor.is_neg();
    const auto input = find([&](const at::Tensor& one) { return storage_of(one) == storage; });
    const auto known = std::find(seen.begin(), seen.end(), storage);
    if (input != inputs.end()) {
      output.kind = Kind::of_input;
      output.place = static_cast<size_t>(input - inputs.begin());
      output.offset -= graph_results_impl::byte_offset(**input);
    } else if (known != seen.end()) {
      output.place = static_cast<size_t>(known - seen.begin());
    } else if (tensor.device().type() == kDevice &&
               (storage->nbytes() == 0 || CachingAllocator::pool_of(storage->data()) == graph_->pool())) {
      output.place = memory_.size();
      seen.push_back(storage);
      memory_.push_back({const_cast<void*>(storage->data()), storage->nbytes(), tensor.storage().getWeakStorageImpl()});
    } else {
      output.kind = Kind::constant;
      output.constant = tensor;
    }
    outputs_.push_back(std::move(output));
  }
}

std::vector<at::Tensor> GraphResults::make(const std::vector<at::Tensor>& inputs) {
  const c10::Device device(kDevice, graph_->device());
  std::vector<c10::Storage> storages;
  for (Memory& memory : memory_) {
    BorrowedMemory* const borrowed = new Borrowed(graph_, readers_);
    storages.push_back(new_storage(memory.bytes, c10::DataPtr(memory.address, borrowed, &BorrowedMemory::release, device)));
    memory.last = storages.back().getWeakStorageImpl();
  }
  std::vector<at::Tensor> results;
  for (const Output& output : outputs_) {
    if (output.kind == Kind::input || output.kind == Kind::earlier || output.kind == Kind::constant) {
      results.push_back(output.kind == Kind::input     ? inputs.at(output.place)
                        : output.kind == Kind::earlier ? results.at(output.place)
                                                       : output.constant);
      continue;
    }
    const bool is_view = output.kind == Kind::of_input;
    const int64_t offset = output.offset + (is_view ? graph_results_impl::byte_offset(inputs.at(output.place)) : 0);
    at::Tensor result =
        at::detail::make_tensor_base<c10::TensorImpl>(c10::Storage(is_view ? inputs.at(output.place).storage() : storages[output.place]),
                                                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), output.dtype);
    c10::TensorImpl* impl = result.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(output.size, output.stride, offset / static_cast<int64_t>(output.dtype.itemsize()));
    if (output.is_conj) impl->_set_conj(true);
    if (output.is_neg) impl->_set_neg(true);
    results.push_back(std::move(result));
  }
  return results;
}

size_t GraphResults::bytes_alive() const {
  size_t bytes = 0;
  for (const Memory& memory : memory_) {
    const auto storage = memory.last.lock();
    if (storage && graph_results_impl::is_of_graph(*storage)) bytes += memory.bytes;
  }
  return bytes;
}

void GraphResults::wait_for_readers() {
  std::vector<c10::Stream> streams;
  {
    const std::lock_guard<std::mutex> lock(readers_->mutex);
    streams.swap(readers_->streams);
  }
  for (const c10::Stream& stream : streams) graph_results_impl::order(stream, current_stream(graph_->device()));
}

void GraphResults::move_out() {
  std::vector<c10::Storage> storages;
  for (const Memory& memory : memory_) {
    auto storage = memory.last.lock();
    if (storage && graph_results_impl::is_of_graph(*storage)) storages.emplace_back(std::move(storage));
  }
  graph_results_impl::move(graph_->device(), storages);
}

bool is_graph_result(const at::Tensor& tensor) {
  return tensor.has_storage() && graph_results_impl::is_of_graph(*graph_results_impl::storage_of(tensor));
}

void own_memory(const at::Tensor& tensor) {
  if (is_graph_result(tensor)) graph_results_impl::move(tensor.device().index(), {tensor.storage()});
}

}  // namespace backplane
