// kernels/copy.cpp: copies on one device that are no run of bytes, by the chip's own acme_move: any strides, one dtype. contiguous(),
// clone(), copy_() and what they are part of end here; another dtype is left to the core.
#include <backplane/copy.h>

#include "acme.h"

namespace {

struct Copy {
  static bool takes(const at::TensorIteratorBase& iter) { return iter.dtype(0) == iter.dtype(1) && iter.ndim() <= ACME_DIMS; }

  static void run(at::TensorIteratorBase& iter) {
    acme_layout layout{iter.ndim(), {}, {}, {}};
    for (int64_t dim = 0; dim < iter.ndim(); ++dim) {
      layout.sizes[dim] = iter.shape()[dim];
      layout.dst_strides[dim] = iter.strides(0)[dim];
      layout.src_strides[dim] = iter.strides(1)[dim];
    }
    const backplane::NativeLaunch launch(iter.device(0).index(), "acme_move");
    acme_move(reinterpret_cast<acme_queue*>(launch.stream()), iter.data_ptr(0), iter.data_ptr(1),
              static_cast<uint32_t>(iter.element_size(0)), &layout);
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) { backplane::copy<Copy>(m); }
