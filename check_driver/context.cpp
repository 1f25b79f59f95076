// check_driver/context.cpp: the instance under test, traced calls and the texts of failed expectations.
#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <backplane/driver/cxx/table.hpp>
#include <new>

#include "loader.h"
#include "process.h"

namespace backplane::check {
namespace context_impl {

thread_local char last_call[sizeof(Breadcrumb::call)] = "";
Breadcrumb* breadcrumb = nullptr;

}  // namespace context_impl

void set_breadcrumb(Breadcrumb* shared) { context_impl::breadcrumb = shared; }

const char* traced_call() { return context_impl::last_call; }

void trace_call(const char* name, std::initializer_list<Arg> args) {
  char* text = context_impl::last_call;
  const size_t size = sizeof context_impl::last_call;
  size_t at = static_cast<size_t>(snprintf(text, size, "%s(", name));
  const char* separator = "";
  for (const Arg& arg : args) {
    if (at + 40 > size) break;
    const int n = arg.is_pointer && !arg.value ? snprintf(text + at, size - at, "%sNULL", separator)
                  : arg.is_pointer             ? snprintf(text + at, size - at, "%s0x%llx", separator, wide(arg.value))
                  : arg.is_signed              ? snprintf(text + at, size - at, "%s%lld", separator, wide(static_cast<int64_t>(arg.value)))
                  : arg.value == UINT64_MAX
                      ? snprintf(text + at, size - at, "%sUINT64_MAX", separator)
                      : snprintf(text + at, size - at, arg.value > 0xffffffffu ? "%s0x%llx" : "%s%llu", separator, wide(arg.value));
    at += static_cast<size_t>(n);
    separator = ", ";
  }
  snprintf(text + at, size - at, ")");
  // Of two threads at once one is enough: the text is only a hint for a crash. Its last byte stays 0.
  Breadcrumb* shared = context_impl::breadcrumb;
  if (!shared || shared->writing.test_and_set(std::memory_order_acquire)) return;
  memcpy(shared->call, text, size - 1);
  shared->writing.clear(std::memory_order_release);
}

std::string status_text(int32_t status) {
  if (status < BP_OK || status > BP_INTERNAL) return format("%d (not a bp_status)", status);
  return std::string("BP_") + driver::status_name(status);
}

HostBuffer::HostBuffer(uint64_t bytes, uint8_t value) : size_(bytes) {
  data_ = static_cast<uint8_t*>(aligned_alloc(4096, (bytes + 4096) / 4096 * 4096));
  if (!data_) throw std::bad_alloc();
  memset(data_, value, bytes);
}

HostBuffer::~HostBuffer() { ::free(data_); }

void HostBuffer::fill_pattern(uint32_t seed) {
  uint32_t state = seed * 2654435761u + 1u;
  for (uint64_t i = 0; i < size_; ++i) {
    state = state * 1664525u + 1013904223u;
    data_[i] = static_cast<uint8_t>(state >> 24);
  }
}

void Context::load() { take(check::load(options_)); }

void Context::load_with_fault(const std::string& config) {
  Options with = options_;
  for (const std::string& shim : with.shims) {
    if (driver::shim_name(shim) == "fault") throw NotOffered{"the fault shim is in use already"};
  }
  const auto is_emulate = [](const std::string& shim) { return driver::shim_name(shim) == "emulate"; };
  with.shims.insert(std::find_if(with.shims.begin(), with.shims.end(), is_emulate), "fault");
  with.config += (with.config.empty() ? "" : ",") + config;
  try {
    take(check::load(with));
  } catch (const LoadError& error) {
    throw NotRun{error.text};
  }
}

void Context::make_breakable() {
  if (group<bp_host_exec>()) return;
  char file[] = "/tmp/backplane-check-driver-XXXXXX";
  const int fd = mkstemp(file);
  if (fd < 0) throw NotRun{std::string("no file can be made in /tmp: ") + strerror(errno)};
  ::close(fd);
  unlink(file);  // it appears when the fault is wanted
  close();
  load_with_fault(format("fault.kernel=@1,fault.device=0,fault.armed_by=%s", file));
  armed_by_ = file;
}

void Context::fail_next_work() const {
  const int fd = ::open(armed_by_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) throw NotRun{armed_by_ + ": " + strerror(errno)};
  ::close(fd);
}

Context::~Context() {
  if (!armed_by_.empty()) unlink(armed_by_.c_str());
}

void Context::take(const Stack& stack) {
  table_ = stack.table;
  own_streams_ = stack.own_streams;
  opened_ = false;
  devices_ = -1;
  properties_.clear();
}

void Context::open() {
  expect(CALL(*this, open), BP_OK, "First use in this process, once, before any entry below");
  opened_ = true;
}

void Context::close() {
  expect(CALL(*this, close), BP_OK, "Explicit shutdown: ends the instance's threads, releases everything, including the table");
  table_ = {};
}

int32_t Context::devices() {
  if (devices_ < 0) ask_for_devices();
  return devices_;
}

// Of a driver whose count would spoil a later fork a child process asks, as the core does.
void Context::ask_for_devices() {
  if (opened_ || !(table_.flags & BP_DRIVER_COUNT_FORKS)) {
    devices_ = count();
    return;
  }
  int ends[2];
  if (pipe(ends) != 0) throw NotRun{std::string("no pipe: ") + strerror(errno)};
  in_child("Number of devices; 0 is a valid answer", "a child process that asked for count and properties", [&] {
    for (int32_t d = 0, n = count(); d < n; ++d) {
      const bp_device_properties p = asked_properties(d);
      if (write(ends[1], &p, sizeof p) != sizeof p) _exit(1);
    }
  });
  ::close(ends[1]);
  for (bp_device_properties p; read(ends[0], &p, sizeof p) == sizeof p;) properties_.push_back(p);
  ::close(ends[0]);
  devices_ = static_cast<int32_t>(properties_.size());
}

int32_t Context::count() const {
  const char* rule = "Number of devices; 0 is a valid answer";
  int32_t count = -1;
  expect(CALL(*this, device_count, &count), BP_OK, rule);
  require(count >= 0, rule, "device_count answered %d", count);
  return count;
}

bp_device_properties Context::asked_properties(int32_t device) const {
  auto p = sized<bp_device_properties>();
  expect(CALL(*this, device_properties, device, &p), BP_OK, "Fills *out");
  return p;
}

const bp_device_properties& Context::properties(int32_t device) {
  const int32_t n = devices();
  if (properties_.empty()) {
    for (int32_t d = 0; d < n; ++d) properties_.push_back(asked_properties(d));
  }
  return properties_.at(static_cast<size_t>(device));
}

uint64_t Context::unit(int32_t device) { return std::max<uint64_t>(properties(device).copy_alignment, 1); }

uint64_t Context::at_most(int32_t device, uint64_t bytes, uint64_t share) {
  const bp_device_properties& p = properties(device);
  for (uint64_t limit : {p.total_memory / share, p.max_allocation}) {
    if (limit) bytes = std::min(bytes, limit);
  }
  return bytes - bytes % unit(device);
}

uint64_t Context::some_bytes(int32_t device) {
  const uint64_t bytes = at_most(device, 64 << 10, 64);
  return std::max(bytes - bytes % 8, unit(device));
}

void Context::require_needs(uint64_t needs) {
  const auto need = [&](uint64_t bit, bool offered, const char* reason) {
    if ((needs & bit) && !offered) throw NotOffered{reason};
  };
  if (!(needs & needs_no_device) && devices() == 0) throw NotOffered{"the driver has no device"};
  need(needs_streams, driver::has_streams(table_), "no streams");
  need(needs_events, driver::has_events(table_), "no events");
  need(needs_pinned, driver::has_pinned(table_), "no pinned memory");
#define BP_NEED(of, slot) need(needs_##slot, table_.slot, "no " #slot);
  BP_DRIVER_SLOTS(BP_NEED)
#undef BP_NEED
  need(needs_threads, !(table_.flags & BP_DRIVER_SERIALIZE), "the driver sets BP_DRIVER_SERIALIZE");
#define BP_NEED(name, NAME, about) \
  if (needs & needs_##name) need(needs_##name, group<bp_##name>().has_value(), "no " BP_##NAME##_ID);
  BP_DRIVER_GROUPS(BP_NEED)
#undef BP_NEED
  if (needs & needs_two_devices) need(needs_two_devices, devices() >= 2, "one device only");
}

std::string Context::last_error() const { return driver::last_error_text(table_); }

void Context::expect(int32_t got, int32_t want, const char* rule) const { expect_one_of(got, {want}, rule); }

void Context::expect_one_of(int32_t got, std::initializer_list<int32_t> want, const char* rule) const {
  if (std::find(want.begin(), want.end(), got) != want.end()) return;
  const std::string call = traced_call();
  std::string text = call + " gave " + status_text(got);
  // After close() the table is dead, so its error text cannot be asked.
  if (got != BP_OK && got != BP_PENDING && call.rfind("close(", 0) != 0) {
    const std::string why = last_error();
    if (!why.empty()) text += " (\"" + why + "\")";
  }
  text += ", expected ";
  const char* separator = "";
  for (int32_t status : want) {
    text += separator + status_text(status);
    separator = " or ";
  }
  throw Failure{text, rule};
}

void Context::require(bool condition, const char* rule, const char* text, ...) const {
  if (condition) return;
  va_list args;
  va_start(args, text);
  char buffer[1024];
  vsnprintf(buffer, sizeof buffer, text, args);
  va_end(args);
  throw Failure{buffer, rule};
}

void Context::in_child(const char* rule, const char* what, const std::function<void()>& body, bool run_destructors) const {
  const std::string end = check::in_child(body, run_destructors);
  require(end.empty(), rule, "%s %s", what, end.c_str());
}

void Context::same(const uint8_t* got, const uint8_t* want, uint64_t bytes, const char* rule, const char* what) const {
  const auto [g, w] = std::mismatch(got, got + bytes, want);
  if (g == got + bytes) return;
  throw Failure{format("%s: byte %llu of %llu is 0x%02x, expected 0x%02x", what, wide(g - got), wide(bytes), *g, *w), rule};
}

uint64_t Context::alloc(int32_t device, uint64_t bytes) const {
  uint64_t address = 0;
  expect(CALL(*this, alloc, device, bytes, 0u, &address), BP_OK, "Allocates device memory");
  require(address != 0, "0 is allowed and returns a unique non-zero address", "%s gave address 0", traced_call());
  return address;
}

void Context::free(int32_t device, uint64_t address) const { expect(CALL(*this, free, device, address), BP_OK, "Frees memory of alloc"); }

bp_stream* Context::stream(int32_t device) const {
  bp_stream* stream = nullptr;
  const int32_t status = CALL(*this, stream_create, device, 0, 0u, &stream);
  if (status == BP_UNSUPPORTED && !properties_.empty()) {
    const int32_t limit = properties_.at(static_cast<size_t>(device)).stream_limit;
    if (limit > 0 && limit < 4) throw NotOffered{format("a stream_limit of %d is too small for this check", limit)};
  }
  expect(status, BP_OK, rules::stream_order);
  require(stream != nullptr, "A NULL stream is the device's default stream", "%s gave BP_OK and no stream", traced_call());
  return stream;
}

bp_event* Context::event(int32_t device, uint32_t flags) const {
  bp_event* event = nullptr;
  expect(CALL(*this, event_create, device, flags, &event), BP_OK, "owner: the caller. flags: BP_EVENT_*");
  require(event != nullptr, "owner: the caller. flags: BP_EVENT_*", "%s gave BP_OK and no event", traced_call());
  return event;
}

uint8_t* Context::pinned(uint64_t bytes, uint8_t value) const {
  void* memory = nullptr;
  expect(CALL(*this, host_alloc, bytes, 0u, &memory), BP_OK, "Allocates host memory for copy_async");
  require(memory != nullptr, "Allocates host memory for copy_async", "%s gave BP_OK and NULL", traced_call());
  return static_cast<uint8_t*>(memset(memory, value, bytes));
}

void Context::upload(int32_t device, uint64_t address, const uint8_t* host, uint64_t bytes, bp_stream* stream) const {
  expect(CALL(*this, copy, device, stream, address, device, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, bytes, 0u), BP_OK,
         rules::copy);
}

void Context::download(int32_t device, uint64_t address, uint8_t* host, uint64_t bytes, bp_stream* stream) const {
  expect(CALL(*this, copy, device, stream, reinterpret_cast<uint64_t>(host), BP_HOST_DEVICE, address, device, bytes, 0u), BP_OK,
         rules::copy);
}

void Context::holds(int32_t device, uint64_t address, const uint8_t* want, uint64_t bytes, const char* rule, const char* what,
                    bp_stream* stream) const {
  HostBuffer seen(bytes, 0xa5);
  download(device, address, seen.data(), bytes, stream);
  same(seen.data(), want, bytes, rule, what);
}

void Context::synchronize(int32_t device) const {
  expect(CALL(*this, synchronize, device, BP_NO_TIMEOUT), BP_OK, "Waits until all work of all streams of the device is complete");
}

void Context::synchronize(int32_t device, bp_stream* stream) const {
  if (!table_.stream_synchronize) return synchronize(device);
  expect(CALL(*this, stream_synchronize, device, stream, BP_NO_TIMEOUT), BP_OK, rules::wait);
}

void Context::refuses_device(int32_t bad) const {
  const auto refused = [&](int32_t got) { expect(got, BP_INVALID_DEVICE, rules::no_such_device); };
  const auto untouched = [&](bool same) { require(same, rules::errors, "%s failed and yet wrote to an output", traced_call()); };
  bp_device_properties p, before;
  memset(&p, 0x55, sizeof p);
  p.struct_size = sizeof p;
  memcpy(&before, &p, sizeof p);
  refused(CALL(*this, device_properties, bad, &p));
  untouched(!memcmp(&before, &p, sizeof p));
  uint64_t address = 0x77, total = 2;
  refused(CALL(*this, alloc, bad, 4096, 0u, &address));
  untouched(address == 0x77);
  refused(CALL(*this, synchronize, bad, BP_NO_TIMEOUT));
  int mark = 0;
  if (table_.stream_create) {
    auto* stream = reinterpret_cast<bp_stream*>(&mark);
    refused(CALL(*this, stream_create, bad, 0, 0u, &stream));
    untouched(stream == reinterpret_cast<bp_stream*>(&mark));
  }
  if (table_.event_create) {
    auto* event = reinterpret_cast<bp_event*>(&mark);
    refused(CALL(*this, event_create, bad, 0u, &event));
    untouched(event == reinterpret_cast<bp_event*>(&mark));
  }
  if (table_.memory_info) {
    refused(CALL(*this, memory_info, bad, &address, &total));
    untouched(address == 0x77 && total == 2);
  }
  if (table_.set_current) refused(CALL(*this, set_current, bad));
}

void Context::smoke(int32_t device, const char* rule) const {
  const uint64_t bytes = 4096;
  HostBuffer sent(bytes), back(bytes);
  sent.fill_pattern(static_cast<uint32_t>(device) + 77);
  uint64_t address = 0;
  expect(CALL(*this, alloc, device, bytes, 0u, &address), BP_OK, rule);
  expect(CALL(*this, copy, device, nullptr, address, device, sent.address(), BP_HOST_DEVICE, bytes, 0u), BP_OK, rule);
  expect(CALL(*this, copy, device, nullptr, back.address(), BP_HOST_DEVICE, address, device, bytes, 0u), BP_OK, rule);
  same(back.data(), sent.data(), bytes, rule, "bytes read back");
  expect(CALL(*this, synchronize, device, BP_NO_TIMEOUT), BP_OK, rule);
  expect(CALL(*this, free, device, address), BP_OK, rule);
}

}  // namespace backplane::check
