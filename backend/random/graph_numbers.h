// random/graph_numbers.h: the random numbers of one graph: which part of a generator's sequence each run takes.
//
// While a graph is captured no generator moves: a kernel gets the device addresses of two words, and how far into the run's own range its
// numbers begin. Before each run the two words of each generator that the graph uses are written, and the generator moves on by what a run
// takes: numbers are those that the same calls would have taken without the graph.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "random/generator.h"

namespace backplane {

// Any thread; runs are prepared by one at a time.
class GraphNumbers {
 public:
  GraphNumbers() = default;
  ~GraphNumbers();
  GraphNumbers(const GraphNumbers&) = delete;
  GraphNumbers& operator=(const GraphNumbers&) = delete;

  // From begin to end the launches of that capture take their numbers here. The object stays where it is meanwhile.
  void begin(uint64_t capture);
  void end();

  // The object of a capture that is under way. Throws if there is none.
  static GraphNumbers& of(uint64_t capture);

  PhiloxState take(c10::DeviceIndex device, const std::shared_ptr<PhiloxSequence>& sequence, uint64_t count);

  bool empty() const { return used_.empty(); }
  // Queues on the stream what the next run reads, and moves the generators on.
  void prepare(const c10::Stream& stream);

 private:
  struct Used {
    std::shared_ptr<PhiloxSequence> sequence;
    c10::DataPtr words;  // seed and offset, on the device
    uint64_t count;      // that a run takes
  };

  std::mutex mutex_;
  uint64_t capture_ = 0;
  std::vector<Used> used_;
};

}  // namespace backplane
