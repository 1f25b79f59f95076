// drivers/engine/capture.cpp: a recording's runs and its text.
#include "capture.h"

#include "engine.h"

namespace backplane::driver {
namespace {

const char* label_of(const Work& work) {
  if (work.name) return work.name;
  if (work.kind == BP_ACTIVITY_COPY) return "copy";
  if (work.kind == BP_ACTIVITY_FILL) return "fill";
  return work.kind == BP_ACTIVITY_KERNEL ? "host function" : "delay";
}

}  // namespace

void Recording::run(std::vector<Recorder::Owned>& records) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int32_t status = device_.sticky();
    if (status != BP_OK) return;
    TimedWork timed(records.empty() ? nullptr : records[i].release());
    Job job = nodes_[i].work.job;
    job.run(job, status);
    timed.ran = true;
  }
}

std::string Recording::text() const {
  return recording_text(nodes_, [](const RecordedJob& one) { return label_of(one.what); });
}

}  // namespace backplane::driver
