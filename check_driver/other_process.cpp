// check_driver/other_process.cpp: fork, a socket between the two, and failures that cross it.
#include "other_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace backplane::check {

Channel::~Channel() { ::close(socket_); }

void Channel::send_failure(const Failure& failure) const {
  const std::string text = "f" + failure.text + '\n' + failure.rule;
  if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) > 0) return;
}

void Channel::read_tag() const {
  char tag = 0;
  read_all(&tag, 1);
  if (tag == 'v') return;
  std::string text;
  char more = 0;
  while (read(socket_, &more, 1) == 1) text += more;
  const size_t end = text.find('\n');
  throw Failure{"in the other process: " + text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)};
}

void Channel::read_all(void* at, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(socket_, static_cast<char*>(at) + done, bytes - done);
    if (got <= 0) lost();
    done += static_cast<size_t>(got);
  }
}

void Channel::write_all(const void* from, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = ::send(socket_, static_cast<const char*>(from) + done, bytes - done, MSG_NOSIGNAL);
    if (put <= 0) lost();
    done += static_cast<size_t>(put);
  }
}

OtherProcess::OtherProcess(Context& c, const char* rule, const std::function<void(const Channel&)>& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw NotOffered{"no socketpair"};
  child_ = fork();
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    const Channel channel(ends[1], rule);
    try {
      c.open();
      body(channel);
    } catch (const Failure& failure) {
      channel.send_failure(failure);
    }
    _exit(0);
  }
  ::close(ends[1]);
  channel_.emplace(ends[0], rule);
}

OtherProcess::~OtherProcess() {
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void OtherProcess::kill_now() const { kill(child_, SIGKILL); }

}  // namespace backplane::check
