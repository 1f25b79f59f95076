// aten/layouts.cpp: sparse, quantized and nested device tensors. Their factories, views and copies are torch's device-independent code; the
// fallback computes everything else.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "dispatch/core_kernels.h"
#include "fallback/fallback.h"
#include "tensor/copy.h"
#include "tensor/tensor_parts.h"
#include "tensor/tensors.h"

namespace backplane::layouts_impl {
namespace {

void by_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) { fallback::run(op, keys, stack); }

// These query memory that the CPU's counterpart does not have.
constexpr std::array<std::string_view, 2> kNotForTheCpu{"aten::is_pinned", "aten::_pin_memory"};

// Registers the fallback for every operator that the CPU has a kernel for with such tensors, and the device has none yet. A single fallback
// for the key does not work: torch's composite kernels take precedence over it, although they fail with these layouts, and to register it
// for every operator would take torch four times as long as the rest of the import. An operator that the CPU does not have raises torch's
// own error.
void register_fallback(c10::DispatchKey cpu, c10::DispatchKey device_key) {
  static auto* const registrations = new std::vector<c10::RegistrationHandleRAII>;  // lives until the end of the process
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(cpu)) {
    if (std::find(kNotForTheCpu.begin(), kNotForTheCpu.end(), name.name) != kNotForTheCpu.end()) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(device_key)) continue;
    registrations->push_back(dispatcher.registerImpl(name, device_key, c10::KernelFunction::makeFromBoxedFunction<&by_fallback>(),
                                                     std::nullopt, nullptr, "the CPU fallback, backplane/aten/layouts.cpp"));
  }
}

// The device of a call's result: the one that it names, else that of its first device tensor, else the current one.
c10::DeviceIndex device_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<c10::DeviceIndex> of_tensor;
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()); value != stack.end(); ++value) {
    if (value->isDevice() && value->toDevice().type() == kDevice) return resolve_device(value->toDevice().index());
    const bool is_ours = !of_tensor && value->isTensor() && value->toTensor().defined() && is_on_device(value->toTensor());
    if (is_ours) of_tensor = value->toTensor().device().index();
  }
  return of_tensor.value_or(current_device());
}

// torch's own kernels that take such tensors apart and build them are the same for every device, except for the key under which they are
// registered. They create parts of a tensor on the current device.
template <c10::DispatchKey cpu>
void as_on_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const DeviceSwitch guard(device_of(op, *stack));
  op.callBoxedForDispatchKey(cpu, *stack);
}

template <c10::DispatchKey cpu>
void share(CoreKernels& m, std::initializer_list<const char*> names) {
  for (const char* name : names) m.impl_boxed<&as_on_the_cpu<cpu>>(name);
}

// A quantized tensor's elements as integers: what a copy of equally quantized tensors moves.
at::Tensor integers(const at::Tensor& quantized) {
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toUnderlying(quantized.scalar_type()));
  const auto key = is_on_device(quantized) ? c10::DispatchKey::PrivateUse1 : c10::DispatchKey::CPU;
  at::Tensor plain = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(quantized.storage()), c10::DispatchKeySet(key), dtype);
  plain.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(), quantized.storage_offset());
  return plain;
}

// Quantizes, and refuses the same arguments as the CPU.
void convert(const at::Tensor& src, const at::Tensor& dst) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{dst, src.to(dst.device()), false};
  fallback::run(op, dst.key_set() | src.key_set(), &stack);
}

at::Tensor copy_quantized_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (!src.is_quantized() || !dst.is_quantized() || src.scalar_type() != dst.scalar_type() || src.qscheme() != dst.qscheme()) {
    TORCH_CHECK(is_on_device(dst), "copy_ from a tensor on ", src.device(), " to another kind of tensor on the CPU: use .cpu() first");
    convert(src, dst);
    return dst;
  }
  integers(dst).copy_(integers(src), non_blocking);
  Memory memory = memory_of(src);
  for (at::Tensor& part : memory.tensors) part = part.to(dst.device());
  memory.storage = dst.storage();
  const at::Tensor like = compound_tensor(src, memory, dst.device());
  like.unsafeGetTensorImpl()->set_sizes_and_strides(dst.sizes(), dst.strides(), dst.storage_offset());
  assign_compound(dst, like, memory);
  return dst;
}

// Scaled dot product attention by its composition, as for dense tensors.
int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
                         std::optional<double>, bool) {
  constexpr int64_t kMath = 0;  // at::SDPBackend::math
  return kMath;
}

}  // namespace

BACKPLANE_CORE_KERNELS(SparsePrivateUse1, m) {
  share<c10::DispatchKey::SparseCPU>(
      m, {"_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "empty.memory_format", "empty_like", "_indices",
          "_values", "indices", "values", "sparse_dim", "_dimI", "dense_dim", "_dimV", "_nnz", "is_coalesced", "_coalesced_", "copy_",
          "copy_sparse_to_sparse_", "clone", "zero_"});
}

BACKPLANE_CORE_KERNELS(SparseCsrPrivateUse1, m) {
  share<c10::DispatchKey::SparseCsrCPU>(m, {"empty.memory_format", "empty_like", "crow_indices", "col_indices", "ccol_indices",
                                            "row_indices", "values", "sparse_dim", "dense_dim", "_nnz", "copy_", "clone"});
}

BACKPLANE_CORE_KERNELS(QuantizedPrivateUse1, m) {
  share<c10::DispatchKey::QuantizedCPU>(
      m, {"empty_like", "as_strided", "view", "_reshape_alias", "unfold", "qscheme", "q_scale", "q_zero_point", "q_per_channel_scales",
          "q_per_channel_zero_points", "q_per_channel_axis", "set_.source_Storage_storage_offset", "clone"});
  m.impl("_copy_from", &copy_quantized_from);
}

BACKPLANE_CORE_KERNELS(NestedTensorPrivateUse1, m) {
  share<c10::DispatchKey::NestedTensorCPU>(
      m, {"empty_like", "_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets", "is_same_size", "alias",
          "detach", "copy_", "_to_copy", "clone", "native_dropout"});
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
}

BACKPLANE_CORE_KERNELS(PrivateUse1, m) { share<c10::DispatchKey::CPU>(m, {"_nested_view_from_buffer"}); }

namespace {

// After the kernels above: static initializers of a file run in order.
const bool taken_over = [] {
  if (!fallback::is_wanted()) return false;
  register_fallback(c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1);
  register_fallback(c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1);
  register_fallback(c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1);
  register_fallback(c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1);
  return true;
}();

}  // namespace
}  // namespace backplane::layouts_impl
