// drivers/shims/inner.h: the inner driver of a shim: calls of it, and its groups, whose entries pass through.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/groups.hpp>
#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver {

/// The table of an inner driver that can be used. Throws what is wrong with another; shim: who says so.
inline bp_driver checked_inner(const char* shim, const bp_driver* table) {
  if (!table) throw Error(BP_INVALID_ARGUMENT, std::string(shim) + " is a shim: it needs an inner driver");
  if (auto mismatch = abi_mismatch(table->abi_major, table->abi_minor)) throw Error(BP_UNSUPPORTED, "the inner driver has " + *mismatch);
  const bp_driver copy = normalised(*table);
  if (auto missing = incomplete_group(copy)) throw Error(BP_INVALID_ARGUMENT, "the inner driver cannot be used: " + *missing);
  return copy;
}

/// Calls it one at a time if it asks for that, and throws its errors with its own text.
class InnerDriver {
 public:
  InnerDriver(const char* shim, const bp_driver* table)
      : table_(checked_inner(shim, table)), serialize_(table_.flags & BP_DRIVER_SERIALIZE) {}

  const bp_driver* operator->() const { return &table_; }
  const bp_driver& operator*() const { return table_; }
  bool serialize() const { return serialize_; }
  void close() { table_.close(table_.self); }

  /// Calls a slot. Returns BP_OK or BP_PENDING; throws Error for the rest.
  template <class... Params, class... Args>
  int32_t operator()(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) {
    return run([&] { return (table_.*slot)(table_.self, args...); });
  }
  /// The status alone.
  template <class... Params, class... Args>
  int32_t status(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) {
    const Lock lock(*this);
    return (table_.*slot)(table_.self, static_cast<Params>(args)...);
  }

  /// Calls a slot that waits; its last parameter is the timeout. Throws Error(BP_TIMEOUT), too. The lock is not held while it waits.
  template <class... Params, class... Args>
  void wait(int32_t (*bp_driver::*slot)(void*, Params...), uint64_t timeout_ns, Args... args) {
    const auto call = [&](uint64_t timeout) { return run([&] { return (table_.*slot)(table_.self, args..., timeout); }, BP_TIMEOUT); };
    const int32_t status = serialize_ ? poll(timeout_ns, [&] { return call(0); }) : call(timeout_ns);
    if (status != BP_OK) throw Error(BP_TIMEOUT, "the work is not complete after " + std::to_string(timeout_ns) + " ns");
  }

  /// Queues call(status) as a callback of a stream.
  template <class Call>
  void callback(int32_t device, bp_stream* stream, Call call) {
    auto kept = std::make_unique<Call>(std::move(call));
    const auto run = [](void* given, int32_t status) {
      const std::unique_ptr<Call> one(static_cast<Call*>(given));
      (*one)(status);
    };
    (*this)(&bp_driver::stream_callback, device, stream, run, kept.get());
    static_cast<void>(kept.release());  // the callback's
  }

  template <class Group>
  std::optional<Group> find() {
    const Lock lock(*this);
    return find_group<Group>(table_);
  }
  /// Calls a slot of one of its groups, under the same rules. Of bp.compiler any number of threads may call at once.
  template <class Group, class... Params, class... Args>
  int32_t group(const Group& group, int32_t (*Group::*slot)(void*, Params...), Args... args) {
    const auto call = [&] { return (group.*slot)(group.head.self, args...); };
    if constexpr (std::is_same_v<Group, bp_compiler>) {
      return checked_call(call(), BP_OK);
    } else {
      return run(call);
    }
  }

 private:
  struct Lock {
    explicit Lock(InnerDriver& of) : lock(of.mutex_, std::defer_lock) {
      if (of.serialize_) lock.lock();
    }
    std::unique_lock<std::recursive_mutex> lock;
  };

  template <class Call>
  int32_t run(Call&& call, int32_t also = BP_OK) {
    const Lock lock(*this);
    return checked_call(call(), also);  // under the lock: the next call may overwrite the text
  }
  int32_t checked_call(int32_t returned, int32_t also) const {
    if (returned == BP_OK || returned == BP_PENDING || returned == also) [[likely]]
      return returned;
    throw Error(checked_status(returned), last_error_text(table_));
  }

  const bp_driver table_;
  const bool serialize_;
  std::recursive_mutex mutex_;  // host_exec.map is called from within enqueue
};

/// A group of the inner driver as a shim offers it. Its entries pass through, save those for which a class that derives from it has a
/// method.
template <class Group>
class PassingGroup {
 public:
  explicit PassingGroup(InnerDriver& inner) : inner_(inner) {}

  /// Asks the inner driver for it; false if it has none.
  bool find() { return (group_ = inner_.find<Group>()).has_value(); }
  bool found() const { return group_.has_value(); }
  uint32_t flags() const { return group_ ? group_->head.flags : 0; }
  uint32_t version() const { return group_ ? group_->head.version : GroupTraits<Group>::version; }

  template <class Slot, class... Args>
  int32_t pass(Args... args) {
    return inner_.group(*group_, Slot::value, args...);
  }
  template <class... Params, class... Args>
  int32_t operator()(int32_t (*Group::*slot)(void*, Params...), Args... args) {
    return inner_.group(*group_, slot, args...);
  }
  /// The status alone.
  template <class... Params, class... Args>
  int32_t status(int32_t (*Group::*slot)(void*, Params...), Args... args) const {
    return ((*group_).*slot)(group_->head.self, args...);
  }

 private:
  InnerDriver& inner_;
  std::optional<Group> group_;
};

/// The same with the state of a shim, for entries that it intercepts.
template <class Group, class State>
struct InterceptedGroup : PassingGroup<Group> {
  explicit InterceptedGroup(State& of) : PassingGroup<Group>(of.inner), state(of) {}
  State& state;
};

}  // namespace backplane::driver
