// drivers/shims/emulate/inner.h: calls of the driver below: one at a time if it asks for that, its errors thrown with its own text.
#pragma once

#include <mutex>
#include <optional>

#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/groups.hpp>
#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver::emulate {

class Inner {
 public:
  explicit Inner(const bp_driver* table) : table_(checked(table)), serialize_(table_.flags & BP_DRIVER_SERIALIZE) {}

  const bp_driver& table() const { return table_; }
  bool serialize() const { return serialize_; }

  /// Calls a slot. Returns BP_OK, BP_PENDING or BP_TIMEOUT; throws Error for the rest.
  template <class... Params, class... Args>
  int32_t operator()(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) {
    return run([&] { return (table_.*slot)(table_.self, args...); });
  }

  /// Calls a slot that waits; its last parameter is the timeout. Throws Error(BP_TIMEOUT), too. The lock is not held while it waits.
  template <class... Params, class... Args>
  void wait(int32_t (*bp_driver::*slot)(void*, Params...), uint64_t timeout_ns, Args... args) {
    const auto call = [&](uint64_t timeout) { return (*this)(slot, args..., timeout); };
    const int32_t status = serialize_ ? poll(timeout_ns, [&] { return call(0); }) : call(timeout_ns);
    if (status != BP_OK) throw Error(BP_TIMEOUT, "the work is not complete after " + std::to_string(timeout_ns) + " ns");
  }

  /// Asks for one of its groups.
  template <class Group>
  std::optional<Group> find() {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (serialize_) lock.lock();
    return find_group<Group>(table_);
  }

  /// Calls a slot of one of its groups, under the same rules.
  template <class Slot, class... Args>
  int32_t group(const bp_ext& head, Slot slot, Args... args) {
    return run([&] { return slot(head.self, args...); });
  }

  /// The same without the lock, for a group that any number of threads may call over any driver.
  template <class Slot, class... Args>
  int32_t group_unlocked(const bp_ext& head, Slot slot, Args... args) {
    return checked_call(slot(head.self, args...));
  }

 private:
  static bp_driver checked(const bp_driver* table) {
    if (!table) throw Error(BP_INVALID_ARGUMENT, "emulate is a shim: it needs a driver below it");
    if (auto mismatch = abi_mismatch(table->abi_major, table->abi_minor)) throw Error(BP_UNSUPPORTED, "the driver below has " + *mismatch);
    bp_driver copy = normalised(*table);
    if (auto missing = incomplete_group(copy)) throw Error(BP_INVALID_ARGUMENT, "the driver below cannot be used: " + *missing);
    return copy;
  }

  template <class Call>
  int32_t run(Call&& call) {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (serialize_) lock.lock();
    return checked_call(call());  // under the lock: the next call may overwrite the text
  }
  int32_t checked_call(int32_t returned) const {
    const bp_status status = checked_status(returned);
    if (status == BP_OK || status == BP_PENDING || status == BP_TIMEOUT) return status;
    throw Error(status, last_error_text(table_));
  }

  const bp_driver table_;
  const bool serialize_;
  std::recursive_mutex mutex_;  // host_exec.map is called from within enqueue
};

/// The same without exceptions, for EventProfile.
struct InnerCalls {
  Inner* inner;

  template <class... Params, class... Args>
  int32_t operator()(int32_t (*bp_driver::*slot)(void*, Params...), Args... args) const {
    return status_of([&] { return (*inner)(slot, static_cast<Params>(args)...); });
  }
  std::optional<bp_graph> graphs() const { return inner->serialize() ? std::nullopt : inner->find<bp_graph>(); }

 private:
  template <class Call>
  static int32_t status_of(Call&& call) {
    try {
      return call();
    } catch (const Error& error) {
      return error.status();
    }
  }
};

}  // namespace backplane::driver::emulate
