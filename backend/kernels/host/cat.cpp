// kernels/host/cat.cpp: cat of tensors of one dtype, any dtype, any strides; mixed dtypes are left to the CPU fallback.
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat_meta.h>
#include <backplane/structured.h>
#include <c10/util/accumulate.h>

#include <cstring>

namespace {

using backplane::DeviceMemory;
using Precomputed = at::meta::structured_cat::meta_return_ty;

// An empty vector is left out, whatever the others' shapes.
bool is_skipped(const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

struct Piece {
  uint64_t address;
  size_t bytes;  // for each index of the dimensions before dim
};

struct Cat : backplane::HostKernel {
  static bool takes(const at::impl::MetaBase&, const at::ITensorListRef& tensors, int64_t, const Precomputed& precomputed) {
    const c10::Device device = (*tensors.begin()).device();
    for (const at::Tensor& tensor : tensors) {
      if (tensor.device() != device || tensor.layout() != c10::kStrided) return false;
    }
    return precomputed.all_same_dtype && device.type() == c10::DeviceType::PrivateUse1;
  }

  static void run(const at::impl::MetaBase&, const at::ITensorListRef& tensors, int64_t, const Precomputed& precomputed,
                  const at::Tensor& out) {
    if (out.numel() == 0) return;
    const auto dim = static_cast<int64_t>(precomputed.dim);
    if (out.scalar_type() != (*tensors.begin()).scalar_type() || !out.is_contiguous()) return copy_each(tensors, dim, out);
    const at::IntArrayRef sizes = out.sizes();
    const int64_t outer = c10::multiply_integers(sizes.begin(), sizes.begin() + dim);
    c10::SmallVector<Piece, 8> pieces;
    for (const at::Tensor& tensor : tensors) {
      if (is_skipped(tensor) || tensor.numel() == 0) continue;
      if (!tensor.is_contiguous()) return copy_each(tensors, dim, out);
      pieces.push_back({backplane::const_device_ptr<char>(tensor).address, tensor.nbytes() / outer});
    }
    backplane::launch(out.device().index(), [pieces, outer, to = backplane::device_ptr<char>(out).address](const DeviceMemory& memory) {
      c10::SmallVector<const char*, 8> from;
      for (const Piece& piece : pieces) from.push_back(static_cast<const char*>(memory.at(piece.address)));
      char* target = static_cast<char*>(memory.at(to));
      for (int64_t i = 0; i < outer; ++i) {
        for (size_t p = 0; p < pieces.size(); ++p) {
          std::memcpy(target, from[p] + i * pieces[p].bytes, pieces[p].bytes);
          target += pieces[p].bytes;
        }
      }
    });
  }

 private:
  // The device's own copy knows all strides.
  static void copy_each(const at::ITensorListRef& tensors, int64_t dim, const at::Tensor& out) {
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
      if (is_skipped(tensor)) continue;
      out.narrow(dim, begin, tensor.size(dim)).copy_(tensor);
      begin += tensor.size(dim);
    }
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) { backplane::structured<at::meta::structured_cat, Cat>(m, {"cat", "cat.out"}); }
