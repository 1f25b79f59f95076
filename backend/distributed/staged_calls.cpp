// distributed/staged_calls.cpp: collectives as calls of Gloo.
#include "distributed/staged_calls.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "runtime/driver.h"

namespace backplane::distributed {
namespace staged_calls_impl {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// A larger all_reduce is cut, so that copies of one part overlap with the network's time of another.
constexpr int64_t kCutFrom = 16 << 20;
constexpr int64_t kPart = 8 << 20;

// The head of a message. As much data as fits follows it in the same packet.
struct Head {
  int64_t bytes, tag_of_rest;
};
constexpr int64_t kHead = sizeof(Head), kInPacket = 4096 - kHead;
constexpr int kTagsOfRests = 1 << 30;  // from here on; users' tags are lower

bool have_one_size(const Tensors& tensors, const at::Tensor& as) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& one) { return one.numel() == as.numel(); });
}

void check_message_size(int source, int64_t sent, int64_t taken) {
  TORCH_CHECK(sent == taken, "rank ", source, " sent ", sent, " bytes, and the tensor has ", taken);
}

// Options of Gloo with a timeout and, if they have one, a root.
template <class T>
T with(milliseconds timeout, int root = -1) {
  T options;
  options.timeout = timeout;
  if constexpr (requires { options.rootRank; }) options.rootRank = root;
  return options;
}

}  // namespace
}  // namespace staged_calls_impl

using namespace staged_calls_impl;

std::vector<at::Tensor> StagedCalls::reads_all(const Call& call, const Tensors& tensors) {
  Tensors bytes;
  for (const at::Tensor& tensor : tensors) bytes.push_back(call->reads(tensor).view(at::kByte));
  return bytes;
}

std::vector<at::Tensor> StagedCalls::writes_all(const Call& call, const Tensors& tensors) {
  Tensors bytes;
  for (const at::Tensor& tensor : tensors) bytes.push_back(call->writes(tensor).view(at::kByte));
  return bytes;
}

template <class Start>
void StagedCalls::add(const Call& call, Start start, std::function<void()> finish) {
  for (const HostCopy& copy : call->copies) {
    if (copy.is_written()) check_written(copy.tensor(), name());
  }
  call->start = [gloo = transport_.gloo(), start](milliseconds timeout) mutable { return start(*gloo, timeout); };
  if (finish) call->finish = [finish = std::move(finish)](const GloosWork&, milliseconds) { finish(); };
  calls_.push_back(call);
}

void StagedCalls::submit(const c10::intrusive_ptr<GroupWork>& work) {
  if (transport_.size() > 1 && !calls_[0]->is_message) calls_[0]->fingerprint = std::move(fingerprint_);
  for (const Call& call : calls_) {
    call->work = work;
    work->add_part();
    transport_.submit(call);
  }
}

template <class Start>
void StagedCalls::add_reduction(const Call& call, const HostReduction& reduction, const at::Tensor& host, bool has_result, Start start) {
  const auto sent = std::make_shared<at::Tensor>();
  add(
      call,
      [=](c10d::Backend& gloo, milliseconds timeout) {
        *sent = reduction.encode(host);
        Tensors tensors{*sent};
        return start(gloo, tensors, timeout);
      },
      [=] {
        if (has_result) reduction.decode(*sent, host);
      });
}

bool StagedCalls::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const HostReduction reduction(op, tensor.scalar_type(), transport_.size());
  fingerprint_->add(tensor.scalar_type(), tensor.numel(), -1, op.op_);
  const Prepare factor = factor_of(op);
  const auto reduce = [&](const at::Tensor& part) {
    const Call call = this->call();
    add_reduction(call, reduction, call->exchanges(part, part, factor), true,
                  [op = reduction.op()](auto& gloo, Tensors& tensors, auto timeout) {
                    auto options = with<c10d::AllreduceOptions>(timeout);
                    options.reduceOp = op;
                    return gloo.allreduce(tensors, options);
                  });
  };
  const int64_t part = kPart / tensor.element_size();
  if (static_cast<int64_t>(tensor.nbytes()) < kCutFrom || !tensor.is_contiguous() || factor || loaded_driver()->zero_copy) {
    reduce(tensor);
    return true;
  }
  const at::Tensor all = tensor.view(-1);
  for (int64_t at = 0; at < tensor.numel(); at += part) reduce(all.narrow(0, at, std::min(part, tensor.numel() - at)));
  return true;
}

bool StagedCalls::reduce(const at::Tensor& from, const at::Tensor& to, int root, const c10d::ReduceOp& op) {
  const HostReduction reduction(op, from.scalar_type(), transport_.size());
  fingerprint_->add(from.scalar_type(), from.numel(), root, op.op_);
  const Call call = this->call();
  const bool is_root = transport_.rank() == root;
  const Prepare factor = factor_of(op);
  const at::Tensor host = is_root ? call->exchanges(from, to, factor) : call->reads(from, Given::overwritten, factor);
  add_reduction(call, reduction, host, is_root, [=, op = reduction.op()](auto& gloo, Tensors& tensors, auto timeout) {
    auto options = with<c10d::ReduceOptions>(timeout, root);
    options.reduceOp = op;
    return gloo.reduce(tensors, options);
  });
  return true;
}

