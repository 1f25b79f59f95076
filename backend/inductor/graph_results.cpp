// inductor/graph_results.cpp: results over a graph's memory.
#include "inductor/graph_results.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "memory/caching_allocator.h"
#include "memory/storage.h"

namespace backplane {
namespace graph_results_impl {
namespace {

void release(void* graph) { delete static_cast<std::shared_ptr<Graph>*>(graph); }

bool is_of_graph(const c10::StorageImpl& storage) { return storage.data_ptr().get_deleter() == &release; }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

int64_t byte_offset(const at::Tensor& tensor) { return tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()); }

}  // namespace
}  // namespace graph_results_impl

GraphResults::GraphResults(std::shared_ptr<Graph> graph, const std::vector<at::Tensor>& outputs,
                           const std::vector<std::optional<at::Tensor>>& inputs)
    : graph_(std::move(graph)) {
  std::vector<const c10::StorageImpl*> seen;
  for (const at::Tensor& tensor : outputs) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "a result of layout ", tensor.layout());
    const c10::StorageImpl* storage = graph_results_impl::storage_of(tensor);
    Output output{{},
                  0,
                  false,
                  graph_results_impl::byte_offset(tensor),
                  tensor.sizes().vec(),
                  tensor.strides().vec(),
                  tensor.dtype(),
                  tensor.is_conj(),
                  tensor.is_neg()};
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const auto& given) { return given && graph_results_impl::storage_of(*given) == storage; });
    const auto known = std::find(seen.begin(), seen.end(), storage);
    if (input != inputs.end()) {
      output.is_input = true;
      output.storage = static_cast<size_t>(input - inputs.begin());
      output.offset -= graph_results_impl::byte_offset(**input);
    } else if (known != seen.end()) {
      output.storage = static_cast<size_t>(known - seen.begin());
    } else if (tensor.device().type() == kDevice &&
               (storage->nbytes() == 0 || CachingAllocator::pool_of(storage->data()) == graph_->pool())) {
      output.storage = memory_.size();
      seen.push_back(storage);
      memory_.push_back({const_cast<void*>(storage->data()), storage->nbytes(), tensor.storage().getWeakStorageImpl()});
    } else {
      output.constant = tensor;
    }
    outputs_.push_back(std::move(output));
  }
}

std::vector<at::Tensor> GraphResults::make(const std::vector<at::Tensor>& inputs) {
  const c10::Device device(kDevice, graph_->device());
  std::vector<c10::Storage> storages;
  for (Memory& memory : memory_) {
    c10::DataPtr data(memory.address, new std::shared_ptr<Graph>(graph_), &graph_results_impl::release, device);
    storages.push_back(new_storage(memory.bytes, std::move(data)));
    memory.last = storages.back().getWeakStorageImpl();
  }
  std::vector<at::Tensor> results;
  for (const Output& output : outputs_) {
    if (output.constant.defined()) {
      results.push_back(output.constant);
      continue;
    }
    int64_t offset = output.offset;
    c10::Storage storage;
    if (output.is_input) {
      const at::Tensor& input = inputs.at(output.storage);
      offset += graph_results_impl::byte_offset(input);
      storage = input.storage();
    } else {
      storage = storages[output.storage];
    }
    at::Tensor result =
        at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), output.dtype);
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

void GraphResults::move_out() {
  for (Memory& memory : memory_) {
    const auto storage = memory.last.lock();
    if (!storage || !graph_results_impl::is_of_graph(*storage)) continue;
    resize_storage(c10::Storage(storage), memory.bytes);
  }
}

bool is_graph_result(const at::Tensor& tensor) {
  return tensor.has_storage() && graph_results_impl::is_of_graph(*graph_results_impl::storage_of(tensor));
}

}  // namespace backplane
