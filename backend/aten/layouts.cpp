// aten/layouts.cpp: sparse, quantized and nested device tensors. What they are made of, views of them and copies are torch's own code that
// holds for every device; all else is the fallback's.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/detach_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/is_same_size_native.h>
#include <ATen/ops/native_dropout_native.h>
#include <ATen/ops/q_per_channel_axis_native.h>
#include <ATen/ops/q_per_channel_scales_native.h>
#include <ATen/ops/q_per_channel_zero_points_native.h>
#include <ATen/ops/q_scale_native.h>
#include <ATen/ops/q_zero_point_native.h>
#include <ATen/ops/qscheme_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zero_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "aten/compound.h"
#include "aten/copy.h"
#include "aten/fallback.h"
#include "aten/tensors.h"

namespace backplane::layouts_impl {
namespace {

void by_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) { fallback::run(op, keys, stack); }

// These ask about memory that the CPU's counterpart does not have.
constexpr std::array<std::string_view, 2> kNotForTheCpu{"aten::is_pinned", "aten::_pin_memory"};

// The fallback becomes the kernel of every operator that the CPU has a kernel for with such tensors, and that has none of ours yet. It is
// not one fallback for the key: torch's composite kernels go before that, although they fail with these layouts, and it would take torch
// four times as long as all the rest of the import to enter it for every operator. An operator that the CPU lacks raises torch's own error.
void take_over(c10::DispatchKey cpu, c10::DispatchKey ours) {
  static auto* const registrations = new std::vector<c10::RegistrationHandleRAII>;  // to the end of the process
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(cpu)) {
    if (std::find(kNotForTheCpu.begin(), kNotForTheCpu.end(), name.name) != kNotForTheCpu.end()) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(ours)) continue;
    registrations->push_back(dispatcher.registerImpl(name, ours, c10::KernelFunction::makeFromBoxedFunction<&by_fallback>(), std::nullopt,
                                                     nullptr, "the CPU fallback, backplane/aten/layouts.cpp"));
  }
}

// A quantized tensor's elements as the integers they are: what a copy of equally quantized tensors moves.
at::Tensor integers(const at::Tensor& quantized) {
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toUnderlying(quantized.scalar_type()));
  const auto key = is_on_device(quantized) ? c10::DispatchKey::PrivateUse1 : c10::DispatchKey::CPU;
  at::Tensor plain = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(quantized.storage()), c10::DispatchKeySet(key), dtype);
  plain.unsafeGetTensorImpl()->set_sizes_and_strides(quantized.sizes(), quantized.strides(), quantized.storage_offset());
  return plain;
}

// Quantizes, and refuses what cannot be: as the CPU does.
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

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_compressed));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_csr));
  m.impl("crow_indices", TORCH_FN(at::native::crow_indices_sparse_csr));
  m.impl("col_indices", TORCH_FN(at::native::col_indices_sparse_csr));
  m.impl("ccol_indices", TORCH_FN(at::native::ccol_indices_sparse_csr));
  m.impl("row_indices", TORCH_FN(at::native::row_indices_sparse_csr));
  m.impl("values", TORCH_FN(at::native::values_sparse_csr));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse_csr));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse_csr));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse_csr));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_compressed_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse_compressed));
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("empty_like", TORCH_FN(at::native::empty_like_quantized));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("qscheme", TORCH_FN(at::native::qscheme_quant));
  m.impl("q_scale", TORCH_FN(at::native::q_scale_quant));
  m.impl("q_zero_point", TORCH_FN(at::native::q_zero_point_quant));
  m.impl("q_per_channel_scales", TORCH_FN(at::native::q_per_channel_scales));
  m.impl("q_per_channel_zero_points", TORCH_FN(at::native::q_per_channel_zero_points));
  m.impl("q_per_channel_axis", TORCH_FN(at::native::q_per_channel_axis));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_quantized_));
  m.impl("_copy_from", TORCH_FN(copy_quantized_from));
  m.impl("clone", TORCH_FN(at::native::quantized_clone));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("empty_like", TORCH_FN(at::native::empty_like_nested));
  m.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  m.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  m.impl("_nested_tensor_storage_offsets", TORCH_FN(at::native::_nested_tensor_storage_offsets));
  m.impl("is_same_size", TORCH_FN(at::native::nested_is_same_size));
  m.impl("alias", TORCH_FN(at::native::alias_nested));
  m.impl("detach", TORCH_FN(at::native::detach));
  m.impl("copy_", TORCH_FN(at::native::copy_nested_));
  m.impl("_to_copy", TORCH_FN(at::native::_to_copy_nested));
  m.impl("clone", TORCH_FN(at::native::clone_nested));
  m.impl("native_dropout", TORCH_FN(at::native::native_dropout_nested));  // draws from the device
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer)); }

namespace {

// After the kernels above: static initialisers of a file run in its order.
const bool taken_over = [] {
  if (!fallback::is_wanted()) return false;
  take_over(c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1);
  take_over(c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1);
  take_over(c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1);
  take_over(c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1);
  return true;
}();

}  // namespace

}  // namespace backplane::layouts_impl
