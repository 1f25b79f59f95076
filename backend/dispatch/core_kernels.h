// dispatch/core_kernels.h: registers the core's own kernels of aten.
//
//   BACKPLANE_CORE_KERNELS(PrivateUse1, m) { m.impl("view", &view); }
//
// As BACKPLANE_KERNELS (backplane/registration.h), but for any C++ signature; a vendor's kernel of the same operator replaces it, with
// torch's usual warning. Default kernels, which are replaced without a warning: dispatch/defaults.h.
#pragma once

#include <backplane/registration.h>
#include <backplane/signature.h>

namespace backplane {

class CoreKernels : public Kernels {
 public:
  using Kernels::Kernels;

  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    detail::register_kernel(*this, name, detail::typed_kernel(function));
  }
  // `function`: takes the operator's handle and the stack, optionally with the dispatch keys between them.
  template <auto* function>
  void impl_boxed(const char* name) {
    add_boxed(name, c10::BoxedKernel::makeFromFunction<function>());
  }
  void add_boxed(const char* name, c10::BoxedKernel kernel);
};

namespace detail {

// Runs one BACKPLANE_CORE_KERNELS block at once; an exception is kept for registration_errors().
class CoreRegistration {
 public:
  CoreRegistration(const Site& site, const char* key, void (*block)(CoreKernels&));
};

}  // namespace detail
}  // namespace backplane

#define BACKPLANE_CORE_KERNELS(key, m) \
  BACKPLANE_BLOCK(CoreRegistration, CoreKernels, m, BACKPLANE_CONCAT(backplane_block_, __COUNTER__), "aten", #key)
