// inductor/graph_results.h: the tensors that runs of a compiled program's graph return (torch_backplane/inductor/replay.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace backplane {

// What a captured call has returned, and how each run of its graph returns the same.
//
// A result is a new tensor over memory of the graph, which it keeps reserved. Tensors that share a storage, or are one object, do so in
// each run; what aliases an input of the capture aliases the caller's input, or is that tensor. What is neither (a constant, or on the CPU)
// is returned itself. One thread at a time; results are released by any thread. Errors are those of runtime/errors.h.
class GraphResults {
 public:
  // outputs: the tensors that the call has returned. inputs: those that it was called with; nullopt: one that is not the caller's. Throws
  // for an output that is sparse.
  GraphResults(std::shared_ptr<Graph> graph, const std::vector<at::Tensor>& outputs, const std::vector<std::optional<at::Tensor>>& inputs);

  // The results of a run that is queued; `inputs` as in the constructor, those of this run.
  std::vector<at::Tensor> make(const std::vector<at::Tensor>& inputs);

  // The bytes of the last run's results that still exist.
  size_t bytes_alive() const;

  // Both before the graph's memory is written again:
  //
  // Lets the current stream wait for the streams that record_stream has named for results.
  void wait_for_readers();
  // Copies the results that still exist to memory of their own; other streams may have read them, and may read the copies. Tensors and
  // views of them notice nothing, but their addresses change.
  void move_out();

 private:
  struct Readers {
    std::mutex mutex;
    std::vector<c10::Stream> streams;
  };
  struct Memory {  // of the graph
    void* address;
    size_t bytes;
    c10::weak_intrusive_ptr<c10::StorageImpl> last;  // the storage of the last run
  };
  enum class Kind : uint8_t { input, earlier, of_input, of_graph, constant };
  struct Output {
    Kind kind;
    size_t place = 0;     // of the input, the earlier output or the memory
    at::Tensor constant;  // itself
    int64_t offset = 0;   // in bytes, from the memory's begin or from the input's first element
    std::vector<int64_t> size, stride;
    caffe2::TypeMeta dtype;
    bool is_conj = false, is_neg = false;
  };
  class Borrowed;

  std::shared_ptr<Graph> graph_;
  std::shared_ptr<Readers> readers_ = std::make_shared<Readers>();
  std::vector<Memory> memory_;
  std::vector<Output> outputs_;
};

// Whether a tensor's memory is a graph's.
bool is_graph_result(const at::Tensor& tensor);

// Gives such a tensor, and all that share its storage, memory of their own, for a reader that torch does not know of. Queued on the
// current stream.
void own_memory(const at::Tensor& tensor);

}  // namespace backplane
