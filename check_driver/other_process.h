// check_driver/other_process.h: a second process for a check, forked before this one opens its instance, and the messages between the two.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "context.h"

namespace backplane::check {

// One end of a conversation. What ends the other process is thrown here; `rule` is what it was there for.
class Channel {
 public:
  Channel(int socket, const char* rule) : socket_(socket), rule_(rule) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  template <class T>
  void send(const T& value) const {
    write_all("v", 1);
    write_all(&value, sizeof value);
  }
  template <class T>
  T receive() const {
    read_tag();
    T value;
    read_all(&value, sizeof value);
    return value;
  }
  void send_failure(const Failure& failure) const;

 private:
  // What a message begins with; throws the failure that it may announce.
  void read_tag() const;
  void read_all(void* at, size_t bytes) const;
  void write_all(const void* from, size_t bytes) const;
  [[noreturn]] void lost() const { throw Failure{"the other process of the check has ended", rule_}; }

  int socket_;
  const char* rule_;
};

// A process that opens the instance for itself and runs body.
class OtherProcess {
 public:
  OtherProcess(Context& c, const char* rule, const std::function<void(const Channel&)>& body);
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  const Channel& channel() const { return *channel_; }
  // Ends it in the middle of whatever it does.
  void kill_now() const;

 private:
  pid_t child_ = -1;
  std::optional<Channel> channel_;
};

}  // namespace backplane::check
