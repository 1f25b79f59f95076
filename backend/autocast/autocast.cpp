// autocast/autocast.cpp: torch.autocast for the device: torch's own lists of operators, under the device's key.
//
// The fallthrough comes first: without it every operator that is not in a list fails inside an autocast region. A vendor adds rules for its
// own operators by its own TORCH_LIBRARY_IMPL(<namespace>, AutocastPrivateUse1, m). Higher-order operators live in Python, and so do
// theirs. torch's header includes all of ATen, so this file stays out of the unity groups.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace backplane::autocast_impl {
namespace {

// Its log of a low-precision probability overflows; torch refuses it under autocast on every device.
at::Tensor binary_cross_entropy(const at::Tensor& /*self*/, const at::Tensor& /*target*/, const std::optional<at::Tensor>& /*weight*/,
                                int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
              "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which take the values before the "
              "sigmoid, or leave the autocast region and pass float32 values.");
}

}  // namespace
}  // namespace backplane::autocast_impl

// Each list calls its argument with (op) or (op, overload).
#define BACKPLANE_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define BACKPLANE_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define BACKPLANE_FP32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define BACKPLANE_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using at::IntArrayRef;  // the signatures in torch's list are written inside namespace at
  using at::Scalar;
  using at::ScalarType;
  using at::Tensor;
  AT_FORALL_LOWER_PRECISION_FP(BACKPLANE_LOWER_PRECISION)
  AT_FORALL_FP32(BACKPLANE_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(BACKPLANE_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(BACKPLANE_PROMOTE)
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"), TORCH_FN(backplane::autocast_impl::binary_cross_entropy));
}

#undef BACKPLANE_LOWER_PRECISION
#undef BACKPLANE_FP32
#undef BACKPLANE_FP32_SET_DTYPE
#undef BACKPLANE_PROMOTE
