// drivers/shims/trace/trace.cpp: the shim that writes a line for each call of the inner driver, and changes nothing.
//
//   [trace] 1520.3 +4.1 7341 alloc device=0 bytes=4096 flags=0 -> OK out=0x7f0000001000
//
// The numbers: when the call began, in microseconds since the driver was made; how long it took; the thread. Then the entry, what went in,
// the status, and what came out, or the text of the error.
//
// Options:
//   file=<path>       where lines are added; default stderr
//   filter=<names>    the entries that are written, separated by + or |; * is any text: filter=alloc+free+bp.module.*
//   errors=1          only calls that failed
//   begin=1           a line also when a call begins: the last one is the call that never came back
//   ring=<lines>      keep the latest lines, and write them at close, and when an entry returns FAULT, DEVICE_LOST or INTERNAL
//
// It goes over any driver, also under emulate. The SDK's groups are traced, a vendor's own pass through. The inner driver is called outside
// of every lock. A forked child writes nothing.
#include <fnmatch.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <backplane/driver/cxx/driver.hpp>

#include "../inner.h"
#include "arguments.h"
#include "line.h"
#include "output.h"

namespace backplane::driver::trace {

struct Settings {
  std::string file, filter;
  size_t ring;
  bool errors, begin;

  explicit Settings(Options options)
      : file(options.text("file", "", "<path>")),
        filter(options.text("filter", "*", "<name>+<name>")),
        ring(static_cast<size_t>(options.integer("ring", 0, 0, 100'000))),
        errors(options.integer("errors", 0, 0, 1) != 0),
        begin(options.integer("begin", 0, 0, 1) != 0) {
    options.finish();
  }
};

/// The entries that are to be written.
class Filter {
 public:
  explicit Filter(const std::string& text) : text_(text) {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find_first_of("+|", at), text.size());
      patterns_.push_back({text.substr(at, end - at), false});
      at = end + 1;
    }
  }
  bool takes(const std::string& entry) {
    bool any = false;
    for (Pattern& pattern : patterns_) {
      if (fnmatch(pattern.text.c_str(), entry.c_str(), 0) == 0) any = pattern.used = true;
    }
    return any;
  }
  /// Throws for a name that no entry has; after all have been asked for.
  void finish() const {
    for (const Pattern& pattern : patterns_) {
      if (pattern.used) continue;
      throw Error(BP_INVALID_ARGUMENT, "options: trace.filter=" + text_ + ": no entry is called '" + pattern.text +
                                           "'; names are as alloc, stream_* or bp.module.launch, with + between them");
    }
  }

 private:
  struct Pattern {
    std::string text;
    bool used;
  };
  const std::string text_;
  std::vector<Pattern> patterns_;
};

class Trace;

/// An entry of a table.
struct Entry {
  std::string name;
  bool wanted;
};

// Where a table keeps its `self`.
inline void*& self_of(bp_driver& table) { return table.self; }
template <class Group>
void*& self_of(Group& group) {
  return group.head.self;
}

/// The C function for a slot.
template <auto Slot>
struct Call;

/// A table of the inner driver and the one offered in its place, whose `self` is this object.
template <class Table>
struct Traced {
  Trace& owner;
  std::vector<Entry> entries;
  Table inner{};
  Table offered{};
  std::once_flag made;

  Traced(Trace& trace, Filter& filter) : owner(trace) {
    std::string prefix;
    if constexpr (!std::is_same_v<Table, bp_driver>) prefix = std::string(GroupTraits<Table>::id) + ".";
    GroupTraits<Table>::each_slot([&](auto slot) {
      const std::string name = prefix + slot.name;
      entries.push_back({name, filter.takes(name)});
    });
  }

  template <class Function>
  const Entry& entry(Function* Table::* slot) const {
    const auto* const end = reinterpret_cast<Function* const*>(&inner + 1);  // slots are the last members of a table
    return entries[entries.size() - static_cast<size_t>(end - &(inner.*slot))];
  }

  /// Takes a table of the inner driver. Slots that are NULL there are not offered either.
  void take(const Table& table) {
    inner = offered = table;
    self_of(offered) = this;
    GroupTraits<Table>::each_slot([&](auto slot) {
      if (inner.*decltype(slot)::value) offered.*decltype(slot)::value = Call<decltype(slot)::value>::entry();
    });
  }
};

class Trace {
 public:
  explicit Trace(const Host& host) : Trace(host, checked_inner("trace", host.inner())) {}

  const bp_driver* table() const { return &driver_.offered; }

  /// False in a forked child.
  bool here() const { return getpid() == process_; }

