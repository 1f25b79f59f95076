// fallback/cuda_only.cpp: what to use instead of CUDA-only operators.
#include "fallback/cuda_only.h"

#include <string_view>
#include <utility>

namespace backplane::fallback {

namespace {

constexpr const char* kAttention = "It is one of CUDA's kernels of attention: use torch.nn.functional.scaled_dot_product_attention";

// The first entry that is a prefix of the operator's name applies.
constexpr std::pair<std::string_view, const char*> kInstead[] = {
    {"aten::_scaled_dot_product_", kAttention},
    {"aten::_flash_attention_", kAttention},
    {"aten::_cudnn_attention_", kAttention},
    {"aten::_fill_mem_eff_dropout_mask_", kAttention},
    {"aten::_triton_scaled_dot_attention", kAttention},
    {"aten::_triton_multi_head_attention", "It is one of CUDA's kernels of attention: use torch.nn.MultiheadAttention"},
    {"aten::cudnn_", "It calls cuDNN: use the module or function of torch.nn, which computes it on every device"},
    {"aten::_cudnn_", "It calls cuDNN: use the module or function of torch.nn, which computes it on every device"},
    {"aten::_use_cudnn_", "It asks for cuDNN: torch.nn.functional.ctc_loss computes on every device"},
    {"aten::miopen_", "It calls MIOpen: use the module or function of torch.nn, which computes it on every device"},
    {"aten::_use_miopen_", "It asks for MIOpen: torch.nn.functional.ctc_loss computes on every device"},
    {"aten::_cslt_", "It calls cuSPARSELt, of 2:4 sparse matrices: keep the matrix dense, and use torch.mm"},
    {"aten::_sparse_semi_structured_", "It is CUDA's kernel of 2:4 sparse matrices: keep the matrix dense, and use torch.mm"},
    {"aten::_to_sparse_semi_structured", "It makes CUDA's form of a 2:4 sparse matrix: keep the matrix dense, and use torch.mm"},
    {"aten::_mixed_dtypes_linear",
     "It is CUDA's kernel of packed integer weights: multiply the weight by its scale, and use torch.nn.functional.linear"},
    {"aten::_convert_weight_to_int4pack", "It packs weights in CUDA's order: use torch.ops.aten._convert_weight_to_int4pack_for_cpu"},
    {"aten::_weight_int4pack_mm", "It takes weights in CUDA's order: use torch.ops.aten._weight_int4pack_mm_for_cpu"},
    {"aten::_philox_", "It draws by a key that the caller keeps: use a torch.Generator of the device"},
    {"aten::_scaled_grouped_mm_v2", "Of its ways to scale, rows of float8 are computed by torch._scaled_grouped_mm: use that"},
    {"aten::_scaled_addmm", "It is a product with scales that is added: use torch.nn.functional.scaled_mm and torch.add"},
    {"aten::_scaled_mm_v2", "Products with a scale for each tensor or row are computed by torch._scaled_mm: use that"},
};

}  // namespace

std::string instead_of(const std::string& full_name) {
  for (const auto& [begin, text] : kInstead) {
    if (full_name.compare(0, begin.size(), begin) == 0) return text;
  }
  return "";
}

}  // namespace backplane::fallback