bool StagedCalls::reduce_scatter(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  const HostReduction reduction(op, input.scalar_type(), transport_.size());
  fingerprint_->add(input.scalar_type(), input.numel(), -1, op.op_);
  const Call call = this->call();
  const at::Tensor from = call->reads(input, Given::overwritten, factor_of(op)), to = call->writes(output);
  add_reduction(call, reduction, to, true, [=](auto& gloo, Tensors& received, auto timeout) {
    at::Tensor sent = reduction.encode(from);
    auto options = with<c10d::ReduceScatterOptions>(timeout);
    options.reduceOp = reduction.op();
    return gloo._reduce_scatter_base(received[0], sent, options);
  });
  return true;
}

bool StagedCalls::broadcast(const at::Tensor& from, const at::Tensor& to, int root) {
  fingerprint_->add(to.scalar_type(), to.numel(), root);
  const Call call = this->call();
  const bool is_root = transport_.rank() == root;
  const at::Tensor host = !is_root ? call->writes(to) : from.is_same(to) ? call->reads(from) : call->exchanges(from, to);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors tensors{host.view(at::kByte)};
    return gloo.broadcast(tensors, with<c10d::BroadcastOptions>(timeout, root));
  });
  return true;
}

bool StagedCalls::all_gather(const at::Tensor& output, const at::Tensor& input) {
  fingerprint_->add(input.scalar_type(), input.numel());
  const Call call = this->call();
  const at::Tensor from = call->reads(input), to = call->writes(output);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    at::Tensor sent = from.view(at::kByte), received = to.view(at::kByte);
    return gloo._allgather_base(received, sent, with<c10d::AllgatherOptions>(timeout));
  });
  return true;
}

bool StagedCalls::all_gather(const Tensors& outputs, const at::Tensor& input) {
  if (!have_one_size(outputs, input)) return Calls::all_gather(outputs, input);
  // As many fingerprints as the broadcasts that other ranks make if their sizes differ.
  for (size_t root = 0; root < outputs.size(); ++root) {
    fingerprint_->add(outputs[root].scalar_type(), outputs[root].numel(), static_cast<int>(root));
  }
  const Call call = this->call();
  const at::Tensor from = call->reads(input);
  const Tensors to = writes_all(call, outputs);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors sent{from.view(at::kByte)};
    std::vector<Tensors> received{to};
    return gloo.allgather(received, sent, with<c10d::AllgatherOptions>(timeout));
  });
  return true;
}

bool StagedCalls::gather(const Tensors& outputs, const at::Tensor& input, int root) {
  fingerprint_->add(input.scalar_type(), input.numel(), root);
  const Call call = this->call();
  const at::Tensor from = call->reads(input);
  const Tensors to = writes_all(call, outputs);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors sent{from.view(at::kByte)};
    std::vector<Tensors> received;
    if (!to.empty()) received.push_back(to);
    return gloo.gather(received, sent, with<c10d::GatherOptions>(timeout, root));
  });
  return true;
}

bool StagedCalls::scatter(const at::Tensor& output, const Tensors& inputs, int root) {
  fingerprint_->add(output.scalar_type(), output.numel(), root);
  const Call call = this->call();
  const at::Tensor to = call->writes(output);
  const Tensors from = reads_all(call, inputs);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) {
    Tensors received{to.view(at::kByte)};
    std::vector<Tensors> sent;
    if (!from.empty()) sent.push_back(from);
    return gloo.scatter(received, sent, with<c10d::ScatterOptions>(timeout, root));
  });
  return true;
}

bool StagedCalls::all_to_all(const at::Tensor& output, const at::Tensor& input, const Bytes& received, const Bytes& sent, bool) {
  fingerprint_->add(input.scalar_type(), 0);
  fingerprint_->add_parts(received, sent);
  const Call call = this->call();
  const at::Tensor from = call->reads(input), to = call->writes(output);
  add(call, [=](c10d::Backend& gloo, milliseconds timeout) mutable {
    at::Tensor in = from.view(at::kByte), out = to.view(at::kByte);
    Bytes of_out = received, of_in = sent;
    return gloo.alltoall_base(out, in, of_out, of_in, with<c10d::AllToAllOptions>(timeout));
  });
  return true;
}

