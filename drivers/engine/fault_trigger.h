// drivers/engine/fault_trigger.h: when an injected fault strikes: at every n-th event of its kind, at one, at a few, or from one on.
//
//   17      every 17th          @17     the 17th alone
//   @17-19  the 17th to 19th    @17+    the 17th and all after it
#pragma once

#include <atomic>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver {

class FaultTrigger {
 public:
  static constexpr const char* kForm = "<n>|@<n>|@<n>-<m>|@<n>+";

  /// `text` as above; "" is never. Throws Error(BP_INVALID_ARGUMENT), naming the option `key`.
  FaultTrigger(const char* key, std::string_view text) {
    if (text.empty()) return;
    const std::string_view given = text;
    const bool every = text.front() != '@';
    if (!every) text.remove_prefix(1);
    bool good = number(text, first_);
    last_ = first_;
    if (every) {
      every_ = first_;
    } else if (text == "+") {
      last_ = UINT64_MAX;
      text = {};
    } else if (!text.empty() && text.front() == '-') {
      text.remove_prefix(1);
      good = good && number(text, last_) && last_ >= first_;
    }
    if (!good || !text.empty()) {
      throw Error(BP_INVALID_ARGUMENT,
                  "options: " + std::string(key) + "=" + std::string(given) + ": one of " + kForm +
                      " is needed, numbers from 1 on: every n-th, the n-th, the n-th to the m-th, all from the n-th on");
    }
  }

  /// True if it can strike at all.
  bool armed() const { return first_ != 0; }

  /// Counts one event; true if it strikes. Any thread.
  bool strikes() {
    if (!armed()) return false;
    const uint64_t now = count_.fetch_add(1, std::memory_order_relaxed) + 1;
    return every_ ? now % every_ == 0 : now >= first_ && now <= last_;
  }

 private:
  static bool number(std::string_view& text, uint64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || out == 0) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  }

  uint64_t every_ = 0, first_ = 0, last_ = 0;
  std::atomic<uint64_t> count_{0};
};

}  // namespace backplane::driver
