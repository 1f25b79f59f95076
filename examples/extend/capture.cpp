// extend/capture.cpp: a runtime that records graphs by calls of its own says which stream is recorded.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> recorded{-1};  // here: the id of one stream, of any device

bool is_recorded(const c10::Stream& stream) { return stream.id() == recorded.load(); }

const backplane::extend::CaptureState<&is_recorded> capture;

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("record_stream_id", [](int64_t id) { recorded = id; });
}
