// tests/docs/cpp/migration.cpp: what docs/migration.md says of torch's C++ interfaces; a compiler checks the syntax, and runs nothing.
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Optional.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <optional>
#include <type_traits>

// R06: two arguments still do, two more may follow.
static_assert(
    std::is_same_v<decltype(at::native::cpu_fallback), void(const c10::OperatorHandle&, torch::jit::Stack*, bool, c10::DispatchKey)>);
static_assert(requires(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); });

// R14: the macro takes such a function.
at::Generator make_generator(c10::DeviceIndex device);
REGISTER_GENERATOR_PRIVATEUSE1(make_generator)

// R15: an override without const overrides nothing.
static_assert(std::is_same_v<decltype(&at::PrivateUse1HooksInterface::getDefaultGenerator),
                             const at::Generator& (at::PrivateUse1HooksInterface::*)(c10::DeviceIndex) const>);

// R16: a pointer, once.
static_assert(std::is_same_v<decltype(at::RegisterPrivateUse1HooksInterface), void(at::PrivateUse1HooksInterface*)>);

// R17
static_assert(std::is_same_v<decltype(&at::Context::lazyInitPrivateUse1), void (at::Context::*)()>);
static_assert(std::is_same_v<decltype(&at::Context::lazyInitDevice), void (at::Context::*)(c10::DeviceType)>);

// R19: scale, then the flag.
static_assert(std::is_same_v<at::native::fused_sdp_choice_fn,
                             int64_t (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double,
                                         bool, std::optional<double>, bool)>);

// R20
static_assert(std::is_same_v<c10::optional<int>, std::optional<int>>);
static_assert(std::is_same_v<decltype(c10::nullopt), decltype(std::nullopt)>);

// R21
static_assert(std::is_same_v<decltype(torch::jit::TensorBackendMetaRegistry),
                             void(c10::DeviceType, const torch::jit::BackendMetaPtr&, const torch::jit::BackendMetaPtr&)>);

// R25: it has no device of its own to name.
using NoOpGuard = c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1>;
static_assert(std::is_base_of_v<c10::impl::DeviceGuardImplInterface, NoOpGuard>);
static_assert(std::is_same_v<decltype(&NoOpGuard::getDevice), c10::Device (NoOpGuard::*)() const>);
