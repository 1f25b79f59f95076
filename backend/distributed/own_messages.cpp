// distributed/own_messages.cpp: matches sends and receives by tag.
#include "distributed/own_messages.h"

#include <utility>

namespace backplane::distributed {

void OwnMessages::send(int tag, at::Tensor data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OfTag& messages = by_tag_[tag];
  std::promise<at::Tensor> message;
  if (messages.asked_for.empty()) {
    messages.sent.push_back(message.get_future().share());
  } else {
    message = std::move(messages.asked_for.front());
    messages.asked_for.pop_front();
  }
  message.set_value(std::move(data));
}

std::shared_future<at::Tensor> OwnMessages::receive(int tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OfTag& messages = by_tag_[tag];
  if (messages.sent.empty()) return messages.asked_for.emplace_back().get_future().share();
  std::shared_future<at::Tensor> message = std::move(messages.sent.front());
  messages.sent.pop_front();
  return message;
}

}  // namespace backplane::distributed
