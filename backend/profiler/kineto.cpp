// profiler/kineto.cpp: the device in torch.profiler: a plug-in of Kineto, whose sessions convert the driver's records to trace activities.
//
// Torch identifies operators and ranges by ids, which it pushes on the thread that runs them; the driver tags work with the innermost id.
#include <c10/util/Exception.h>
#include <libkineto.h>
#include <output_base.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "modules/unit.h"
#include "profiler/recording.h"
#include "runtime/device.h"
#include "runtime/options.h"
#include "torch/compat.h"
#include "torch/kineto.h"

namespace backplane {
namespace kineto_impl {
namespace {

using libkineto::ActivityType;
using Activity = libkineto::GenericTraceActivity;
using Linked = const libkineto::ITraceActivity*;

// Ids of launches, which torch looks up together with those of operators: larger than any operator's.
constexpr int32_t kFirstLaunch = 1 << 30;
// The entry of each kernel that torch.compile writes: it is shown with the name of the operator that launches it.
constexpr const char* kGenerated = "generated";
// Rows of devices are sorted after those of threads.
constexpr int64_t kBelowThreads = 5'000'000;

// The ids that are open on a thread.
struct Open {
  uint64_t session = 0;
  std::vector<uint64_t> operators, ranges;
};
thread_local Open t_open;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

std::string place(int32_t device) { return device == BP_HOST_DEVICE ? "H" : "D"; }

std::string copy_name(const bp_activity& copy) {
  if (copy.src_device != copy.dst_device && copy.src_device != BP_HOST_DEVICE && copy.dst_device != BP_HOST_DEVICE) {
    return "Memcpy PtoP (" + std::to_string(copy.src_device) + " -> " + std::to_string(copy.dst_device) + ")";
  }
  return "Memcpy " + place(copy.src_device) + "to" + place(copy.dst_device);
}

// Entries of the kernel library, each of which computes several operators.
std::set<std::string> library_entries() {
  std::set<std::string> entries;
  for (const KernelSource& source : wanted_kernels()) entries.insert(source.kernel);
  return entries;
}

std::string name_of(const ActivityRecord& record, Linked linked, const std::set<std::string>& library) {
  switch (record.activity.kind) {
    case BP_ACTIVITY_COPY:
      return copy_name(record.activity);
    case BP_ACTIVITY_FILL:
      return "Memset";
    case BP_ACTIVITY_COLLECTIVE:
      return std::string(device_name()) + "ccl:" + (record.name.empty() ? "collective" : record.name);
    default:
      if (linked && record.name == kGenerated) return linked->name();
      if (linked && library.count(record.name) != 0) return linked->name() + " " + record.name;
      if (!record.name.empty()) return record.name;
      return linked ? linked->name() + " kernel" : "kernel";
  }
}

const char* launch_name(int32_t kind) {
  switch (kind) {
    case BP_ACTIVITY_COPY:
      return "launch copy";
    case BP_ACTIVITY_FILL:
      return "launch fill";
    case BP_ACTIVITY_COLLECTIVE:
      return "launch collective";
    default:
      return "launch kernel";
  }
}

ActivityType type_of(int32_t kind) {
  switch (kind) {
    case BP_ACTIVITY_COPY:
      return ActivityType::GPU_MEMCPY;
    case BP_ACTIVITY_FILL:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::CONCURRENT_KERNEL;  // for collectives, too: the other type is for the CPU
  }
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(const std::set<ActivityType>& types) : types_(types), number_(++sessions_) {}
  ~Session() override {
    if (recording_) stop_recording();
  }

  void start() override {
    recording_ = start_recording();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (recording_) recorded_ = stop_recording();
    recording_ = false;
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    std::vector<std::string> texts;
    if (std::string refused = take_refusal(); !refused.empty()) texts.push_back(std::move(refused));
    if (recorded_.dropped) texts.push_back(std::to_string(recorded_.dropped) + " records of " + device_name() + " were lost");
    return texts;
  }

  // Called on every thread that runs operators, for each of them.

  void pushCorrelationId(uint64_t id) override {
    if (!recording_) return;
    Open& open = here();
    if (!open.ranges.empty()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      range_of_.emplace(id, open.ranges.back());
    }
    open.operators.push_back(id);
    tag_work(id);
  }
  void popCorrelationId() override {
    Open& open = here();
    if (!open.operators.empty()) open.operators.pop_back();
    retag(open);
  }
  void pushUserCorrelationId(uint64_t id) override {
    if (!recording_) return;
    Open& open = here();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      range_of_.emplace(id, id);
      if (!open.ranges.empty()) around_.emplace(id, open.ranges.back());
    }
    open.ranges.push_back(id);
    retag(open);
  }
  void popUserCorrelationId() override {
    Open& open = here();
    if (!open.ranges.empty()) open.ranges.pop_back();
    retag(open);
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) -> Linked { return nullptr; }, 0, 0);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t begin, int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin, end, device_name());
    buffer_->span.iteration = 0;
    buffer_->gpuOpCount = static_cast<int>(recorded_.records.size());
    library_ = library_entries();
    auto& records = recorded_.records;
    std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.activity.begin_ns < b.activity.begin_ns; });
    int32_t launch = kFirstLaunch;
    for (const ActivityRecord& record : records) {
      if (record.activity.device < 0) continue;  // not a device of this process
      const auto known = linked(static_cast<int32_t>(record.activity.correlation));
      const bool ran = record.activity.end_ns != 0;
      add_launch(record.activity, known, launch, ran);
      if (ran) add_work(record, known, launch);
      ++launch;
    }
    if (wants(ActivityType::GPU_USER_ANNOTATION)) add_ranges(linked);
    for (const auto& activity : buffer_->activities) activity->log(logger);
    logger_ = &logger;
  }

  // Called after Kineto names sixteen devices itself, with the logger of processTrace, which receives the names of all but one.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    std::unique_ptr<libkineto::DeviceInfo> last;
    for (const auto& [device, row] : rows_) {
      if (last && logger_) logger_->handleDeviceInfo(*last, buffer_ ? buffer_->span.startTime : 0);
      const std::string name = std::string(device_name()) + ":" + std::to_string(device);
      const auto& properties = device_properties(static_cast<c10::DeviceIndex>(device));
      last.reset(new libkineto::DeviceInfo{device, device + kBelowThreads, name, properties.name});
    }
    return last;
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [device, rows] : rows_) {
      for (const auto& [stream, row] : rows) {
        infos.push_back({row, row, device, stream == 0 ? "default stream" : "stream " + std::to_string(row)});
      }
    }
    return infos;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  std::string getDeviceProperties() override {
    std::string text;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      const bp_device_properties& is = device_properties(device);
      if (!text.empty()) text += ", ";
      text += "{\"id\": " + std::to_string(device) + ", \"name\": \"" + escaped(is.name) + "\", \"vendor\": \"" + escaped(is.vendor) +
              "\", \"driverVersion\": \"" + escaped(is.driver_version) + "\", \"totalGlobalMem\": " + std::to_string(is.total_memory) +
              ", \"computeMajor\": " + std::to_string(is.capability_major) + ", \"computeMinor\": " + std::to_string(is.capability_minor) +
              ", \"numSms\": " + std::to_string(is.compute_units) + ", \"warpSize\": " + std::to_string(is.warp_size) + "}";
    }
    return text;
  }

 private:
  bool wants(ActivityType type) const { return types_.count(type) != 0; }

  Open& here() const {
    if (t_open.session != number_) t_open = {number_, {}, {}};
    return t_open;
  }
  static void retag(const Open& open) {
    if (!open.operators.empty()) {
      tag_work(open.operators.back());
    } else {
      tag_work(open.ranges.empty() ? 0 : open.ranges.back());
    }
  }

  // Row of a stream: 0 for the default one, then in the order of appearance.
  int32_t row_of(int32_t device, uint64_t stream) {
    auto& rows = rows_[device];
    if (stream == 0) return rows[0] = 0;
    const int32_t next = static_cast<int32_t>(rows.size()) + (rows.count(0) ? 0 : 1);
    return rows.emplace(stream, next).first->second;
  }

  Activity& add(ActivityType type, const std::string& name, int64_t begin_ns, int64_t end_ns) {
    buffer_->emplace_activity(buffer_->span, type, escaped(name));
    Activity& activity = *buffer_->activities.back();
    activity.startTime = begin_ns;
    activity.endTime = end_ns;
    return activity;
  }

  // The call that queued it, on the row of the operator's thread: the arrow to the work begins here.
  void add_launch(const bp_activity& record, Linked linked, int32_t id, bool ran) {
    if (!wants(ActivityType::PRIVATEUSE1_RUNTIME)) return;
    Activity& activity = add(ActivityType::PRIVATEUSE1_RUNTIME, launch_name(record.kind), record.queued_ns, record.queued_ns);
    activity.id = id;
    activity.device = linked ? static_cast<int32_t>(linked->deviceId()) : libkineto::processId();
    activity.resource = linked ? static_cast<int32_t>(linked->resourceId()) : record.thread;
    activity.threadId = record.thread;
    activity.linked = linked;
    activity.addMetadata("correlation", id);
    if (!ran) return activity.addMetadataQuoted("unfinished", "when the profile ended");
    activity.flow.id = static_cast<uint32_t>(id);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = 1;
  }

  void add_work(const ActivityRecord& record, Linked linked, int32_t id) {
    const bp_activity& is = record.activity;
    const int32_t row = row_of(is.device, is.stream);
    if (wants(type_of(is.kind))) {
      Activity& activity = add(type_of(is.kind), name_of(record, linked, library_), is.begin_ns, is.end_ns);
      activity.id = id;
      activity.device = is.device;
      activity.resource = row;
      activity.threadId = is.thread;
      activity.linked = linked;
      if (wants(ActivityType::PRIVATEUSE1_RUNTIME)) {
        activity.flow.id = static_cast<uint32_t>(id);
        activity.flow.type = libkineto::kLinkAsyncCpuGpu;
        activity.flow.start = 0;
      }
      activity.addMetadata("device", is.device);
      activity.addMetadata("stream", row);
      activity.addMetadata("correlation", id);
      if (is.kind != BP_ACTIVITY_KERNEL) {
        activity.addMetadata("bytes", is.bytes);
        const auto ns = static_cast<double>(std::max<int64_t>(is.end_ns - is.begin_ns, 1));
        activity.addMetadata("memory bandwidth (GB/s)", static_cast<double>(is.bytes) / ns);
      }
    }
    auto range = range_of_.find(is.correlation);
    if (range == range_of_.end()) return;
    for (uint64_t id_of_range = range->second;;) {
      auto& [from, to] = ranges_.try_emplace({id_of_range, is.device, row}, is.begin_ns, is.end_ns).first->second;
      from = std::min(from, is.begin_ns);
      to = std::max(to, is.end_ns);
      const auto outer = around_.find(id_of_range);
      if (outer == around_.end()) break;
      id_of_range = outer->second;
    }
  }

  // A range of record_function, on the device's rows: from the first work in it to the last.
  void add_ranges(const libkineto::getLinkedActivityCallback& linked) {
    for (const auto& [key, times] : ranges_) {
      const auto& [id, device, row] = key;
      const auto range = linked(static_cast<int32_t>(id));
      if (range == nullptr) continue;
      Activity& activity = add(ActivityType::GPU_USER_ANNOTATION, range->name(), times.first, times.second);
      activity.device = device;
      activity.resource = row;
      activity.id = static_cast<int32_t>(id);  // not linked: its time would be the range's own, besides that of its work
    }
  }

  static inline std::atomic<uint64_t> sessions_{0};

  const std::set<ActivityType> types_;
  const uint64_t number_;
  std::atomic<bool> recording_{false};
  Recorded recorded_;
  std::set<std::string> library_;
  libkineto::ActivityLogger* logger_ = nullptr;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::map<int32_t, std::map<uint64_t, int32_t>> rows_;  // device -> stream -> row

  std::mutex mutex_;
  std::unordered_map<uint64_t, uint64_t> range_of_;  // operator -> the innermost range that contains it
  std::unordered_map<uint64_t, uint64_t> around_;    // range -> the enclosing range
  std::map<std::tuple<uint64_t, int32_t, int32_t>, std::pair<int64_t, int64_t>> ranges_;  // range, device, row -> begin, end
};

class Plug final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types, const libkineto::Config&) override {
    const auto asked = [&](ActivityType type) { return types.count(type) != 0; };
    const bool device = asked(ActivityType::CONCURRENT_KERNEL) || asked(ActivityType::GPU_MEMCPY) || asked(ActivityType::GPU_MEMSET);
    return device ? std::make_unique<Session>(types) : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = device_name();
  const std::set<ActivityType> types_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                         ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
};

[[maybe_unused]] const bool registered = [] {
  compat::register_kineto_plug([]() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Plug>(); });
  return true;
}();

}  // namespace
}  // namespace kineto_impl
}  // namespace backplane
