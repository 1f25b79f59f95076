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
// The other headers, each usable alone: error.hpp (Error), options.hpp (Options), wait.hpp (poll, Deadline),
// addresses.hpp (Reservation, AddressTable), callback.hpp (timed waits by callback, queue_callback), event_profile.hpp
// (bp.profile of timing events), live.hpp (LiveHandles), table.hpp and groups.hpp (reading another driver's table), handles.hpp (RAII
// handles).
#ifndef BACKPLANE_DRIVER_CXX_DRIVER_HPP
#define BACKPLANE_DRIVER_CXX_DRIVER_HPP

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "../../driver.h"
#include "addresses.hpp"
#include "callback.hpp"
#include "captures.hpp"
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

  /// For shims: the driver below, else nullptr.
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
    const char* text = LastError::get(instance_);
    if (!buf || size == 0) return BP_OK;
    const size_t length = std::min<uint64_t>(std::strlen(text), size - 1);
    std::memcpy(buf, text, length);
    buf[length] = '\0';
    return BP_OK;
  }

  int32_t query_ext(const char* id, uint32_t version, const bp_ext** out) {
    if (!id || !out) return fail(BP_INVALID_ARGUMENT, "query_ext: id and out must not be NULL");
    for (const bp_ext* group : groups_) {
      if (group->version == version && std::strcmp(group->id, id) == 0) {
        *out = group;
        return BP_OK;
      }
    }
    return fail(BP_UNSUPPORTED, "query_ext: no group " + std::string(id) + " version " + std::to_string(version));
  }

 protected:
  /// flags: BP_DRIVER_*.
  explicit Driver(const Host& host, uint32_t flags = 0) : host_(host), instance_(LastError::new_instance()), table_{} {
    table_.struct_size = sizeof(bp_driver);
    table_.abi_major = BP_ABI_MAJOR;
    table_.abi_minor = BP_ABI_MINOR;
    table_.flags = flags;
    table_.self = this;
    fill_table();
  }
  ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const Host& host() const { return host_; }

  /// Sets the calling thread's error text and gives the status back: `return fail(BP_TIMEOUT, "...")`. Cheaper than throwing.
  int32_t fail(int32_t status, const char* text) const noexcept {
    LastError::set(instance_, text);
    return status;
  }
  int32_t fail(int32_t status, const std::string& text) const noexcept { return fail(status, text.c_str()); }

  /// Offers an optional group. It must live as long as the driver, usually as a member:
  ///
  ///     bp_peer peer_ = {group_head<bp_peer>(), slot<&Acme::can_access>(), ...};
  ///     Acme(...) { offer(peer_.head); }
  void offer(const bp_ext& group) { groups_.push_back(&group); }

  template <class Group>
  bp_ext group_head(uint32_t flags = 0) {
    return group_head<Group>(GroupTraits<Group>::id, GroupTraits<Group>::version, flags);
  }
  /// The same for a group of the vendor's own.
  template <class Group>
  bp_ext group_head(const char* id, uint32_t version, uint32_t flags = 0) {
    return bp_ext{sizeof(Group), id, version, flags, this};
  }

  /// The C function that calls a method: for the slots of groups. Its parameters are `void* self` and the method's.
  template <auto Method>
  static constexpr auto slot() {
    return entry<Method>(Method);
  }

  /// For flags that are known at run time only.
  void set_flags(uint32_t flags) { table_.flags = flags; }

  /// Takes a slot back that the class implements, when it turns out at run time that it cannot serve it: `drop(&bp_driver::fill)`.
  template <class Function>
  void drop(Function* bp_driver::* member) {
    table_.*member = nullptr;
  }

 private:
  template <auto Method, class Result, class... Args>
  static int32_t call(void* self, Args... args) noexcept {
    return static_cast<Driver*>(self)->guarded([&](Self& driver) -> int32_t {
      if constexpr (std::is_void_v<Result>) {
        (driver.*Method)(args...);
        return BP_OK;
      } else {
        return (driver.*Method)(args...);
      }
    });
  }
  template <auto Method, class Owner, class Result, class... Args>
  static constexpr auto entry(Result (Owner::*)(Args...)) {
    return &Driver::call<Method, Result, Args...>;
  }
  template <auto Method, class Owner, class Result, class... Args>
  static constexpr auto entry(Result (Owner::*)(Args...) const) {
    return &Driver::call<Method, Result, Args...>;
  }

  /// Runs one entry: nothing thrown leaves it, and every failure has a text.
  template <class Body>
  int32_t guarded(Body&& body) noexcept {
    try {
      const int32_t status = body(static_cast<Self&>(*this));
      return status == BP_OK || status == BP_PENDING ? status : failed(status);
    } catch (...) {
      return thrown();
    }
  }

  // The two ways to fail, apart from guarded(), of which there is one for each entry.
  int32_t failed(int32_t status) noexcept {
    if (!LastError::take_fresh(instance_)) LastError::set(instance_, status_name(status));
    LastError::take_fresh(instance_);
    return status;
  }
  int32_t thrown() noexcept {
    try {
      throw;
    } catch (const Error& error) {
      return report(error.status(), error.what());
    } catch (const std::bad_alloc&) {
      return report(BP_OUT_OF_MEMORY, "the driver ran out of host memory");
    } catch (const std::exception& error) {
      return report(BP_INTERNAL, error.what());
    } catch (...) {
      return report(BP_INTERNAL, "the driver threw something that is no std::exception");
    }
  }
  int32_t report(int32_t status, const char* text) noexcept {
    LastError::set(instance_, text);
    LastError::take_fresh(instance_);
    return status;
  }

  // The two entries that fill a struct of the caller's: the method gets a full, zeroed one, and what the caller has room for is copied.
  template <class Struct, class Call>
  int32_t filled(Struct* out, Call&& call) noexcept {
    return guarded([&](Self& driver) -> int32_t {
      if (!out || out->struct_size < sizeof(uint64_t)) throw Error(BP_INVALID_ARGUMENT, "the struct's struct_size is not set");
      Struct full{};
      const uint64_t room = out->struct_size;
      full.struct_size = room;
      call(driver, &full);
      full.struct_size = room;
      std::memcpy(static_cast<void*>(out), &full, std::min<uint64_t>(room, sizeof full));
      return BP_OK;
    });
  }
  static int32_t properties_entry(void* self, int32_t device, bp_device_properties* out) noexcept {
    return static_cast<Driver*>(self)->filled(out,
                                              [&](Self& driver, bp_device_properties* full) { driver.device_properties(device, full); });
  }
  static int32_t pointer_info_entry(void* self, uint64_t address, bp_pointer_info* out) noexcept {
    return static_cast<Driver*>(self)->filled(out, [&](Self& driver, bp_pointer_info* full) { driver.pointer_info(address, full); });
  }

  static int32_t close_entry(void* self) noexcept {
    try {
      delete static_cast<Self*>(static_cast<Driver*>(self));
    } catch (...) {  // a destructor that is noexcept(false)
      return BP_INTERNAL;
    }
    return BP_OK;
  }

  void fill_table() {
// Whether Self has such a method.
#define BP_HAS(name)                                                                                              \
  const auto find = [](auto* self) -> decltype(&std::remove_pointer_t<decltype(self)>::name) { return nullptr; }; \
  std::is_invocable_v<decltype(find), Self*>
#define BP_FILL(group, name)                                                                         \
  if constexpr (BP_HAS(name)) {                                                                      \
    static_assert(std::is_convertible_v<decltype(slot<&Self::name>()), decltype(bp_driver::name)>,   \
                  "the parameters of " #name " must be those of bp_driver." #name ", without self"); \
    table_.name = slot<&Self::name>();                                                               \
  }
    BP_DRIVER_SLOTS(BP_FILL)
    table_.device_properties = &properties_entry;
    table_.close = &close_entry;
    if constexpr (BP_HAS(pointer_info)) table_.pointer_info = &pointer_info_entry;
#undef BP_FILL
#undef BP_HAS
  }

  Host host_;
  uint64_t instance_;
  bp_driver table_;
  std::vector<const bp_ext*> groups_;
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

#endif
