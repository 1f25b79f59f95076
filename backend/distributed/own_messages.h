// distributed/own_messages.h: messages from a rank to itself in a batch, which do not use the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <future>
#include <map>
#include <mutex>

namespace backplane::distributed {

// For one group; any thread. Sends and receives of one tag are matched in the order of their calls, whichever comes first. Takes ownership
// of what is sent: the sender may continue before it is received.
class OwnMessages {
 public:
  void send(int tag, at::Tensor data);
  std::shared_future<at::Tensor> receive(int tag);

 private:
  struct OfTag {
    std::deque<std::shared_future<at::Tensor>> sent;  // not requested yet
    std::deque<std::promise<at::Tensor>> asked_for;   // not sent yet
  };
  std::mutex mutex_;
  std::map<int, OfTag> by_tag_;
};

}  // namespace backplane::distributed
