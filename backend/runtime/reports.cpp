// runtime/reports.cpp: one record per device, created when the first kernel that may report is launched, and never freed.
#include "runtime/reports.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/stream.h"
#include "runtime/wait.h"

namespace backplane {
namespace reports_impl {
namespace {

struct Report {
  uint64_t site;  // 0: nothing
  int64_t value, bound;
};

constexpr uint64_t kBytes = 512;     // a multiple of every copy_alignment
constexpr size_t kMostSites = 4096;  // operators, and kernels that torch.compile wrote
constexpr size_t kMostTexts = 1000;  // of assertions
constexpr size_t kMostProbes = 64;
constexpr uint64_t kFirstDim = 1 << 16;  // sites from here on are dimensions

struct Record {
  std::atomic<uint64_t> address{0};
  std::atomic<uint64_t> writers{0};  // streams whose kernels may have filled the record since their last wait, one bit for each 64th
};
std::array<Record, static_cast<size_t>(std::numeric_limits<c10::DeviceIndex>::max()) + 1> records;
std::array<std::atomic<const char*>, kMostSites> sites{};
std::mutex making;

// For a stream whose work may hang: copies after a wait that can be interrupted.
void copy(const c10::Stream& stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device) {
  if (!is_capturing(stream)) synchronize_stream(stream);
  call<&bp_driver::copy>(stream.device_index(), stream_handle(stream), dst, dst_device, src, src_device, kBytes, 0u);
}

void clear(const c10::Stream& stream, uint64_t address) {
  alignas(64) const char zeros[kBytes] = {};
  copy(stream, address, driver_index(stream.device_index()), reinterpret_cast<uint64_t>(zeros), BP_HOST_DEVICE);
}

uint64_t bit_of(const c10::Stream& stream) { return uint64_t{1} << (static_cast<uint64_t>(stream.id()) & 63); }

constexpr int64_t kByZero = -1;  // BP_BY_ZERO of dialect/core.bpc
constexpr int64_t kFailed = -2;  // BP_FAILED

[[noreturn]] void raise(const Report& report) {
  TORCH_CHECK(report.bound != kByZero, "ZeroDivisionError");  // as the CPU has it
  TORCH_CHECK(report.site < kFirstDim, "index ", report.value, " is out of bounds for dimension ", report.site - kFirstDim, " with size ",
              report.bound);  // as the CPU has it
  const char* name = report.site <= kMostSites ? sites[report.site - 1].load() : nullptr;
  TORCH_CHECK(report.bound != kFailed, name == nullptr ? "an assertion on the device" : name);
  TORCH_CHECK_INDEX(false, name == nullptr ? "a kernel" : name, ": index ", report.value, " is out of range for ", report.bound,
                    " elements; it was read as 0, or not written");
}

// writers: the streams that have been waited for.
void ask(const c10::Stream& stream, uint64_t writers) {
  check_waited();
  Record& record = records[static_cast<size_t>(stream.device_index())];
  if (C10_LIKELY((record.writers.load(std::memory_order_relaxed) & writers) == 0)) return;
  const uint64_t asked = record.writers.fetch_and(~writers) & writers;
  alignas(64) char bytes[kBytes];
  const uint64_t address = record.address.load(std::memory_order_acquire);
  try {
    copy(stream, reinterpret_cast<uint64_t>(bytes), BP_HOST_DEVICE, address, driver_index(stream.device_index()));
  } catch (...) {  // out of memory: the next wait asks again
    record.writers.fetch_or(asked);
    throw;
  }
  Report report;
  std::memcpy(&report, bytes, sizeof report);
  if (C10_LIKELY(report.site == 0)) return;
  clear(stream, address);
  raise(report);
}

}  // namespace
}  // namespace reports_impl

using namespace reports_impl;

uint64_t report_record(c10::DeviceIndex device) {
  Record& record = records[static_cast<size_t>(device)];
  uint64_t address = record.address.load(std::memory_order_acquire);
  if (C10_UNLIKELY(address == 0)) {
    const std::lock_guard<std::mutex> lock(making);
    address = record.address.load(std::memory_order_relaxed);
    if (address == 0) {
      int32_t status = driver_alloc(device, kBytes, 0, &address);
      if (status == BP_OUT_OF_MEMORY) {
        c10::getDeviceAllocator(kDevice)->emptyCache();
        status = driver_alloc(device, kBytes, 0, &address);
      }
      if (status != BP_OK) throw_status(status, "alloc", device, last_error_text());
      clear(current_stream(device), address);
      record.address.store(address, std::memory_order_release);
    }
  }
  record.writers.fetch_or(bit_of(current_stream(device)), std::memory_order_relaxed);
  return address;
}

void expect_reports(const c10::Stream& stream) {
  Record& record = records[static_cast<size_t>(stream.device_index())];
  if (record.address.load(std::memory_order_acquire) != 0) record.writers.fetch_or(bit_of(stream), std::memory_order_relaxed);
}

uint64_t report_site(const char* op) {
  const auto first = reinterpret_cast<uintptr_t>(op);
  for (size_t i = 0; i < kMostProbes; ++i) {
    const size_t at = (first + i) % kMostSites;
    const char* known = sites[at].load(std::memory_order_acquire);
    if (known == op || (known == nullptr && (sites[at].compare_exchange_strong(known, op) || known == op))) return at + 1;
  }
  return kMostSites + 1;
}

uint64_t report_text(std::string_view text) {
  static std::mutex adding;
  static auto& texts = *new std::set<std::string, std::less<>>;
  const std::lock_guard<std::mutex> lock(adding);
  auto known = texts.find(text);
  if (known == texts.end()) {
    if (texts.size() >= kMostTexts) return 0;
    known = texts.emplace(text).first;
  }
  return report_site(known->c_str());
}

uint64_t report_site(int64_t dim) { return kFirstDim + static_cast<uint64_t>(dim); }

void raise_reports(const c10::Stream& stream) { ask(stream, bit_of(stream)); }

void raise_reports(c10::DeviceIndex device) { ask(current_stream(device), ~uint64_t{0}); }

void raise_visible_reports(c10::DeviceIndex device) {
  if (!open_driver().zero_copy) return;
  const Record& record = records[static_cast<size_t>(device)];
  auto* const seen = reinterpret_cast<volatile Report*>(record.address.load(std::memory_order_acquire));
  if (seen == nullptr || C10_LIKELY(seen->site == 0)) return;
  const Report report{seen->site, seen->value, seen->bound};
  seen->site = 0;
  raise(report);
}

}  // namespace backplane
