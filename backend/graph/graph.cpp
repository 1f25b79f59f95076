// graph/graph.cpp: capture, replay and reset of a graph.
#include "graph/graph.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <functional>
#include <utility>

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"
#include "runtime/activity.h"
#include "runtime/capture.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/overrides.h"
#include "runtime/reports.h"
#include "runtime/stream.h"
#include "torch/compat.h"

namespace backplane {
namespace graph_impl {
namespace {

void destroy(c10::DeviceIndex device, bp_graph_exec*& exec, bp_recording*& recording) noexcept {
  if (driver_if_open() == nullptr) return;  // a forked child, or after close
  if (exec != nullptr) call_noexcept<&bp_graph::exec_destroy>(device, exec);
  if (recording != nullptr) call_noexcept<&bp_graph::recording_destroy>(device, recording);
  exec = nullptr;
  recording = nullptr;
}

// Memory that is pinned in a capture stays reserved until the graph is reset.
void begin_pinned_pool([[maybe_unused]] c10::MempoolId_t pool, [[maybe_unused]] const std::function<bool(c10::Stream)>& filter) {
#if BACKPLANE_PINNED_CACHE_HAS_POOLS
  pinned_allocator().begin_allocate_to_pool(pool, filter);
#endif
}

void end_pinned_pool([[maybe_unused]] c10::MempoolId_t pool) {
#if BACKPLANE_PINNED_CACHE_HAS_POOLS
  pinned_allocator().end_allocate_to_pool(pool);
#endif
}

void release_pinned_pool([[maybe_unused]] c10::MempoolId_t pool) {
#if BACKPLANE_PINNED_CACHE_HAS_POOLS
  pinned_allocator().release_pool(pool);
#endif
}

}  // namespace
}  // namespace graph_impl

// Torch numbers pools of programs as {0, n}, and its own as {n, 0}.
c10::MempoolId_t new_graph_pool() {
  static std::atomic<c10::CaptureId_t> last{0};
  return {++last, 0};
}

Graph::~Graph() {
  if (driver_if_open() == nullptr) return;
  try {
    if (capturing_) capture_end();
  } catch (...) {  // nobody can catch an exception here
  }
  try {
    reset();
  } catch (const std::exception& error) {
    TORCH_WARN("a graph of ", device_name(), " could not be released: ", error.what());
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, int32_t mode) {
  TORCH_CHECK(!capturing_, "This graph is being captured already.");
  TORCH_CHECK(recording_ == nullptr && exec_ == nullptr, "This graph has been captured already. Call reset() first, or make another one.");
  const c10::Stream stream = current_stream();
  TORCH_CHECK_NOT_IMPLEMENTED(open_driver().graph != nullptr, "The driver of ", device_name(),
                              " cannot record graphs: it has no bp.graph. Run the work itself, without a graph.");
  TORCH_CHECK(stream.id() != 0, "The default stream of ", stream.device(),
              " cannot capture a graph. Capture on another stream: `with torch.", device_name(), ".stream(s):`, s = torch.", device_name(),
              ".Stream().");
  TORCH_CHECK(!is_capturing(stream), "The current stream of ", stream.device(), " is capturing another graph already.");
  // Created now, because its first use would queue work or wait.
  overrides().default_generator.get()(stream.device_index());
  report_record(stream.device_index());
  auto numbers = std::make_unique<GraphNumbers>();
  const bool own = pool == c10::MempoolId_t{0, 0};
  const c10::MempoolId_t device_pool = own ? new_graph_pool() : pool;
  // Torch's pinned cache does not accept the id of a released pool again.
  const c10::MempoolId_t pinned_pool = new_graph_pool();
  const uint64_t id = begin_capture(stream, mode);
  const auto takes = [id](const c10::Stream& asked) { return capture_id(asked) == id; };
  auto& allocator = caching_allocator();
  int begun = 0;
  try {
    allocator.begin_allocate_to_pool(stream.device_index(), device_pool, takes);
    ++begun;
    graph_impl::begin_pinned_pool(pinned_pool, takes);
    ++begun;
    numbers->begin(id);
  } catch (...) {
    try {
      bp_graph_exec* none = nullptr;
      bp_recording* nothing = end_capture(stream);
      graph_impl::destroy(stream.device_index(), none, nothing);
    } catch (...) {  // the first error is raised
    }
    if (begun > 0) {
      allocator.end_allocate_to_pool(stream.device_index(), device_pool);
      allocator.release_pool(stream.device_index(), device_pool);
    }
    if (begun > 1) {
      graph_impl::end_pinned_pool(pinned_pool);
      graph_impl::release_pinned_pool(pinned_pool);
    }
    throw;
  }
  numbers_ = std::move(numbers);
  capturing_ = stream;
  device_ = stream.device_index();
  pool_ = device_pool;
  pinned_pool_ = pinned_pool;
  has_pools_ = true;
}

void Graph::capture_end() {
  TORCH_CHECK(capturing_.has_value(), "This graph is not being captured: call capture_begin() first.");
  const c10::Stream stream = *std::exchange(capturing_, std::nullopt);
  auto& allocator = caching_allocator();
  const auto end_pools = [&] {
    numbers_->end();
    allocator.end_allocate_to_pool(device_, pool_);
    graph_impl::end_pinned_pool(pinned_pool_);
    allocator.finish_captured_frees(device_);
  };
  try {
    recording_ = end_capture(stream);
  } catch (...) {
    end_pools();
    reset();
    throw;
  }
  end_pools();
  if (keep_) return;
  try {
    instantiate();
  } catch (...) {
    reset();
    throw;
  }
  if (debug_) return;
  bp_graph_exec* none = nullptr;
  graph_impl::destroy(device_, none, recording_);
}

void Graph::instantiate() {
  TORCH_CHECK(!capturing_, "This graph is still being captured: call capture_end() first.");
  if (exec_ != nullptr) return;
  TORCH_CHECK(recording_ != nullptr, "This graph is empty: capture it first.");
  call<&bp_graph::instantiate>(device_, recording_, 0u, &exec_);
}

void Graph::replay() {
  instantiate();
  const c10::Stream stream = current_stream(device_);
  TORCH_CHECK(!is_capturing(stream), "A graph cannot be replayed while the current stream is capturing another one.");
  if (!numbers_->empty()) {
    last_run_.block(stream);
    numbers_->prepare(stream);
  }
  call<&bp_graph::launch>(device_, stream_handle(stream), exec_);
  if (!numbers_->empty()) last_run_.record(stream);
  expect_reports(stream);
  note_queued(stream, "graph");
}

void Graph::reset() {
  TORCH_CHECK(!capturing_, "This graph is still being captured: call capture_end() first.");
  graph_impl::destroy(device_, exec_, recording_);
  numbers_.reset();
  release_pools();
}

void Graph::release_pools() {
  if (!std::exchange(has_pools_, false)) return;
  caching_allocator().release_pool(device_, pool_);
  graph_impl::release_pinned_pool(pinned_pool_);
}

void Graph::debug_dump(const std::string& path) {
  TORCH_CHECK(recording_ != nullptr,
              "There is no recording of this graph: call enable_debug_mode() before it is captured, or create it with ",
              "keep_graph=True, and capture it.");
  const int32_t status = try_call<&bp_graph::dump>(device_, recording_, path.c_str());
  TORCH_CHECK_NOT_IMPLEMENTED(status != BP_UNSUPPORTED, "The driver of ", device_name(), " does not support dumping a graph.");
  if (status != BP_OK) throw_status(status, "bp.graph.dump", device_, last_error_text());
}

}  // namespace backplane
