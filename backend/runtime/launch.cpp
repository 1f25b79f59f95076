// runtime/launch.cpp: the kernel author's API (backplane/kernel.h) over the runtime: the driver's host_exec group, the current stream,
// counters.
#include <backplane/kernel.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "runtime/activity.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/options.h"
#include "runtime/stream.h"

namespace backplane {

namespace launch_impl {
namespace {

uint64_t vendors_stream(const c10::Stream& stream) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(open_driver().table.flags & BP_DRIVER_OWN_STREAMS), "The streams of ", device_name(),
      " have no object of the vendor's runtime (BP_DRIVER_OWN_STREAMS, which the emulate shim sets for those that it "
      "supplies). A kernel on the vendor's API needs a driver with streams and events; until then derive it from backplane::HostKernel");
  return stream_native_handle(stream);
}

}  // namespace
}  // namespace launch_impl

uint64_t native_stream(c10::DeviceIndex device) { return launch_impl::vendors_stream(current_stream(device)); }

bool can_launch() { return open_driver().host_exec != nullptr; }

void* DeviceMemory::at(uint64_t address) const {
  if (address == 0) return nullptr;
  void* pointer = nullptr;
  call<&bp_host_exec::map>(device_, address, &pointer);
  return pointer;
}

namespace detail {

std::atomic<const char*> queued_last{nullptr};

void throw_not_allocated(const at::TensorBase& tensor) {
  TORCH_CHECK(false, "The tensor has a non-zero number of elements, but its data is not allocated yet.\nIts sizes are ", tensor.sizes(),
              ", its storage on ", tensor.device(),
              " has no memory: untyped_storage().resize_(0) releases it. Resize the storage before "
              "the tensor is used again");
}

void enqueue(c10::DeviceIndex device, int32_t (*run)(void*), void* task, void (*destroy)(void*)) {
  if (C10_UNLIKELY(!can_launch())) {
    destroy(task);
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "launch: the driver of ", device_name(), " does not run host functions (it has no bp.host_exec). ",
        "Derive the kernel from backplane::HostKernel, which leaves its operators to the fallback here, ask can_launch() first, "
        "or queue the kernel with the vendor's API in a backplane::NativeLaunch");
  }
  call<&bp_host_exec::enqueue>(device, current_stream_handle(device), run, task, destroy);
  if (activity_wanted()) note_queued(current_stream(device), "kernel");
}

bool& in_host_function() noexcept {
  thread_local bool inside = false;
  return inside;
}

int32_t report_exception() noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    LOG(ERROR) << "A kernel of " << device_name() << " failed: " << error.what();
  } catch (...) {
    LOG(ERROR) << "A kernel of " << device_name() << " failed with an exception that is not a std::exception";
  }
  return BP_INTERNAL;
}

}  // namespace detail

NativeLaunch::NativeLaunch(const c10::Stream& stream, const char* name)
    : stream_(stream), name_(name), exceptions_(std::uncaught_exceptions()), previous_(exchange_device(stream.device_index())) {
  try {
    native_ = launch_impl::vendors_stream(stream);
  } catch (...) {
    set_device_noexcept(previous_);
    throw;
  }
  mark_context(stream.device_index());
  note(ActivityKind::launch, stream.device_index(), stream.id());
}

NativeLaunch::~NativeLaunch() noexcept(false) {
  set_device_noexcept(previous_);
  if (!activity_wanted()) return;
  if (std::uncaught_exceptions() != exceptions_) {
    note(ActivityKind::launch_failed, stream_.device_index(), stream_.id());
  } else {
    note_queued(stream_, (std::string("kernel ") + name_).c_str());
  }
}

const void* driver_group(const char* id, uint32_t version, uint64_t struct_size) {
  const Driver& d = open_driver();
  const bp_ext* group = nullptr;
  if (d.table.query_ext == nullptr || d.table.query_ext(d.table.self, id, version, &group) != BP_OK) return nullptr;
  return group != nullptr && group->struct_size >= struct_size && !driver::wrong_head(*group, id, version) ? group : nullptr;
}

namespace launch_impl {
namespace {

struct Counters {
  std::mutex mutex;
  std::vector<KernelCounter*> all;
};

Counters& counters() {
  static Counters* const instance = new Counters;  // kernels register at static initialization and are counted until the end of the process
  return *instance;
}

}  // namespace
}  // namespace launch_impl

KernelCounter::KernelCounter(const char* name) : name_(name) {
  auto& registry = launch_impl::counters();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.all.push_back(this);
}

uint64_t kernel_calls(const std::string& name) {
  auto& registry = launch_impl::counters();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  uint64_t calls = 0;
  bool found = false;
  std::string like;  // names of kernels that contain this one's operator: a device has hundreds
  const std::string part = name.substr(name.rfind('/') + 1);
  for (const KernelCounter* counter : registry.all) {
    const std::string known = counter->name();
    if (known.find(part) != std::string::npos) like += (like.empty() ? "" : ", ") + known;
    if (name != counter->name()) continue;
    found = true;
    calls += counter->calls();
  }
  TORCH_CHECK(found, "no kernel of ", device_name(), " is called '", name, "'; of its ", registry.all.size(), ", those with '", part,
              "' in their name: ", like.empty() ? "none" : like);
  return calls;
}

}  // namespace backplane
