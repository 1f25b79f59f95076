// backplane/registration.h: registers C++ functions as the device's kernels of existing operators, at load time.
//
//   BACKPLANE_KERNELS(aten, m) {
//     m.impl("sigmoid_backward", &sigmoid_backward);
//   }
//
// It is torch's TORCH_LIBRARY_IMPL(aten, PrivateUse1, m), which works as well, with two differences. An operator that this torch does not
// have, or that has another signature, makes the import of the package fail with the line that registers it, instead of being ignored or
// ending the process. And it does not include torch/library.h, which dominates a small kernel's compile time: the core compiles once what
// the dispatcher requires of a signature (dispatch/signatures.cpp). A signature that is not there is an error of the linker, "undefined
// reference to backplane::detail::Signature<at::Tensor (...)>::...": include <backplane/signature.h> in that file.
//
// A vendor's own operators are defined with backplane/library.h, or in Python; the block then names the module, which is imported with the
// package:
//
//   BACKPLANE_KERNELS(vendor, m) {
//     m.python_module("vendor.ops");
//     m.impl("swiglu", &swiglu);
//   }
#pragma once

#include <cstdint>

namespace torch {
class Library;
}

namespace backplane {

class Kernels;

// Computes a call that a kernel of m.impl() does not support: with the core's own kernel if there is one, else the fallback. `name` as in
// impl(), with its namespace unless that is aten.
//
//   if (!is_mine(self)) return backplane::call_fallback<at::Tensor(const at::Tensor&)>("relu", self);
template <typename Function, typename... Arguments>
decltype(auto) call_fallback(const char* name, Arguments&&... arguments);

namespace detail {

// What the dispatcher requires of a C++ signature. Defined in backplane/signature.h.
template <typename Function>
struct Signature;
template <typename Return, typename... Arguments>
struct Signature<Return(Arguments...)> {
  static void impl(const Kernels& kernels, const char* name, Return (*function)(Arguments...));
  static Return call_fallback(const char* name, Arguments... arguments);  // "add.Tensor" of aten, "vendor::op"
};

// The source location of a block of registrations, and its namespace.
struct Site {
  const char* name_space;
  const char* file;
  uint32_t line;
};

// One BACKPLANE_KERNELS or BACKPLANE_IMPL block. Runs it at once; an exception is kept for registration_errors().
class Registration {
 public:
  Registration(const Site& site, const char* key, void (*block)(Kernels&));
};

}  // namespace detail

template <typename Function, typename... Arguments>
decltype(auto) call_fallback(const char* name, Arguments&&... arguments) {
  return detail::Signature<Function>::call_fallback(name, static_cast<Arguments&&>(arguments)...);
}

// The kernels of one namespace for one dispatch key, while a block runs.
class Kernels {
 public:
  Kernels(const detail::Site& site, const char* key);  // throws for a key that this torch does not have
  Kernels(const Kernels&) = delete;

  // The module that defines those operators of this block that C++ does not define: it is imported with the package.
  void python_module(const char* name);

  // Name: "add.Tensor", without the namespace. Throws for an operator that does not exist, has another signature, or has such a kernel
  // already. An operator of a vendor's namespace may be defined later, until the package has been imported.
  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    check(name);
    detail::Signature<Return(Arguments...)>::impl(*this, name, function);
  }

  const char* name_space() const { return site_.name_space; }
  const char* key() const { return key_; }
  const detail::Site& site() const { return site_; }

  // The name under which kernels are counted and use the fallback: "add.Tensor" of aten, else "vendor::op". It lives as long as the
  // process.
  const char* full_name(const char* name) const;

  // For registrations that do not use impl().
  void check(const char* name) const;
  torch::Library& library() { return library_; }

 private:
  const detail::Site site_;
  const char* const key_;
  const char* python_module_ = nullptr;
  torch::Library& library_;  // lives as long as the process: destroying it removes its kernels
};

}  // namespace backplane

#define BACKPLANE_KERNELS(name_space, m) BACKPLANE_IMPL(name_space, PrivateUse1, m)
// For any key: CPU, the reference; Autograd; AutocastPrivateUse1; Meta ...
#define BACKPLANE_IMPL(name_space, key, m) \
  BACKPLANE_BLOCK(Registration, Kernels, m, BACKPLANE_CONCAT(backplane_block_, __COUNTER__), #name_space, #key)
#define BACKPLANE_BLOCK(Run, Argument, m, block, name_space, ...)                                  \
  static void block(backplane::Argument&);                                                         \
  static const backplane::detail::Run BACKPLANE_CONCAT(block, _run)(                               \
      backplane::detail::Site{name_space, __FILE__, __LINE__} __VA_OPT__(, ) __VA_ARGS__, &block); \
  static void block(backplane::Argument& m)
#define BACKPLANE_CONCAT(a, b) BACKPLANE_CONCAT_(a, b)
#define BACKPLANE_CONCAT_(a, b) a##b
