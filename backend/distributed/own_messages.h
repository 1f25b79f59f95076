// distributed/own_messages.h: what a rank sends to itself in a batch of messages, which goes over no network.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <future>
#include <map>
#include <mutex>

namespace backplane::distributed {

// Of one group; any thread. A send and a receive of one tag meet in the order of their calls, whichever comes first. What is sent belongs
// to this: its sender may go on before it is received.
class OwnMessages {
 public:
  void send(int tag, at::Tensor data);
  std::shared_future<at::Tensor> receive(int tag);

 private:
  struct OfTag {
    std::deque<std::shared_future<at::Tensor>> sent;  // not asked for yet
    std::deque<std::promise<at::Tensor>> asked_for;   // not sent yet
  };
  std::mutex mutex_;
  std::map<int, OfTag> by_tag_;
};

}  // namespace backplane::distributed
