// backplane/driver/cxx/driver.hpp: the driver ABI for C++ authors (C++17 or later): a base class that fills the table from the methods you
// write.
//
// A driver is a class with methods named like the slots of bp_driver, with the slots' parameters less `self`. Whichever slots you implement
// are filled, the rest stay NULL and the emulate shim supplies them. A method returns void (then the status is BP_OK) or an int32_t
// status, and may throw: Error gives its own status, std::bad_alloc gives OUT_OF_MEMORY, anything else INTERNAL. Texts reach last_error by
// themselves.
//
//     class Acme : public backplane::driver::Driver<Acme> {
//      public:
//       explicit Acme(const backplane::driver::Host& host) : Driver(host) {
//         Options options(host.config());
//         count_ = static_cast<int32_t>(options.integer("devices", acme_count(), 0, 64));
//         options.finish();
//       }
//       void device_count(int32_t* out) { *out = count_; }
//       void device_properties(int32_t device, bp_device_properties* out);       // *out is zeroed and of full size
//       void open() { acme_start(); }
//       void alloc(int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out);
//       void free(int32_t device, uint64_t address);
//       void copy(int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device, uint64_t bytes,
//                 uint32_t flags);
//       int32_t synchronize(int32_t device, uint64_t timeout_ns);
//      private:
//       int32_t count_;
//     };
//     BP_DEFINE_DRIVER(Acme)
//
// close deletes the object, so the destructor is where everything is released. last_error and query_ext come from the base class.
//
// Each of the other headers in this folder is usable alone; docs/handles.md says which one is for what.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "../../driver.h"
#include "addresses.hpp"
#include "callback.hpp"
#include "captures.hpp"
#include "entries.hpp"
#include "error.hpp"
#include "event_profile.hpp"
#include "groups.hpp"
#include "live.hpp"
#include "options.hpp"
#include "table.hpp"
#include "wait.hpp"

namespace backplane::driver {

/// What the core hands to a driver. Copyable; lives as long as the driver.
class Host {
 public:
  explicit Host(const bp_host& host) : host_{} {
    std::memcpy(static_cast<void*>(&host_), &host, std::min<uint64_t>(host.struct_size, sizeof host_));
  }

  /// The option string, "" if there is none.
  const char* config() const { return host_.config ? host_.config : ""; }

  /// For shims: the inner driver, else nullptr.
  const bp_driver* inner() const { return host_.inner; }

  /// From any thread. level: BP_LOG_*.
  void log(int32_t level, const std::string& text) const noexcept {
    if (host_.log) host_.log(host_.ctx, level, text.c_str());
  }

 private:
  bp_host host_;
};

/// The base class. Self is the driver's own class.
template <class Self>
class Driver {
 public:
  const bp_driver* table() const { return &table_; }

  // Slots that the base class provides.

  int32_t last_error(char* buf, uint64_t size) {
    const char* text = LastError::get(target_.instance);
    if (!buf || size == 0) return BP_OK;
    const size_t length = std::min<uint64_t>(std::strlen(text), size - 1);
    std::memcpy(buf, text, length);
    buf[length] = '\0';
    return BP_OK;
  }

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) return fail(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    const bp_ext* const found = offered(id, version);
    if (!found) return fail(BP_UNSUPPORTED, "query_ext: no group " + std::string(id) + " version " + std::to_string(version));
    *out = found;
    return BP_OK;
  }

 protected:
  /// flags: BP_DRIVER_*.
  explicit Driver(const Host& host, uint32_t flags = 0)
      : host_(host), target_{static_cast<Self*>(this), LastError::new_instance()}, table_{} {
    table_.struct_size = sizeof(bp_driver);
    table_.abi_major = BP_ABI_MAJOR;
    table_.abi_minor = BP_ABI_MINOR;
    table_.flags = flags;
    table_.self = &target_;
    fill_table<Self>(table_);
    table_.close = &close_entry;
  }
  ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const Host& host() const { return host_; }

