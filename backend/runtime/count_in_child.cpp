// runtime/count_in_child.cpp: the child, its answer through a pipe, and every way in which it can fail.
#include "runtime/count_in_child.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>

#include "runtime/errors.h"
#include "runtime/options.h"
#include "runtime/watchdog.h"

namespace backplane {
namespace count_in_child_impl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kTimeout = std::chrono::seconds(60);

static_assert(std::is_trivially_copyable_v<VisibleDevice>);

// The answer: this header, and `bytes` of devices or of the reason why there are none.
struct Header {
  uint32_t failed;
  uint32_t bytes;
};

class Pipe {
 public:
  Pipe() { TORCH_CHECK(pipe2(ends_, O_CLOEXEC) == 0, "cannot count the driver's devices: pipe: ", std::strerror(errno)); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() { close_end(1); }

 private:
  void close_end(int i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }
  int ends_[2] = {-1, -1};
};

void write_all(int file, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t done = write(file, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;  // the reader is gone
    at += done;
    bytes -= static_cast<size_t>(done);
  }
}

void answer(int file, bool failed, const void* data, size_t bytes) {
  const Header header{failed ? 1u : 0u, static_cast<uint32_t>(bytes)};
  write_all(file, &header, sizeof header);
  write_all(file, data, bytes);
}

[[noreturn]] void be_the_child(int file, const std::function<std::vector<VisibleDevice>()>& ask) {
  signal(SIGINT, SIG_DFL);  // Python's handler would only set a flag
  try {
    const auto devices = ask();
    answer(file, false, devices.data(), devices.size() * sizeof(VisibleDevice));
  } catch (const std::exception& error) {
    const std::string text = text_of(error);
    answer(file, true, text.data(), text.size());
  }
  _exit(0);
}

enum class Got { all, end, late };

// Reads exactly `bytes`, unless the pipe ends or the timeout passes first.
Got read_all(int file, void* data, size_t bytes, Clock::time_point deadline) {
  char* at = static_cast<char*>(data);
  while (bytes != 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Got::late;
    pollfd readable{file, POLLIN, 0};
    const int ready = poll(&readable, 1, static_cast<int>(left));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t done = ready < 0 ? -1 : read(file, at, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Got::end;
    at += done;
    bytes -= static_cast<size_t>(done);
  }
  return Got::all;
}

// Waits for the child to end; false at the timeout. A status of -1: another thread has waited for it, or SIGCHLD is ignored.
bool wait_for(pid_t child, Clock::time_point deadline, int& status) {
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) {
      status = -1;
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void end(pid_t child) {
  kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string how_it_ended(int status) {
  if (status >= 0 && WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (status >= 0 && WIFEXITED(status)) return "status " + std::to_string(WEXITSTATUS(status));
  return "an unknown status";
}

}  // namespace
}  // namespace count_in_child_impl

std::vector<VisibleDevice> count_in_child(const std::function<std::vector<VisibleDevice>()>& ask) {
  using namespace count_in_child_impl;
  const auto limit = std::min<std::chrono::nanoseconds>(
      kTimeout, std::chrono::nanoseconds(static_cast<int64_t>(std::min<uint64_t>(watchdog_ns(), uint64_t{1} << 62))));
  const auto deadline = Clock::now() + limit;
  Pipe pipe;
  const pid_t child = fork();
  TORCH_CHECK(child >= 0, "cannot count the driver's devices: fork: ", std::strerror(errno));
  if (child == 0) be_the_child(pipe.writer(), ask);
  pipe.close_writer();
  Header header{};
  std::string body;
  Got got = read_all(pipe.reader(), &header, sizeof header, deadline);
  if (got == Got::all) {
    body.resize(header.bytes);
    got = read_all(pipe.reader(), body.data(), body.size(), deadline);
  }
  int status = 0;
  const bool over = got != Got::late && wait_for(child, deadline, status);
  if (!over) end(child);
  TORCH_CHECK(got != Got::late, "The child process that counts the driver's devices did not answer within ",
              std::chrono::duration_cast<std::chrono::milliseconds>(limit).count(),
              " ms and was killed: the driver's device_count or device_properties hangs.");
  TORCH_CHECK(got == Got::all, "The child process that counts the driver's devices ended without an answer, with ", how_it_ended(status),
              ": the driver's device_count or device_properties ends the process.");
  TORCH_CHECK(header.failed == 0, body);
  TORCH_CHECK(body.size() % sizeof(VisibleDevice) == 0, "The child process that counts the driver's devices returned ", body.size(),
              " bytes, which are not a list of devices: the driver writes to file descriptors that it did not open.");
  std::vector<VisibleDevice> devices(body.size() / sizeof(VisibleDevice));
  std::memcpy(devices.data(), body.data(), body.size());
  return devices;
}

}  // namespace backplane
