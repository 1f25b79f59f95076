// drivers/sim/sanitized_switch.h: reports to a sanitizer that a thread continues on another stack; nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace backplane::driver::sim {

/// One for each stack: the thread's own, and that of each fiber.
class SanitizedSwitch {
 public:
#if defined(__SANITIZE_ADDRESS__)
  SanitizedSwitch() = default;
  SanitizedSwitch(const SanitizedSwitch&) = delete;
  SanitizedSwitch& operator=(const SanitizedSwitch&) = delete;
  // A fiber that was left in the midst has marked the places around its variables: the next owner of the memory has others.
  ~SanitizedSwitch() {
    if (own_) __asan_unpoison_memory_region(bottom_, bytes_);
  }
  /// A fiber begins on that stack.
  void renew(void* bottom, size_t bytes) {
    __asan_unpoison_memory_region(bottom, bytes);
    own_ = true;
    frames_ = nullptr;
    bottom_ = bottom;
    bytes_ = bytes;
  }
  /// Before the switch from this one, and after the switch to this one.
  void leave_for(SanitizedSwitch& next) { __sanitizer_start_switch_fiber(&frames_, next.bottom_, next.bytes_); }
  void arrived(SanitizedSwitch& before) { __sanitizer_finish_switch_fiber(frames_, &before.bottom_, &before.bytes_); }

 private:
  bool own_ = false;
  void* frames_ = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
#elif defined(__SANITIZE_THREAD__)
  SanitizedSwitch() = default;
  SanitizedSwitch(const SanitizedSwitch&) = delete;
  SanitizedSwitch& operator=(const SanitizedSwitch&) = delete;
  ~SanitizedSwitch() {
    if (own_) __tsan_destroy_fiber(own_);
  }
  void renew(void*, size_t) {
    if (own_) __tsan_destroy_fiber(own_);
    own_ = __tsan_create_fiber(0);
  }
  // Inlined, since a call that begins on one stack and ends on another has no meaning.
  [[gnu::always_inline]] void leave_for(SanitizedSwitch& next) {
    if (!own_) thread_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(next.own_ ? next.own_ : next.thread_, 0);
  }
  void arrived(SanitizedSwitch&) {}

 private:
  void* own_ = nullptr;
  void* thread_ = nullptr;
#else
  void renew(void*, size_t) {}
  void leave_for(SanitizedSwitch&) {}
  void arrived(SanitizedSwitch&) {}
#endif
};

}  // namespace backplane::driver::sim
