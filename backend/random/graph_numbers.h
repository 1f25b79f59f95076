// random/graph_numbers.h: the random numbers of one graph: the part of a generator's sequence that each run takes.
//
// While a graph is captured generators do not advance: a kernel gets the device addresses of two words, and the offset of its numbers in
// the run's own range. Before each run the two words of each generator that the graph uses are written, and the generator advances by what
// a run takes: the numbers are those that the same calls would have taken without the graph.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "random/generator.h"

namespace backplane {

// Any thread; only one thread at a time prepares runs.
class GraphNumbers {
 public:
  GraphNumbers() = default;
  ~GraphNumbers();
  GraphNumbers(const GraphNumbers&) = delete;
  GraphNumbers& operator=(const GraphNumbers&) = delete;

  // Between begin and end the launches of that capture take their numbers here. The object must not move meanwhile.
  void begin(uint64_t capture);
  void end();

  // The object of an active capture. Throws if there is none.
  static GraphNumbers& of(uint64_t capture);

  PhiloxState take(c10::DeviceIndex device, const std::shared_ptr<PhiloxSequence>& sequence, uint64_t count);

  bool empty() const { return used_.empty(); }
  // Queues on the stream what the next run reads, and advances the generators.
  void prepare(const c10::Stream& stream);

 private:
  struct Used {
    std::shared_ptr<PhiloxSequence> sequence;
    c10::DataPtr words;  // seed and offset, on the device
    uint64_t count;      // per run
    bool is_new = true;  // the default stream may still use the memory
  };

  std::mutex mutex_;
  uint64_t capture_ = 0;
  std::vector<Used> used_;
};

}  // namespace backplane
