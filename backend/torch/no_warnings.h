// torch/no_warnings.h: a scope that drops torch's C++ warnings of this thread, because they were issued already.
#pragma once

#include <c10/util/Exception.h>

#include <optional>

namespace backplane {

class NoWarnings final : public c10::WarningHandler {
 public:
  explicit NoWarnings(bool condition = true) {
    if (C10_UNLIKELY(condition)) guard_.emplace(this);
  }
  NoWarnings(const NoWarnings&) = delete;
  NoWarnings& operator=(const NoWarnings&) = delete;

  void process(const c10::Warning&) override {}

 private:
  std::optional<c10::WarningUtils::WarningHandlerGuard> guard_;
};

}  // namespace backplane