bool StagedCalls::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  const Call call = this->call();
  const Tensors from = reads_all(call, inputs), to = writes_all(call, outputs);
  Bytes sent, received;
  for (const at::Tensor& one : from) sent.push_back(one.numel());
  for (const at::Tensor& one : to) received.push_back(one.numel());
  fingerprint_->add(inputs[0].scalar_type(), 0);
  fingerprint_->add_parts(received, sent);
  const auto whole = std::make_shared<at::Tensor>();
  add(
      call,
      [=](c10d::Backend& gloo, milliseconds timeout) {
        at::Tensor in = at::cat(from);
        *whole = at::cat(to);  // for its size
        Bytes of_out = received, of_in = sent;
        return gloo.alltoall_base(*whole, in, of_out, of_in, with<c10d::AllToAllOptions>(timeout));
      },
      [=] {
        int64_t at = 0;
        for (const at::Tensor& one : to) {
          one.copy_(whole->narrow(0, at, one.numel()));
          at += one.numel();
        }
      });
  return true;
}

StagedCalls::Call StagedCalls::message() const {
  Call made = call();
  made->is_message = true;
  return made;
}

void StagedCalls::check_tag(int tag) const {
  TORCH_CHECK_VALUE(tag >= 0 && tag < kTagsOfRests, name(), ": a tag is 0 to ", kTagsOfRests - 1, ", not ", tag);
}

bool StagedCalls::send(const at::Tensor& tensor, int destination, int tag) {
  check_tag(tag);
  const Call call = message();
  const at::Tensor host = call->reads(tensor);
  if (destination == transport_.rank()) {
    add(call, [=, own = transport_.own_messages()](c10d::Backend&, milliseconds) {
      own->send(tag, host.clone());
      return GloosWork();
    });
    return true;
  }
  const auto rest = std::make_shared<GloosWork>();
  add(call, [=, number = transport_.next_message()](c10d::Backend& gloo, milliseconds) {
    const at::Tensor data = host.view(at::kByte);
    const Head head{data.numel(), kTagsOfRests + static_cast<int64_t>(number % kTagsOfRests)};
    const int64_t first = std::min(head.bytes, kInPacket);
    at::Tensor packet = at::empty({kHead + first}, at::kByte);
    std::memcpy(packet.mutable_data_ptr(), &head, sizeof head);
    packet.narrow(0, kHead, first).copy_(data.narrow(0, 0, first));
    Tensors packets{packet}, rests{data.narrow(0, first, head.bytes - first)};
    GloosWork work = gloo.send(packets, destination, tag);
    if (head.bytes > first) *rest = gloo.send(rests, destination, static_cast<int>(head.tag_of_rest));
    return work;
  });
  call->finish = [=](const GloosWork&, milliseconds timeout) {
    if (*rest != nullptr) (*rest)->wait(timeout);
  };
  return true;
}

template <class Start>
void StagedCalls::receive(const at::Tensor& tensor, Start start) {
  const Call call = message();
  const at::Tensor host = call->writes(tensor), packet = at::empty({kHead + kInPacket}, at::kByte);
  add(call, [=](c10d::Backend& gloo, milliseconds) {
    Tensors packets{packet};
    return start(gloo, packets);
  });
  call->finish = [=, gloo = transport_.gloo()](const GloosWork& started, milliseconds timeout) {
    Head head{};
    std::memcpy(&head, packet.const_data_ptr(), sizeof head);
    const at::Tensor data = host.view(at::kByte);
    const int source = started->sourceRank();
    check_message_size(source, head.bytes, data.numel());
    const int64_t first = std::min(head.bytes, kInPacket);
    data.narrow(0, 0, first).copy_(packet.narrow(0, kHead, first));
    if (head.bytes == first) return;
    Tensors rests{data.narrow(0, first, head.bytes - first)};
    gloo->recv(rests, source, static_cast<int>(head.tag_of_rest))->wait(timeout);
  };
}

bool StagedCalls::recv(const at::Tensor& tensor, int source, int tag) {
  check_tag(tag);
  if (source == transport_.rank()) {
    const Call call = message();
    const at::Tensor host = call->writes(tensor);
    const auto coming = std::make_shared<std::shared_future<at::Tensor>>();
    add(call, [=, own = transport_.own_messages()](c10d::Backend&, milliseconds) {
      *coming = own->receive(tag);
      return GloosWork();
    });
    call->finish = [=](const GloosWork&, milliseconds timeout) {
      TORCH_CHECK(coming->wait_for(timeout) == std::future_status::ready, "rank ", source, ", the caller itself, sent no message with tag ",
                  tag, " within the timeout");
      const at::Tensor data = coming->get().view(at::kByte), to = host.view(at::kByte);
      check_message_size(source, data.numel(), to.numel());
      to.copy_(data);
    };
    return true;
  }
  receive(tensor, [=](c10d::Backend& gloo, Tensors& packets) { return gloo.recv(packets, source, tag); });
  return true;
}

bool StagedCalls::recv_from_any(const at::Tensor& tensor, int tag) {
  check_tag(tag);
  receive(tensor, [=](c10d::Backend& gloo, Tensors& packets) { return gloo.recvAnysource(packets, tag); });
  return true;
}

// Ranks that have compared fingerprints have arrived.
bool StagedCalls::barrier(c10::Device) {
  calls_.push_back(call());
  return true;
}

}  // namespace backplane::distributed
