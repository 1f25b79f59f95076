// check_driver/context.h: what a check works with: one fresh instance of the driver, calls that leave a trace, and expectations.
//
// A check calls an entry as  c.expect(CALL(c, alloc, 0, 64, 0, &address), BP_OK, "the rule's words").  CALL notes the entry and its
// arguments, so that a failure, a crash and a hang can all name the call.
#pragma once

#include <atomic>
#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/groups.hpp>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "check.h"
#include "options.h"

namespace backplane::check {

using driver::format;
using driver::sized;
using driver::wide;

struct Stack;  // loader.h

// One argument of a call, kept as a number for the trace.
struct Arg {
  uint64_t value;
  bool is_signed;
  bool is_pointer;
};

template <class T>
Arg arg_of(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return {reinterpret_cast<uint64_t>(value), false, true};
  } else {
    return {static_cast<uint64_t>(value), std::is_signed_v<T>, false};
  }
}

// Notes the call that is about to be made, for this thread's next expectation and for the process that watches this one.
void trace_call(const char* name, std::initializer_list<Arg> args);

// The text of this thread's last call, "alloc(0, 64, 0, 0x7ffd2c)".
const char* traced_call();

// Where the watching process reads the latest call of any thread. Points into memory that both share.
struct Breadcrumb {
  std::atomic_flag writing;
  char call[192];
};
void set_breadcrumb(Breadcrumb* shared);

template <class... P, class... A>
int32_t traced(const char* name, int32_t (*entry)(void*, P...), void* self, A... args) {
  trace_call(name, {arg_of<P>(static_cast<P>(args))...});
  return entry(self, static_cast<P>(args)...);
}