  /// One call of an entry, and what is written of it.
  template <auto Slot, class Table, class... Args>
  static int32_t call(void* self, Args... args) noexcept {
    constexpr std::string_view names = kArguments<Slot>;
    static_assert(names.empty() || count_of(names) == sizeof...(Args), "an entry's names are not those of its parameters");
    auto& table = *static_cast<Traced<Table>*>(self);
    const auto inner = [&] { return (table.inner.*Slot)(self_of(table.inner), args...); };
    Trace& trace = table.owner;
    if (!trace.here()) return inner();

    const Entry& entry = table.entry(Slot);
    const auto begin = Clock::now();
    if (entry.wanted && trace.settings_.begin) {
      Line line(trace.kernels_);
      trace.start(line, begin);
      line << "... " << thread() << " " << entry.name;
      write_inputs(line, names, args...);
      trace.add(line);
    }
    const int32_t status = inner();
    const auto end = Clock::now();
    if (status == BP_OK) trace.learn(args...);
    const bool failed = status != BP_OK && status != BP_PENDING;
    if (entry.wanted && (failed || !trace.settings_.errors)) {
      Line line(trace.kernels_);
      trace.start(line, begin);
      line << "+";
      line.time(ns(end - begin)) << " " << thread() << " " << entry.name;
      write_inputs(line, names, args...);
      line << " -> ";
      trace.write_status(line, status);
      if (status == BP_OK) write_outputs(line, names, args...);
      trace.add(line);
    }
    if (is_sticky(status) || checked_status(status) == BP_INTERNAL) trace.output_.flush();
    return status;
  }

  static int32_t close(void* self) noexcept {
    const std::unique_ptr<Trace> trace(&static_cast<Traced<bp_driver>*>(self)->owner);
    const int32_t status = call<&bp_driver::close, bp_driver>(self);
    if (trace->here()) trace->output_.flush();
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class, class... Each>
  struct AllOf : Traced<Each>... {
    AllOf(Trace& trace, Filter& filter) : Traced<Each>(trace, filter)... {}
    /// Calls f for each until one is true.
    template <class F>
    void any(F&& f) {
      static_cast<void>((f(static_cast<Traced<Each>&>(*this)) || ...));
    }
  };
#define BP_TRACED(group, GROUP, about) , bp_##group
  using Groups = AllOf<void BP_DRIVER_GROUPS(BP_TRACED)>;
#undef BP_TRACED

  Trace(const Host& host, const bp_driver& inner)
      : settings_(Options(host.config())), filter_(settings_.filter), driver_(*this, filter_), groups_(*this, filter_) {
    filter_.finish();
    driver_.take(inner);
    driver_.offered.close = &close;
  }

  static int64_t ns(Clock::duration time) { return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(); }
  /// The thread's number in the system, as a debugger shows it.
  static int64_t thread() {
    static thread_local const int64_t number = syscall(SYS_gettid);
    return number;
  }

  void start(Line& line, Clock::time_point begin) const {
    line << "[trace] ";
    line.time(ns(begin - start_)) << " ";
  }
  void add(Line& line) {
    line.end();
    output_.add(line);
  }
  void write_status(Line& line, int32_t status) const {
    line << status_name(status);
    if (status < BP_OK || status > BP_INTERNAL) line << " (" << status << ")";
    if (status == BP_OK || status == BP_PENDING) return;
    char text[256] = "";
    driver_.inner.last_error(driver_.inner.self, text, sizeof text);
    line << " ";
    line.quoted(text, sizeof text);
  }

  // What the trace learns from a call that succeeded.

  template <class... Args>
  void learn(Args...) {}
  /// query_ext: a group of the SDK's is traced from here on.
  void learn(const char* id, uint32_t version, const bp_ext** out) {
    groups_.any([&](auto& group) { return replace(group, id, version, out); });
  }
  template <class Group>
  static bool replace(Traced<Group>& group, const char* id, uint32_t version, const bp_ext** out) {
    if (!*out || std::strcmp(id, GroupTraits<Group>::id) != 0 || version > GroupTraits<Group>::version) return false;
    std::call_once(group.made, [&] {
      group.take(normalised_group<Group>(**out));
      group.offered.head.struct_size = std::min<uint64_t>((*out)->struct_size, sizeof(Group));
    });
    if (group.offered.head.version != version) return false;  // asked for in two versions: the second is not traced
    *out = &group.offered.head;
    return true;
  }
  /// bp.module.function: launches are written with the kernel's name.
  void learn(int32_t, bp_module_code*, const char* name, const bp_signature* signature, bp_function** out, bp_function_properties*) {
    try {
      kernels_.learn(*out, name, signature->pointers);
    } catch (const std::bad_alloc&) {  // then with its handle
    }
  }

  const Settings settings_;
  const pid_t process_ = getpid();
  const Clock::time_point start_ = Clock::now();
  Output output_{settings_.file, settings_.ring};
  Kernels kernels_;
  Filter filter_;
  Traced<bp_driver> driver_;
  Groups groups_;
};

template <class Table, class... Args, int32_t (*Table::*Slot)(void*, Args...)>
struct Call<Slot> {
  static constexpr auto entry() { return &Trace::call<Slot, Table, Args...>; }
};

}  // namespace backplane::driver::trace

BP_DEFINE_DRIVER(backplane::driver::trace::Trace)
