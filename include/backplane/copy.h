// backplane/copy.h: the device's own kernel for copies on one device that are not one run of bytes: other strides, another dtype.
//
//   struct Copy {
//     static bool takes(const at::TensorIteratorBase& iter) { return iter.dtype(0) == iter.dtype(1); }
//     static void run(at::TensorIteratorBase& iter);  // operand 0 = operand 1, queued on the device's current stream
//   };
//   BACKPLANE_KERNELS(aten, m) { backplane::copy<Copy>(m); }
//
// copy_, contiguous, clone and what is built on them use it, also the device's side of a strided copy from or to the host. The iterator has
// an output and an input of equal sizes and of any real or complex dtypes, which do not overlap; its dimensions are merged where possible.
// The operands have the same conj and neg bits, or none: their values can be copied as they are. The core makes the copies that the kernel
// does not support: with host functions, or if the driver has none, through the host.
//
// As in structured.h a kernel may have `Takes` (both operands' dtypes), `takes`, and the base HostKernel. At most one per backend.
#pragma once

#include <ATen/TensorIterator.h>
#include <backplane/kernel.h>
#include <backplane/structured.h>

#include <optional>

namespace backplane {

namespace detail {

// False: nothing was queued. `site`: for the error if a second kernel is registered.
void set_copy_kernel(const Site& site, bool (*copy)(at::TensorIteratorBase& iter));

template <typename Kernel>
struct Copy {
  inline static std::optional<KernelCounter> counter;

  static bool run(at::TensorIteratorBase& iter) {
    if (!can_run<Kernel>()) return false;
    if constexpr (requires { Kernel::can_walk(iter); }) {
      if (!Kernel::can_walk(iter)) return false;
    }
    if constexpr (requires { typename Kernel::Takes; }) {
      if (!Kernel::Takes::has(iter.dtype(0)) || !Kernel::Takes::has(iter.dtype(1))) return false;
    }
    if (!takes_call<Kernel>(iter)) return false;
    counter->count();
    Kernel::run(iter);
    return true;
  }
};

}  // namespace detail

// Registers Kernel; its calls are counted as "copy_".
template <typename Kernel>
void copy(const Kernels& kernels) {
  using Entry = detail::Copy<Kernel>;
  Entry::counter.emplace("copy_");
  detail::set_copy_kernel(kernels.site(), &Entry::run);
}

}  // namespace backplane
