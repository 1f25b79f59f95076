// backplane/driver/cxx/error.hpp: errors inside a C++ driver: one exception class, and the per-thread text behind last_error.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../../driver.h"

namespace backplane::driver {

/// printf into a string.
[[gnu::format(printf, 1, 2)]] inline std::string format(const char* pattern, ...) {
  char text[1024];
  va_list values;
  va_start(values, pattern);
  std::vsnprintf(text, sizeof text, pattern, values);
  va_end(values);
  return text;
}

/// An integer as %lld and %llu take it.
template <class Integer>
constexpr auto wide(Integer value) {
  return static_cast<std::conditional_t<std::is_signed_v<Integer>, long long, unsigned long long>>(value);
}

/// A zeroed struct of driver.h with its struct_size.
template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

/// What a driver throws: the status that the caller gets, and the text that last_error then gives.
class Error : public std::runtime_error {
 public:
  Error(bp_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  bp_status status() const { return status_; }

 private:
  bp_status status_;
};

// What most entries check.

inline void need(bool given, const char* what) {
  if (!given) throw Error(BP_INVALID_ARGUMENT, std::string(what) + " must not be NULL");
}
inline void need_no_flags(const char* call, uint32_t flags) {
  if (flags != 0) throw Error(BP_INVALID_ARGUMENT, format("%s: flags must be 0, not 0x%x", call, flags));
}

/// The last error texts of the calling thread, one for each driver instance (the latest few). Plain memory without a destructor, so that it
/// may still be used while a process exits. Hidden, so that two drivers in one process do not share it.
class [[gnu::visibility("hidden")]] LastError {
 public:
  /// A number that no other instance of this driver has.
  static uint64_t new_instance() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  static void set(uint64_t instance, const char* text) noexcept {
    Slot& slot = slot_of(instance);
    const size_t length = std::min(std::strlen(text), sizeof slot.text - 1);
    std::memcpy(slot.text, text, length);
    slot.text[length] = '\0';
    slot.fresh = true;
  }

  static const char* get(uint64_t instance) noexcept {
    for (const Slot& slot : slots_) {
      if (slot.instance == instance) return slot.text;
    }
    return "";
  }

  /// True if a text was set since the last call of this function, on this thread.
  static bool take_fresh(uint64_t instance) noexcept {
    Slot& slot = slot_of(instance);
    const bool fresh = slot.fresh;
    slot.fresh = false;
    return fresh;
  }

 private:
  struct Slot {
    uint64_t instance;
    bool fresh;
    char text[503];
  };

  static Slot& slot_of(uint64_t instance) noexcept {
    for (Slot& slot : slots_) {
      if (slot.instance == instance) return slot;
    }
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    slot.instance = instance;
    slot.fresh = false;
    slot.text[0] = '\0';
    return slot;
  }

  static constexpr size_t kSlots = 4;
  static inline thread_local Slot slots_[kSlots] = {};
  static inline thread_local size_t next_ = 0;
};

}  // namespace backplane::driver
