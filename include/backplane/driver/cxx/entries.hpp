// backplane/driver/cxx/entries.hpp: from the C entries of a table to methods of an object: nothing thrown leaves them, and every failure
// has a text.
//
// Methods are as driver.hpp says. What fills a struct with a struct_size gets a full, zeroed one; what the caller has room for is copied.
//
// A class that has no method for some entries may have `template <class Slot, class... Args> pass(Args...)` for them: Slot::value is the
// entry. So shims hand calls on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

#include "error.hpp"
#include "groups.hpp"

namespace backplane::driver {

/// What `self` of a table points to: the object with the methods, and the instance whose last_error gives their texts.
template <class Object>
struct EntryTarget {
  Object* object;
  uint64_t instance;
};

/// Structs of the caller's that an entry fills and that are its last argument.
template <class Struct>
inline constexpr bool is_filled = std::is_same_v<Struct, bp_device_properties> || std::is_same_v<Struct, bp_pointer_info> ||
                                  std::is_same_v<Struct, bp_target_properties> || std::is_same_v<Struct, bp_collective_properties>;

/// Copies as much of `full` as the caller has room for.
template <class Struct>
void hand_out(Struct* out, Struct full, const char* what) {
  if (!out || out->struct_size < sizeof(uint64_t)) {
    throw Error(BP_INVALID_ARGUMENT, std::string(what) + ", with its struct_size, is needed");
  }
  full.struct_size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &full, std::min<uint64_t>(out->struct_size, sizeof full));
}

// The two ways to fail, apart from guarded(), of which there is one for each entry.
inline int32_t entry_failed(uint64_t instance, int32_t status) noexcept {
  if (!LastError::take_fresh(instance)) LastError::set(instance, status_name(status));
  LastError::take_fresh(instance);
  return status;
}
inline int32_t entry_threw(uint64_t instance) noexcept {
  const auto report = [&](int32_t status, const char* text) {
    LastError::set(instance, text);
    LastError::take_fresh(instance);
    return status;
  };
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

/// Runs one entry.
template <class Body>
int32_t guarded(uint64_t instance, Body&& body) noexcept {
  try {
    int32_t status = BP_OK;
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
    } else {
      status = body();
    }
    return status == BP_OK || status == BP_PENDING ? status : entry_failed(instance, status);
  } catch (...) {
    return entry_threw(instance);
  }
}

template <class Object, class Slot, class = void>
inline constexpr bool has_method = false;
template <class Object, class Slot>
inline constexpr bool has_method<Object, Slot, std::void_t<decltype(Slot::template method<Object>())>> = true;

/// The C function of a slot, whose parameters it takes apart: calls the method of the slot's name, or else pass<Slot>.
template <class Object, class Slot, class = std::remove_const_t<decltype(Slot::value)>>
struct EntryOf;
template <class Object, class Slot, class Table, class... Args>
struct EntryOf<Object, Slot, int32_t (*Table::*)(void*, Args...)> {
  static int32_t call(void* self, Args... args) noexcept {
    const EntryTarget<Object>& target = *static_cast<EntryTarget<Object>*>(self);
    return guarded(target.instance, [&] { return forward(*target.object, args...); });
  }

 private:
  template <class Result, class Owner, class... Given>
  static constexpr bool takes_args(Result (Owner::*)(Given...)) {
    return std::is_same_v<void(Args...), void(Given...)>;
  }
  template <class Result, class Owner, class... Given>
  static constexpr bool takes_args(Result (Owner::*)(Given...) const) {
    return std::is_same_v<void(Args...), void(Given...)>;
  }
  static auto method(Object& object, Args... args) {
    if constexpr (has_method<Object, Slot>) {
      constexpr auto entry = Slot::template method<Object>();
      static_assert(takes_args(entry), "the parameters of a method must be those of the entry of its name, without self");
      return (object.*entry)(args...);
    } else {
      return object.template pass<Slot>(args...);
    }
  }
  template <class... Given>
  static auto forward(Object& object, Given... given) {
    return method(object, given...);
  }
  template <class First, class Struct>
  static auto forward(Object& object, First first, Struct* out) -> std::enable_if_t<is_filled<Struct>, int32_t> {
    Struct full{};
    full.struct_size = sizeof full;
    if (!out || out->struct_size < sizeof(uint64_t)) throw Error(BP_INVALID_ARGUMENT, "the struct's struct_size is not set");
    if constexpr (std::is_void_v<decltype(method(object, first, &full))>) {
      method(object, first, &full);
    } else if (const int32_t status = method(object, first, &full)) {
      return status;
    }
    hand_out(out, full, "the struct");
    return BP_OK;
  }
};

/// Fills the slots for which Object has a method, or pass; all of a group.
template <class Object, class Table>
void fill_table(Table& table) {
  GroupTraits<Table>::each_slot([&](auto slot) {
    using Slot = decltype(slot);
    if constexpr (!std::is_same_v<Table, bp_driver> || has_method<Object, Slot>) table.*Slot::value = &EntryOf<Object, Slot>::call;
  });
}

}  // namespace backplane::driver
