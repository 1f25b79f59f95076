// drivers/engine/in_child.h: asks a runtime something in a child process, which ends with the answer: what a driver says before `open`
// creates no context and no thread, also where the runtime starts some when it is asked for its devices.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <backplane/driver/cxx/error.hpp>
#include <backplane/driver/cxx/wait.hpp>

namespace backplane::driver {

namespace in_child_detail {

inline void send(int file, const void* data, size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes != 0;) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    at += written;
    bytes -= static_cast<size_t>(written);
  }
}

/// All that comes until the other side ends; false when the time is over.
inline bool receive(int file, const Deadline& deadline, std::string* out) {
  char part[4096];
  for (;;) {
    pollfd waiting{file, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(deadline.left_ns() / 1000000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(file, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out->append(part, static_cast<size_t>(got));
  }
}

/// What the child sends before its text.
struct Head {
  int32_t status;
  uint32_t bytes;
};

template <class Ask>
[[noreturn]] void answer(int file, Ask&& ask) {
  Head head{BP_OK, 0};
  std::string text;
  try {
    text = ask();
  } catch (const Error& error) {
    head.status = error.status();
    text = error.what();
  } catch (const std::exception& error) {
    head.status = BP_INTERNAL;
    text = error.what();
  }
  head.bytes = static_cast<uint32_t>(text.size());
  send(file, &head, sizeof head);
  send(file, text.data(), text.size());
  ::_exit(0);  // nothing of the runtime's or the parent's is ended here
}

}  // namespace in_child_detail

/// The bytes that `ask` gives in a child process. Throws what it throws, and Error(BP_UNSUPPORTED) if there is no answer; `runtime` is
/// named then.
template <class Ask>
std::string in_child(const char* runtime, Ask&& ask) {
  namespace detail = in_child_detail;
  constexpr int kSecondsToAnswer = 60;
  const auto unsupported = [&](const std::string& text) { return Error(BP_UNSUPPORTED, text); };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw unsupported(std::string("the survey of devices: pipe: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    detail::answer(ends[1], ask);
  }
  ::close(ends[1]);
  std::string got;
  const bool in_time = child > 0 && detail::receive(ends[0], Deadline(uint64_t{kSecondsToAnswer} * 1000000000), &got);
  ::close(ends[0]);
  if (child < 0) throw unsupported(std::string("the survey of devices: fork: ") + std::strerror(errno));
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) throw unsupported(format("%s did not report its devices in %d seconds", runtime, kSecondsToAnswer));
  detail::Head head{};
  if (got.size() >= sizeof head) std::memcpy(&head, got.data(), sizeof head);
  if (got.size() < sizeof head || got.size() != sizeof head + head.bytes) {
    throw unsupported(format("%s ended the process that asked for its devices (wait status 0x%x)", runtime, static_cast<unsigned>(status)));
  }
  got.erase(0, sizeof head);
  if (head.status != BP_OK) throw Error(static_cast<bp_status>(head.status), got);
  return got;
}

}  // namespace backplane::driver
