// check_driver/busy_stream.h: work that keeps a stream busy, so that a check can look at what is pending.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "context.h"

namespace backplane::check {

// Queues work on a stream that lasts until release(). With bp.host_exec it is a function that waits for the release (for 4 s at most, so
// that an entry that wrongly waits for it comes back); else it is a series of copies that release() cannot shorten, as many as this device
// needs for some 80 ms, which is measured once per process. Throws NotRun, "could not be held: ...", where no work stays pending.
//
// Copies may end before the check has looked. It then throws NotRun as well, and is run once more with a hold six times as long.
class BusyStream {
 public:
  BusyStream(Context& context, int32_t device, bp_stream* stream);
  ~BusyStream();
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;

  void release();
  void release_later();  // from another thread, after 15 ms: for a call that is to block until then

  // True if the work certainly still runs: what was queued behind it cannot be complete.
  bool held() const;

  bool by_gate() const { return gate_ != nullptr; }

  // Throws Failure if the work has ended although it was not released: the last call has waited for it. NotRun for copies that have ended
  // and may have done so by themselves.
  void not_waited_for(const char* rule) const;

  // Throws NotRun if the work has ended by itself. For a look at pending work that has given another answer.
  void still_held() const;

  struct Gate;

 private:
  void queue_copies();
  int32_t ask() const;
  [[noreturn]] void ended() const;

  Context& context_;
  int32_t device_;
  bp_stream* stream_;
  std::shared_ptr<Gate> gate_;                                 // NULL: copies
  bp_event* marker_ = nullptr;                                 // behind the copies
  mutable std::chrono::steady_clock::time_point last_seen_{};  // when the copies were pending
  std::thread timer_;
};

// 0, and 1 when the check is run again with longer holds.
void set_hold_attempt(int attempt);

// Calls check(look()) while the hold lasts; for 20 ms, so that work which should wait has time to run.
template <class Look, class Check>
void while_held(const BusyStream& hold, const char* rule, Look look, Check check) {
  for (int i = 0; i < 20; ++i) {
    const auto seen = look();
    if (!hold.held()) {
      if (i == 0 || hold.by_gate()) hold.not_waited_for(rule);
      return;
    }
    check(seen);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The status that `ask` gives stays PENDING while the hold lasts.
template <class Ask>
void stays_pending(Context& c, const BusyStream& hold, const char* rule, Ask ask) {
  while_held(hold, rule, ask, [&](int32_t status) { c.expect(status, BP_PENDING, rule); });
}

// The count stays 0 as long as the hold lasts: what is queued behind it has not run.
template <class Ran>
void stays_unrun(Context& c, const BusyStream& hold, const char* rule, const char* what, Ran ran) {
  while_held(hold, rule, ran,
             [&](auto count) { c.require(count == 0, rule, "%s ran while the work before it on the stream was pending", what); });
}

// Keeps the stream busy where it can be; elsewhere the check sees only what comes later.
inline void hold_if_possible(std::optional<BusyStream>& hold, Context& c, bp_stream* stream) {
  try {
    hold.emplace(c, 0, stream);
  } catch (const NotOffered&) {
  } catch (const NotRun&) {
  }
}

// The calls of a host function, of its destroy, or of a callback, whose argument this is.
struct Calls {
  std::atomic<int> ran{0}, destroyed{0}, ran_after_destroy{0};
  std::atomic<int32_t> status{-1};  // of a callback

  static int32_t run(void* arg) {
    auto* calls = static_cast<Calls*>(arg);
    if (calls->destroyed) ++calls->ran_after_destroy;
    ++calls->ran;
    return BP_OK;
  }
  static void destroy(void* arg) { ++static_cast<Calls*>(arg)->destroyed; }
  static void callback(void* arg, int32_t status) {
    ++static_cast<Calls*>(arg)->ran;
    static_cast<Calls*>(arg)->status = status;
  }
};

}  // namespace backplane::check
