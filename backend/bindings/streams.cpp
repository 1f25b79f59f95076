// bindings/streams.cpp: streams beyond torch.Stream: the current one, external ones, priorities. A stream is (stream_id, device_index).
#include "runtime/stream.h"

#include <tuple>

#include "bindings/module.h"
#include "runtime/options.h"
#include "runtime/sleep.h"

namespace backplane::bindings {
namespace {

using StreamPair = std::pair<int64_t, int>;

StreamPair pair_of(const c10::Stream& stream) { return {stream.id(), static_cast<int>(stream.device_index())}; }

// Makes a stream and its device the current ones, both or neither; returns the previous stream and device.
std::tuple<int64_t, int, int> enter_stream(int64_t id, int64_t device, int64_t type) {
  TORCH_CHECK_VALUE(type == static_cast<int64_t>(kDevice), "expected a stream of ", device_name(), ", got one of device type ", type,
                    " (torch.", device_name(), ".Stream() makes one)");
  const c10::Stream stream = stream_of(id, device);
  stream_handle(stream);  // raises before anything changes
  const c10::DeviceIndex device_before = exchange_device(stream.device_index());
  const c10::Stream before = exchange_stream(stream);
  return {before.id(), static_cast<int>(before.device_index()), static_cast<int>(device_before)};
}

}  // namespace

c10::Stream stream_of(int64_t id, int64_t device) {
  const auto index = device_index(device);
  check_device(index);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), id);
}

void bind_streams(py::module_& module) {
  def_quick(module, "current", [](int64_t device) { return pair_of(current_stream(device_index(device))); });
  def_quick(module, "default", [](int64_t device) { return pair_of(default_stream(device_index(device))); });
  def_blocking(module, "exchange", [](int64_t id, int64_t device) { return pair_of(exchange_stream(stream_of(id, device))); });
  def_blocking(module, "enter", enter_stream);
  def_quick(module, "check", [](int64_t id, int64_t device) { stream_handle(stream_of(id, device)); });
  def_blocking(module, "external",
               [](uint64_t native, int64_t device) { return pair_of(external_stream(native, resolve_device(device_index(device)))); });
  def_quick(module, "priority", [](int64_t id, int64_t device) { return stream_priority(stream_of(id, device)); });
  def_quick(module, "handle", [](int64_t id, int64_t device) { return reinterpret_cast<uint64_t>(stream_handle(stream_of(id, device))); });
  def_blocking(module, "native_handle", [](int64_t id, int64_t device) { return stream_native_handle(stream_of(id, device)); });
  def_quick(module, "show_events", show_events);
  def_blocking(module, "sleep", [](int64_t cycles) { sleep_cycles(cycles); });
  def_blocking(module, "is_capturing", [](int64_t id, int64_t device) { return is_capturing(stream_of(id, device)); });
}

}  // namespace backplane::bindings
