// drivers/opencl/runtime.cpp: makes the context and the queues, follows their work, and keeps why a device failed.
#include "runtime.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include <backplane/driver/cxx/callback.hpp>

namespace backplane::driver::opencl {

// ---- the context

namespace {

/// The parts of a device. They are made once and live as long as the process, as devices do: PoCL's threads use a part that was released.
const std::vector<cl_device_id>& parts_of(const Api& api, cl_device_id device, const DeviceInfo& info) {
  static auto* const mutex = new std::mutex;
  static auto* const made = new std::map<std::pair<cl_device_id, uint32_t>, std::vector<cl_device_id>>;
  std::lock_guard lock(*mutex);
  std::vector<cl_device_id>& parts = (*made)[{device, info.parts}];
  if (parts.empty()) {
    const cl_device_partition_property properties[] = {CL_DEVICE_PARTITION_EQUALLY, static_cast<intptr_t>(info.units), 0};
    cl_uint count = 0;
    check(api.clCreateSubDevices(device, properties, 0, nullptr, &count), "clCreateSubDevices");
    if (count < info.parts) throw Error(BP_INTERNAL, format("clCreateSubDevices gives %u parts of %u", count, info.parts));
    std::vector<cl_device_id> all(count);
    check(api.clCreateSubDevices(device, properties, count, all.data(), nullptr), "clCreateSubDevices");
    parts = std::move(all);
  }
  return parts;
}

}  // namespace

Context::Context(const Api& library, const std::vector<DeviceInfo>& devices) : api(library) {
  cl_platform_id platform = nullptr;
  for (const DeviceInfo& info : devices) {
    const cl_device_id whole = find_device(api, info, &platform);
    devices_.push_back(info.parts > 1 ? parts_of(api, whole, info)[info.part] : whole);
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<intptr_t>(platform), 0};
  cl_int code = CL_SUCCESS;
  context_ = api.clCreateContext(properties, static_cast<cl_uint>(devices_.size()), devices_.data(), nullptr, nullptr, &code);
  check(code, "clCreateContext");
  if (devices[0].memory_kind != MemoryKind::usm) return;
#define BP_FIND(result, name, parameters)                                                                           \
  usm_.name = reinterpret_cast<decltype(usm_.name)>(api.clGetExtensionFunctionAddressForPlatform(platform, #name)); \
  if (!usm_.name) throw Error(BP_UNSUPPORTED, "cl_intel_unified_shared_memory: the platform has no function " #name);
  BP_OPENCL_FUNCTIONS_USM(BP_FIND)
#undef BP_FIND
}

Context::~Context() { api.clReleaseContext(context_); }

namespace {

/// What lies at an address; 0 where nothing can be read. Each object of a runtime begins with its ICD's table of functions, so that a
/// number which is no object of this runtime is refused before the runtime follows it.
uint64_t first_word(const void* object) {
  uint64_t word = 0;
  const iovec here{&word, sizeof word}, there{const_cast<void*>(object), sizeof word};
  const bool aligned = reinterpret_cast<uintptr_t>(object) % sizeof(void*) == 0;
  return object && aligned && ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == sizeof word ? word : 0;
}

}  // namespace

// ---- queues

Queue::~Queue() {
  if (owner_ == Owner::driver) device_.api().clFinish(queue_);
  device_.api().clReleaseCommandQueue(queue_);
}

Queue::Batch::~Batch() {
  if (--of_.batches_ == 0) of_.device_.api().clFlush(of_.queue_);
}

Event Queue::marker() {
  return submit("clEnqueueMarkerWithWaitList", [&](cl_command_queue queue, cl_event* event) {
    return device_.api().clEnqueueMarkerWithWaitList(queue, 0, nullptr, event);
  });
}

void Queue::wait_for(const Event& event) {
  const cl_event one = event.get();
  submit("clEnqueueBarrierWithWaitList",
         [&](cl_command_queue queue, cl_event* out) { return device_.api().clEnqueueBarrierWithWaitList(queue, 1, &one, out); });
}

Event Queue::last() {
  if (exposed_.load(std::memory_order_relaxed)) return marker();
  std::lock_guard lock(mutex_);
  return last_;
}

int32_t Queue::query() {
  device_.check();
  if (!exposed_.load(std::memory_order_relaxed)) return device_.status(last());
  // An idle queue needs a moment for a marker, and would else look like a busy one.
  const int32_t status = device_.wait(marker(), Deadline(100'000));
  return status == BP_TIMEOUT ? BP_PENDING : status;
}

int32_t Queue::wait(const Deadline& deadline) {
  device_.check();
  return device_.wait(last(), deadline);
}

/// What queue_callback asks for.
struct CallbackQueue {
  Queue& queue;
  const Api& api;

  Event marker() { return queue.marker(); }
  struct Gate {
    const Api* api;
    Event event;
  };
  Gate gate() {
    cl_int code = CL_SUCCESS;
    const cl_event event = api.clCreateUserEvent(queue.device().context().get(), &code);
    check(code, "clCreateUserEvent");
    return {&api, Event(api, event)};
  }
  void hold(const Gate& gate) { queue.wait_for(gate.event); }
  static void open(Gate gate) noexcept { gate.api->clSetUserEventStatus(gate.event.get(), CL_COMPLETE); }
  void on_complete(const Event& event, void (*run)(void* arg, int32_t status), void* arg) {
    using Call = std::pair<void (*)(void*, int32_t), void*>;
    auto call = std::make_unique<Call>(run, arg);
    const auto reached = [](cl_event, cl_int status, void* given) {
      const std::unique_ptr<Call> one(static_cast<Call*>(given));
      one->first(one->second, status < 0 ? BP_FAULT : BP_OK);
    };
    check(api.clSetEventCallback(event.get(), CL_COMPLETE, reached, call.get()), "clSetEventCallback");
    static_cast<void>(call.release());
  }
};

void Queue::callback(void (*fn)(void* arg, int32_t status), void* arg) {
  if (const int32_t status = device_.sticky()) return fn(arg, status);
  std::lock_guard lock(mutex_);
  CallbackQueue on{*this, device_.api()};
  queue_callback(on, fn, arg);
}

// ---- devices

Device::Device(Context& context, int32_t index, const DeviceInfo& info, cl_properties throttle)
    : context_(context), index_(index), info_(info), throttle_(throttle), default_(new_queue(0)) {}

std::shared_ptr<Queue> Device::new_queue(int32_t priority) {
  cl_int code = CL_SUCCESS;
  cl_command_queue queue = nullptr;
  if (info_.has_priorities || throttle_) {
    std::vector<cl_properties> properties = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE};
    if (info_.has_priorities) {
      properties.push_back(CL_QUEUE_PRIORITY_KHR);
      properties.push_back(priority < 0 ? CL_QUEUE_HINT_HIGH_KHR : priority > 0 ? CL_QUEUE_HINT_LOW_KHR : CL_QUEUE_HINT_MED_KHR);
    }
    if (throttle_) {
      properties.push_back(CL_QUEUE_THROTTLE_KHR);
      properties.push_back(throttle_);
    }
    properties.push_back(0);
    queue = api().clCreateCommandQueueWithProperties(context_.get(), id(), properties.data(), &code);
    opencl::check(code, "clCreateCommandQueueWithProperties");
  } else {
    queue = api().clCreateCommandQueue(context_.get(), id(), CL_QUEUE_PROFILING_ENABLE, &code);
    opencl::check(code, "clCreateCommandQueue");
  }
  return std::make_shared<Queue>(*this, queue, Queue::Owner::driver);
}

Queue* Device::create_queue(int32_t priority) {
  check();
  auto queue = new_queue(priority);
  std::lock_guard lock(mutex_);
  queues_.push_back(queue);
  return queue.get();
}

std::shared_ptr<Queue> Device::stream(bp_stream* stream) const {
  if (!stream) return default_;
  std::lock_guard lock(mutex_);
  for (const auto& queue : queues_) {
    if (reinterpret_cast<bp_stream*>(queue.get()) == stream) return queue;
  }
  throw Error(BP_INVALID_ARGUMENT, format("no stream of device %d", index_));
}

void Device::destroy_queue(bp_stream* stream) {
  if (!stream) throw Error(BP_INVALID_ARGUMENT, "stream_destroy: the default stream is not destroyed");
  const std::shared_ptr<Queue> last = this->stream(stream);
  {
    std::lock_guard lock(mutex_);
    queues_.erase(std::find(queues_.begin(), queues_.end(), last));
  }
  api().clFinish(last->native());  // here: a thread in synchronize() may keep the object a little longer
}

bp_stream* Device::stream_of(cl_command_queue native) {
  if (native == default_->native()) return nullptr;
  std::lock_guard lock(mutex_);
  for (const auto& queue : queues_) {
    if (queue->native() == native) return reinterpret_cast<bp_stream*>(queue.get());
  }
  const auto ask = [&](cl_uint what, auto* out) {
    if (first_word(native) != first_word(default_->native()) ||
        api().clGetCommandQueueInfo(native, what, sizeof *out, out, nullptr) != CL_SUCCESS) {
      throw Error(BP_INVALID_ARGUMENT, format("stream_from_native: %p is no stream: no queue of OpenCL", static_cast<void*>(native)));
    }
  };
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  cl_bitfield properties = 0;
  ask(CL_QUEUE_CONTEXT, &context);
  ask(CL_QUEUE_DEVICE, &device);
  ask(static_cast<cl_uint>(CL_QUEUE_PROPERTIES), &properties);
  if (context != context_.get() || device != id()) {
    throw Error(BP_INVALID_ARGUMENT, format("stream_from_native: a queue of another context or device than that of device %d", index_));
  }
  if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) {
    throw Error(BP_INVALID_ARGUMENT, "stream_from_native: an out-of-order queue is no stream");
  }
  opencl::check(api().clRetainCommandQueue(native), "clRetainCommandQueue");
  queues_.push_back(std::make_shared<Queue>(*this, native, Queue::Owner::other));
  return reinterpret_cast<bp_stream*>(queues_.back().get());
}

int32_t Device::synchronize(const Deadline& deadline) {
  check();
  std::vector<std::shared_ptr<Queue>> all{default_};
  {
    std::lock_guard lock(mutex_);
    all.insert(all.end(), queues_.begin(), queues_.end());
  }
  for (const auto& queue : all) {
    if (const int32_t status = queue->wait(deadline)) return status;
  }
  return BP_OK;
}

void Device::finish() noexcept {
  std::lock_guard lock(mutex_);
  api().clFinish(default_->native());
  for (const auto& queue : queues_) api().clFinish(queue->native());
}

void Device::throw_sticky() const {
  std::lock_guard lock(mutex_);
  throw Error(static_cast<bp_status>(sticky()), format("device %d is not usable any more: %s", index_, why_.c_str()));
}

void Device::fail(int32_t status, const std::string& why) noexcept {
  std::lock_guard lock(mutex_);
  if (sticky() != BP_OK) return;
  why_ = why;
  sticky_.store(status, std::memory_order_release);
}

int32_t Device::status(const Event& event) {
  if (!event) return BP_OK;
  cl_int status = CL_COMPLETE;
  opencl::check(api().clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), "clGetEventInfo");
  if (status > CL_COMPLETE) return BP_PENDING;
  if (status < 0) fail(BP_FAULT, "a command failed: " + code_name(status));
  check();
  return BP_OK;
}

int32_t Device::wait(const Event& event, const Deadline& deadline) {
  if (!event) return BP_OK;
  if (deadline.endless()) {
    const cl_event one = event.get();
    api().clWaitForEvents(1, &one);  // what went wrong is the event's status
    if (const int32_t status = this->status(event); status != BP_PENDING) return status;
  }
  return poll(deadline.left_ns(), [&] { return status(event); });
}

void Device::take(uint64_t bytes) {
  check();
  uint64_t used = used_.load();
  do {
    if (bytes > info_.max_allocation || bytes > info_.memory - std::min(info_.memory, used)) {
      throw Error(BP_OUT_OF_MEMORY, format("%llu bytes on device %d, which has %llu in use, %llu in all and gives %llu at a time",
                                           wide(bytes), index_, wide(used), wide(info_.memory), wide(info_.max_allocation)));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
}

}  // namespace backplane::driver::opencl
