// distributed/ddp_timer.cpp: when forward, backward and communication of DistributedDataParallel begin and end on the device. torch looks
// it up by device type, and warns if it is missing.
#include <array>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace c10d {
namespace {

class BackplaneTimer final : public Timer {
 public:
  explicit BackplaneTimer(c10::Device device) : device_(device.index()) {}

  void record(Event event) override {
    Timer::record(event);
    event_of(event).record(backplane::current_stream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    if (!getTimestamp(start) || !getTimestamp(end)) return std::nullopt;
    event_of(start).synchronize();
    event_of(end).synchronize();
    const double ns = event_of(start).elapsed_ms(event_of(end)) * 1e6;
    return ns < 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(ns));  // negative: events of two iterations
  }

 private:
  backplane::Event& event_of(Event event) { return events_[static_cast<size_t>(event)]; }

  c10::DeviceIndex device_;
  std::array<backplane::Event, 5> events_{backplane::Event(BP_EVENT_TIMING), backplane::Event(BP_EVENT_TIMING),
                                          backplane::Event(BP_EVENT_TIMING), backplane::Event(BP_EVENT_TIMING),
                                          backplane::Event(BP_EVENT_TIMING)};
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, backplane::kDevice, BackplaneTimer);

}  // namespace
}  // namespace c10d
