// inductor/graph_results.h: the tensors that runs of a compiled program's graph return (torch_backplane/inductor/replay.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace backplane {

// What a captured call has returned, and how each run of its graph returns the same.
//
// A result is a new tensor over memory of the graph, which it keeps reserved; results that share a storage share one in each run. What
// aliases an input of the capture aliases the caller's input in each run, and what is neither (a constant, or on the CPU) is returned
// itself. One thread at a time.
class GraphResults {
 public:
  // outputs: the tensors that the call has returned. inputs: those that it was called with; nullopt: one that is not the caller's. Throws
  // for an output that is sparse.
  GraphResults(std::shared_ptr<Graph> graph, const std::vector<at::Tensor>& outputs, const std::vector<std::optional<at::Tensor>>& inputs);

  // The results of a run that is queued; `inputs` as in the constructor, those of this run.
  std::vector<at::Tensor> make(const std::vector<at::Tensor>& inputs);

  // The bytes of the last run's results that still exist.
  size_t bytes_alive() const;

  // Copies these on the current stream to memory of their own. Tensors and views of them notice nothing; their addresses change. To be
  // called before the graph's memory is written again.
  void move_out();

 private:
  struct Memory {  // of the graph
    void* address;
    size_t bytes;
    c10::weak_intrusive_ptr<c10::StorageImpl> last;  // the storage of the last run
  };
  struct Output {
    at::Tensor constant;  // returned itself if it is defined
    size_t storage;       // index in memory_, or of an input
    bool is_input;
    int64_t offset;  // in bytes, from the storage or from the input's first element
    std::vector<int64_t> size, stride;
    caffe2::TypeMeta dtype;
    bool is_conj, is_neg;
  };

  std::shared_ptr<Graph> graph_;
  std::vector<Memory> memory_;
  std::vector<Output> outputs_;
};

// Whether a tensor's memory belongs to a graph: it has the same address after each run.
bool is_graph_result(const at::Tensor& tensor);

}  // namespace backplane