#define CALL(c, entry, ...) ::backplane::check::traced(#entry, (c).table().entry, (c).table().self __VA_OPT__(, ) __VA_ARGS__)
#define CALL_GROUP(group, entry, ...)                                                            \
  ::backplane::check::traced((std::string((group).head.id) + "." #entry).c_str(), (group).entry, \
                             (group).head.self __VA_OPT__(, ) __VA_ARGS__)

// "BP_OK", "BP_OUT_OF_MEMORY"; "77 (not a bp_status)".
std::string status_text(int32_t status);

// Host memory, aligned so that any copy_alignment is met.
class HostBuffer {
 public:
  explicit HostBuffer(uint64_t bytes, uint8_t value = 0);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  uint8_t* data() { return data_; }
  uint64_t size() const { return size_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  uint8_t& operator[](uint64_t i) { return data_[i]; }
  // Bytes that depend on the position and the seed, so that a shifted or stale copy shows.
  void fill_pattern(uint32_t seed);

 private:
  uint8_t* data_;
  uint64_t size_;
};

class Context {
 public:
  explicit Context(const Options& options) : options_(options) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Options& options() const { return options_; }
  const bp_driver& table() const { return table_; }
  bool own_streams() const { return own_streams_; }  // the driver's, not those that emulate supplies

  // Loads a new instance and forgets the one before. Throws driver::LoadFailure, LoadError.
  void load();
  // The same with the SDK's fault shim over the driver, inside all other shims but emulate and those that emulate is over. Throws NotRun if
  // it is not found.
  void load_with_fault(const std::string& config);
  // For a check that breaks device 0: as it is if a host function can do that, else with the fault shim, which fail_next_work() arms.
  void make_breakable();
  bool under_fault() const { return !armed_by_.empty(); }
  void fail_next_work() const;
  void open();
  void close();

  // Devices and their properties; asked at the first use.
  int32_t devices();
  const bp_device_properties& properties(int32_t device);
  uint64_t unit(int32_t device);  // what addresses and sizes of copies must be a multiple of
  // So many bytes, or what the device has room for: a share of its memory, one allocation, a multiple of unit.
  uint64_t at_most(int32_t device, uint64_t bytes, uint64_t share = 16);
  uint64_t some_bytes(int32_t device);  // a working size: 64 KiB, less if the device is tiny, a multiple of unit

  // An optional group, if the driver offers it: group<bp_peer>().
  template <class Group>
  std::optional<Group> group() const {
    return driver::find_group<Group>(table_);
  }

  // Throws NotOffered if a need of the check is not met.
  void require_needs(uint64_t needs);

  // Throws Failure. expect() names the calling thread's last call and the driver's error text.
  void expect(int32_t got, int32_t want, const char* rule) const;
  void expect_one_of(int32_t got, std::initializer_list<int32_t> want, const char* rule) const;
  [[gnu::format(printf, 4, 5)]] void require(bool condition, const char* rule, const char* text, ...) const;
  [[noreturn]] void fail(const char* rule, const std::string& text) const { throw Failure{text, rule}; }
  // Runs body in a child process, which must end with code 0. `what` names it.
  void in_child(const char* rule, const char* what, const std::function<void()>& body, bool run_destructors = false) const;
  // Bytes [0, bytes) of both are equal.
  void same(const uint8_t* got, const uint8_t* want, uint64_t bytes, const char* rule, const char* what) const;

  // Shorthands that expect BP_OK.
  uint64_t alloc(int32_t device, uint64_t bytes) const;
  void free(int32_t device, uint64_t address) const;
  bp_stream* stream(int32_t device) const;
  bp_event* event(int32_t device, uint32_t flags = 0) const;
  uint8_t* pinned(uint64_t bytes, uint8_t value = 0) const;
  void upload(int32_t device, uint64_t address, const uint8_t* host, uint64_t bytes, bp_stream* stream = nullptr) const;
  void download(int32_t device, uint64_t address, uint8_t* host, uint64_t bytes, bp_stream* stream = nullptr) const;
  // Device memory is `want`, read behind the work of the stream.
  void holds(int32_t device, uint64_t address, const uint8_t* want, uint64_t bytes, const char* rule, const char* what,
             bp_stream* stream = nullptr) const;
  void synchronize(int32_t device) const;
  void synchronize(int32_t device, bp_stream* stream) const;  // the device of a driver without streams
  std::string last_error() const;

  // The entries that name a device refuse one that is not there, and leave their outputs alone.
  void refuses_device(int32_t bad) const;

  // Uses a device for the first time and checks that it works: alloc, copies there and back, free.
  void smoke(int32_t device, const char* rule) const;

 private:
  void take(const Stack& stack);
  void ask_for_devices();
  int32_t count() const;
  bp_device_properties asked_properties(int32_t device) const;

  const Options& options_;
  bp_driver table_{};
  bool own_streams_ = false;
  std::string armed_by_;  // the file that arms the fault shim; empty without one
  bool opened_ = false;
  int32_t devices_ = -1;
  std::vector<bp_device_properties> properties_;
};

// Sentences of driver.h that several families quote.
namespace rules {
inline constexpr char errors[] =
    "every entry returns a bp_status; on anything but BP_OK and BP_PENDING the outputs are untouched and last_error() "
    "on the same thread returns the reason";
inline constexpr char no_such_device[] = "BP_INVALID_DEVICE: no device of that index";
inline constexpr char threads[] = "any entry from any thread, concurrently, unless the driver sets BP_DRIVER_SERIALIZE";
inline constexpr char copy[] = "Copies bytes; returns when the copy is complete";
inline constexpr char copy_async[] = "As copy, but returns at once; host memory must be pinned and must live until the copy is complete";
inline constexpr char stream_order[] = "Creates a stream: its work runs in the order of submission";
inline constexpr char wait[] = "Waits until the work that is queued at the time of the call is complete";
inline constexpr char query[] = "BP_OK: all work complete; BP_PENDING; or a sticky error. Never blocks";
inline constexpr char flags[] = "a driver refuses flags that it does not know with INVALID_ARGUMENT";
inline constexpr char ok[] = "every entry returns a bp_status: BP_OK for what the driver must be able to do";
}  // namespace rules

}  // namespace backplane::check