  /// Sets the calling thread's error text and gives the status back: `return fail(BP_TIMEOUT, "...")`. Cheaper than throwing.
  int32_t fail(int32_t status, const char* text) const noexcept {
    LastError::set(target_.instance, text);
    return status;
  }
  int32_t fail(int32_t status, const std::string& text) const noexcept { return fail(status, text.c_str()); }

  /// Offers an optional group. `entries` has a method for each entry of the group, as the driver's class has for its own, and lives as long
  /// as the driver, mostly as a member. flags: BP_<GROUP>_*. version: the newest; older ones have the same entries. Gives its table.
  ///
  ///     Acme(...) { offer<bp_peer>(peers_); }      // Peers peers_: with the methods can_access and enable
  template <class Group, class Entries>
  Group& offer(Entries& entries, uint32_t flags = 0, uint32_t version = GroupTraits<Group>::version) {
    struct Offered {
      EntryTarget<Entries> target;
      Group table;
    };
    if (version > 1) offer<Group>(entries, flags, version - 1);
    auto made = std::make_shared<Offered>(Offered{{&entries, target_.instance}, {}});
    made->table.head = {sizeof(Group), GroupTraits<Group>::id, version, flags, &made->target};
    fill_table<Entries>(made->table);
    groups_.emplace_back(made, &made->table.head);
    return made->table;
  }

  /// What was offered by that name; NULL if it was not.
  const bp_ext* offered(const char* id, uint32_t version) const {
    for (const auto& group : groups_) {
      if (group->version == version && std::strcmp(group->id, id) == 0) return group.get();
    }
    return nullptr;
  }

  /// For shims: the slots without a method for which has(slot) is true go to Self's pass (entries.hpp).
  template <class Has>
  void pass_through(Has&& has) {
    GroupTraits<bp_driver>::each_slot([&](auto slot) {
      using Slot = decltype(slot);
      if constexpr (!has_method<Self, Slot> && !std::is_same_v<Slot, GroupTraits<bp_driver>::close_slot>) {
        if (has(slot)) table_.*Slot::value = &EntryOf<Self, Slot>::call;
      }
    });
  }

  /// For flags that are known at run time only.
  void set_flags(uint32_t flags) { table_.flags = flags; }

  /// Takes a slot back that the class implements, when it turns out at run time that it cannot serve it: `drop(&bp_driver::fill)`.
  template <class Function>
  void drop(Function* bp_driver::* member) {
    table_.*member = nullptr;
  }

 private:
  static int32_t close_entry(void* self) noexcept {
    try {
      delete static_cast<EntryTarget<Self>*>(self)->object;
    } catch (...) {  // a destructor that is noexcept(false)
      return BP_INTERNAL;
    }
    return BP_OK;
  }

  Host host_;
  EntryTarget<Self> target_;
  bp_driver table_;
  std::vector<std::shared_ptr<const bp_ext>> groups_;
};

/// The body of bp_driver_get: refuses another ABI, builds the driver, and hands a refusal of its constructor to the core.
template <class Self>
int32_t create(const bp_host* host, const bp_driver** out) noexcept {
  if (!host || !out) return BP_INVALID_ARGUMENT;
  const auto refuse = [&](int32_t status, const char* why) {
    if (host->set_error) host->set_error(host->ctx, why);
    return status == BP_INVALID_ARGUMENT ? BP_INVALID_ARGUMENT : BP_UNSUPPORTED;
  };
  try {
    if (auto mismatch = abi_mismatch(host->abi_major, host->abi_minor)) throw Error(BP_UNSUPPORTED, "the core speaks " + *mismatch);
    *out = (new Self(Host(*host)))->table();
    return BP_OK;
  } catch (const Error& error) {
    return refuse(error.status(), error.what());
  } catch (const std::exception& error) {
    return refuse(BP_UNSUPPORTED, error.what());
  } catch (...) {
    return refuse(BP_UNSUPPORTED, "the driver's constructor threw something that is no std::exception");
  }
}

}  // namespace backplane::driver

/// Exports the one symbol of a driver; Self is its class. At file scope, outside any namespace.
#define BP_DEFINE_DRIVER(Self)                                                             \
  extern "C" BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) { \
    return ::backplane::driver::create<Self>(host, out);                                   \
  }
