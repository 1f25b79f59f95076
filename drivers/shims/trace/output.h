// drivers/shims/trace/output.h: where lines go: to a file at once, or into a ring of the latest ones.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "line.h"

namespace backplane::driver::trace {

class Output {
 public:
  /// path: "" is stderr. ring: how many lines are kept; 0: each is written at once. Throws if the file cannot be opened.
  Output(const std::string& path, size_t ring) : file_(path.empty() ? STDERR_FILENO : opened(path)), ring_(ring), kept_(ring) {}
  ~Output() {
    if (file_ != STDERR_FILENO) ::close(file_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void add(const Line& line) {
    std::lock_guard lock(mutex_);
    if (ring_ == 0) return put(line.text());
    Kept& place = kept_[count_++ % ring_];
    place.size = line.text().size();
    std::memcpy(place.text, line.text().data(), place.size);
  }

  /// Writes what is kept, the oldest first.
  void flush() {
    std::lock_guard lock(mutex_);
    if (count_ > ring_) put("[trace] " + std::to_string(count_ - ring_) + " earlier lines were not kept\n");
    for (size_t at = count_ > ring_ ? count_ - ring_ : 0; at < count_; ++at) put({kept_[at % ring_].text, kept_[at % ring_].size});
    count_ = 0;
  }

 private:
  struct Kept {
    size_t size;
    char text[Line::kRoom];
  };

  static int opened(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) throw Error(BP_INVALID_ARGUMENT, "options: trace.file=" + path + " cannot be opened: " + std::strerror(errno));
    return file;
  }
  /// A trace that cannot be written is no reason for a program to fail.
  void put(std::string_view text) {
    while (!text.empty()) {
      const ssize_t wrote = ::write(file_, text.data(), text.size());
      if (wrote < 0 && errno != EINTR) return;
      if (wrote > 0) text.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  const int file_;
  const size_t ring_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
  size_t count_ = 0;
};

}  // namespace backplane::driver::trace
