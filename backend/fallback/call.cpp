// fallback/call.cpp: the boxed CPU fallback: which arguments take part, on which device, with which random numbers; HostArguments handles
// their memory.
#include "fallback/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <backplane/philox.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>

#include "fallback/cuda_only.h"
#include "fallback/host_arguments.h"
#include "fallback/plan.h"
#include "fallback/policy.h"
#include "fallback/values.h"
#include "fallback/widening.h"
#include "random/generator.h"
#include "runtime/options.h"
#include "runtime/stream.h"
#include "tensor/tensors.h"
#include "torch/no_warnings.h"

namespace backplane::fallback {
namespace {

std::atomic<bool> registered = false;
std::atomic<Hook> hook = nullptr;         // of C++
std::atomic<Hook> python_hook = nullptr;  // of the bindings

// The kinds of tensors that have a backend of their own.
constexpr c10::DispatchKeySet kLayouts({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                        c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

// View operators of these kinds use only sizes; those of sparse tensors may compute.
constexpr c10::DispatchKeySet kViewedByLayout({c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

// The same kinds on the CPU.
c10::DispatchKeySet on_cpu(c10::DispatchKeySet keys) { return (keys & kLayouts) | c10::DispatchKeySet(c10::BackendComponent::CPUBit); }

// One call: the arguments on the stack become CPU values in place, and then the results become device values.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Plan& plan, c10::DispatchKeySet keys, torch::jit::Stack& stack)
      : op_(op), plan_(plan), keys_(keys), stack_(stack), first_(stack.size() - plan.flags.size()) {}

  void run() {
    find_participants();
    const c10::DeviceIndex device = choose_device();
    DeviceSwitch guard(device);
    refuse_in_capture(current_stream(device), plan_.full_name.c_str(), ", which runs on the CPU,");
    host_arguments_.open(device, content(), results_on_device_);
    replace_arguments(device);
    {
      // From here on the tensors are the CPU's: no autograd, which has run already, and no autocast of the CPU.
      c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
      const NoWarnings silence(plan_.has_warned);
      run_on_cpu(op_, plan_, keys_, stack_);
    }
    host_arguments_.close();
    if (results_on_device_) replace_results();
  }

  const Traffic& traffic() const { return host_arguments_.traffic(); }

 private:
  c10::IValue& argument(size_t i) { return stack_[first_ + i]; }

  const char* argument_name(size_t i) const { return op_.schema().arguments()[i].name().c_str(); }

  void find_participants() {
    for (size_t i = 0; i < plan_.flags.size(); ++i) {
      const uint8_t flags = plan_.flags[i];
      TORCH_CHECK_NOT_IMPLEMENTED(!argument(i).isStorage(), plan_.full_name, " takes a storage, which the CPU fallback of ", device_name(),
                                  " does not support; it needs a kernel");
      visit_tensors(argument(i), [&](const at::Tensor& tensor) { note(tensor, i, flags); });
      if (argument(i).isDevice()) device_argument_ = argument(i).toDevice();
      TORCH_CHECK(!(flags & Plan::pin) || !argument(i).isBool() || !argument(i).toBool(), "Only dense CPU tensors can be pinned");
    }
    const bool asked_for = device_argument_ && device_argument_->type() == kDevice;
    TORCH_CHECK(!foreign_tensor_.defined() || device_ || asked_for, "Expected a '", foreign_tensor_.device().type(),
                "' device type for generator but found '", device_name(), "'");  // only a generator can have selected the device here
    if (foreign_tensor_.defined() && device_) {
      const std::string method = "wrapper_" + std::string(device_name()) + "__" + plan_.name.name.substr(plan_.name.name.rfind(':') + 1);
      c10::impl::common_device_check_failure(*device_, foreign_tensor_, method.c_str(), argument_name(foreign_argument_));
    }
  }

  void note(const at::Tensor& tensor, size_t i, uint8_t flags) {
    if (is_on_device(tensor)) {
      if (!device_) device_ = tensor.device();
      if (C10_LIKELY(tensor.device() == *device_)) {
        host_arguments_.add(tensor, use_of(tensor, flags));
        return;
      }
    } else if (tensor.device().is_cpu() && ((tensor.dim() == 0 && !(flags & Plan::written)) || (flags & Plan::on_host))) {
      return;
    }
    if (!foreign_tensor_.defined()) {
      foreign_tensor_ = tensor;
      foreign_argument_ = i;
    }
  }

  // Some CPU kernels do not write all of an out with gaps.
  static Use use_of(const at::Tensor& tensor, uint8_t flags) {
    if (C10_LIKELY(!(flags & Plan::written))) return Use::read;
    return flags & Plan::filled && tensor.is_non_overlapping_and_dense() ? Use::write : Use::read_write;
  }

  Content content() const {
    if (C10_LIKELY(!plan_.is_view) || !keys_.has_any(kViewedByLayout)) return Content::full;
    for (size_t i = 0; i < host_arguments_.count(); ++i) {
      if (is_dense_kind(host_arguments_.device(i))) return Content::full;
    }
    return Content::layout;
  }

  // The device of the results: the device argument, else that of the tensors, else the current one.
  c10::DeviceIndex choose_device() {
    if (device_argument_ && device_argument_->type() == kDevice) {
      const c10::DeviceIndex index = resolve_device(device_argument_->index());
      TORCH_CHECK_NOT_IMPLEMENTED(!device_ || device_->index() == index, plan_.full_name, ": tensors on ", *device_,
                                  " and a result on another index are not supported by the CPU fallback; copy the result instead");
      return index;
    }
    if (device_argument_) {
      TORCH_CHECK_NOT_IMPLEMENTED(device_argument_->is_cpu(), plan_.full_name, ": the CPU fallback of ", device_name(),
                                  " cannot make a result on ", *device_argument_);
      results_on_device_ = false;
    }
    return device_ ? device_->index() : current_device();
  }

  void replace_arguments(c10::DeviceIndex device) {
    for (size_t i = 0; i < plan_.flags.size(); ++i) {
      c10::IValue& value = argument(i);
      if (value.isTensor() || value.isList()) {
        value = map_tensors(value, [&](const at::Tensor& tensor) { return is_on_device(tensor) ? host(tensor) : tensor; });
      } else if (value.isDevice()) {
        value = c10::Device(c10::kCPU);
      } else if (plan_.flags[i] & Plan::generator) {
        value = host_generator(value, device);
      }
    }
  }

  const at::Tensor& host(const at::Tensor& tensor) { return host_arguments_.host(host_arguments_.add(tensor, Use::read)); }

  // A CPU generator that is seeded with the next numbers of the device generator's sequence: reproducible, and drawn from the device.
  static c10::IValue host_generator(const c10::IValue& value, c10::DeviceIndex device) {
    std::optional<at::Generator> generator;
    if (!value.isNone()) generator = value.toGenerator();
    const auto [seed, offset] = reserve(generator, device, at::MERSENNE_STATE_N);
    Philox numbers(seed, offset);
    at::mt19937_data_pod data{};
    data.seed_ = seed;
    data.left_ = 1;
    data.seeded_ = true;
    data.next_ = 0;
    for (auto& word : data.state_) word = numbers();
    at::mt19937 engine;
    engine.set_data(data);
    at::Generator host = at::detail::createCPUGenerator();
    static_cast<at::CPUGeneratorImpl*>(host.unsafeGetGeneratorImpl())->set_engine(engine);
    return host;
  }

  void replace_results() {
    for (auto value = stack_.end() - static_cast<std::ptrdiff_t>(plan_.returns); value != stack_.end(); ++value) {
      if (value->isTensor()) {
        *value = host_arguments_.take(std::move(*value).toTensor());
      } else if (value->isTensorList()) {
        c10::List<at::Tensor> list = std::move(*value).toTensorList();
        for (size_t i = 0; i < list.size(); ++i) list.set(i, host_arguments_.take(list.extract(i)));
        *value = std::move(list);
      }
    }
  }

  const c10::OperatorHandle& op_;
  Plan& plan_;
  c10::DispatchKeySet keys_;  // of the CPU
  torch::jit::Stack& stack_;
  size_t first_;  // of the arguments, on the stack
  HostArguments host_arguments_;
  std::optional<c10::Device> device_;  // of the device tensors
  std::optional<c10::Device> device_argument_;
  at::Tensor foreign_tensor_;  // the first tensor on another device
  size_t foreign_argument_ = 0;
  bool results_on_device_ = true;
};

}  // namespace

namespace {

// The process's own fallback, where the SDK registers none: what the dispatcher calls for a CUDA-only operator. An operator that has a line
// (dispatch/defaults.h) does not come here. False: there is none.
bool run_own_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static const c10::OperatorHandle cudas = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_cudnn_init_dropout_state", "");
  if (!cudas.hasComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return false;
  cudas.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1).callBoxed(op, keys, stack);
  return true;
}

}  // namespace

namespace {

[[noreturn]] void refuse(const c10::OperatorHandle& op, const Plan& plan, c10::DispatchKey cpu, const torch::jit::Stack& stack) {
  const std::string instead = instead_of(plan.full_name);
  const std::string advice = instead.empty() ? "Write one, in Python for a start:\n  " + kernel_in_python(op.operator_name()) : instead;
  TORCH_CHECK_NOT_IMPLEMENTED(false, plan.full_name, " has no kernel", dtypes_of(stack, plan.flags.size()), " on ", device_name(),
                              ", and none on the CPU to fall back to (", cpu, "). ", advice);
}

}  // namespace

bool is_registered() { return registered; }

bool is_wanted() { return env("FALLBACK") != "none"; }

void set_hook(Hook function) { hook = function; }

void set_python_hook(Hook function) { python_hook = function; }

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Plan& plan = plan_for(op);
  const c10::DispatchKeySet cpu = on_cpu(keys);
  const c10::DispatchKey key = ((keys & kLayouts) | c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit)).highestPriorityTypeId();
  apply_policy(plan, op, key, *stack);
  if (!registered && run_own_fallback(op, keys, stack)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(registered, plan.full_name, " has no kernel", dtypes_of(*stack, plan.flags.size()), " on ", device_name(),
                              ", and no fallback is registered (" BACKPLANE_ENV_PREFIX "_FALLBACK=none)");
  Entry entry(plan.account);
  for (const std::atomic<Hook>* slot : {&python_hook, &hook}) {
    if (const Hook first = slot->load(std::memory_order_relaxed); C10_UNLIKELY(first != nullptr) && first(op, stack)) return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!plan.is_view || key != c10::DispatchKey::PrivateUse1, plan.full_name,
                              " is a view operator: on the CPU its result would lose the memory of ", device_name(),
                              ". It needs a kernel for the device");
  if (C10_UNLIKELY(!op.hasComputedKernelForDispatchKey(cpu.highestPriorityTypeId()))) refuse(op, plan, cpu.highestPriorityTypeId(), *stack);
  Call call(op, plan, cpu, *stack);
  call.run();
  entry.add(call.traffic());
}

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  const size_t count = op.schema().arguments().size();
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(count); value != stack->end(); ++value) {
    if (value->isTensor() && value->toTensor().defined()) keys = keys | value->toTensor().key_set();
  }
  run(op, keys, stack);
}

namespace {

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) { run(op, keys, stack); }

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  if (!is_wanted()) return;
  registered = true;
  take_policy_from_environment();
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace backplane::fallback
