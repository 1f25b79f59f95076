// drivers/engine/capture.h: work of streams that is recorded instead of run, and what a recording does. The rules of captures are those of
// backplane/driver/cxx/captures.hpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/captures.hpp>

#include "recorder.h"
#include "stream.h"

namespace backplane::driver {

/// A piece of work that runs any number of times. `job` is copied for each run; `destroy` is called once with the original, may be NULL.
struct RecordedJob {
  RecordedJob(const Job& of, void (*end)(Job& job), const Work& is) : job(of), destroy(end), what(is) {}
  RecordedJob(RecordedJob&& other) noexcept : job(other.job), destroy(std::exchange(other.destroy, nullptr)), what(other.what) {}
  RecordedJob& operator=(RecordedJob&&) = delete;
  ~RecordedJob() {
    if (destroy) destroy(job);
  }

  Job job;
  void (*destroy)(Job& job);
  Work what;
};

using EngineCaptures = Captures<RecordedJob>;

/// What a capture has left, to be run.
class Recording {
 public:
  Recording(EngineDevice& device, EngineCaptures::Nodes nodes) : device_(device), nodes_(std::move(nodes)) {}

  EngineDevice& device() const { return device_; }
  const EngineCaptures::Nodes& nodes() const { return nodes_; }
  /// One run. After a fault the rest is skipped. Throws what the work throws. records: none, or one per node, NULL where nobody wants one.
  void run(std::vector<Recorder::Owned>& records) const;
  /// DOT.
  std::string text() const;

 private:
  EngineDevice& device_;
  const EngineCaptures::Nodes nodes_;
};

}  // namespace backplane::driver
