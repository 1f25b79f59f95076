// backplane/registration.h: registers C++ functions as the device's kernels of existing operators, at load time.
//
//   BACKPLANE_KERNELS(aten, m) {
//     m.impl("sigmoid_backward", &sigmoid_backward);
//   }
//
// It is torch's TORCH_LIBRARY_IMPL(aten, PrivateUse1, m), which works as well, with two differences. An operator that this torch does not
// have, or whose signature is another, makes the import of the package fail with the line that registers it, instead of passing in silence
// or ending the process. And it does not include torch/library.h, which is most of a small kernel's build time: what the dispatcher needs
// of a signature is compiled once, in the core (dispatch/signatures.cpp). A signature that is not there is an error of the linker,
// "undefined reference to backplane::detail::Signature<at::Tensor (...)>::...": include <backplane/signature.h> in that file.
//
// Operators of one's own are defined by backplane/library.h, or in Python; the block then names the module, which the import of the package
// imports:
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

// What computes a call that a kernel of m.impl() does not take: the core's own kernel where there is one, else the fallback. `name` as in
// impl(), with its namespace unless that is aten.
//
//   if (!is_mine(self)) return backplane::call_fallback<at::Tensor(const at::Tensor&)>("relu", self);
template <typename Function, typename... Arguments>
decltype(auto) call_fallback(const char* name, Arguments&&... arguments);

namespace detail {

// What the dispatcher needs of a C++ signature. Defined in backplane/signature.h.
template <typename Function>
struct Signature;
template <typename Return, typename... Arguments>
struct Signature<Return(Arguments...)> {
  static void impl(const Kernels& kernels, const char* name, Return (*function)(Arguments...));
  static Return call_fallback(const char* name, Arguments... arguments);  // "add.Tensor" of aten, "vendor::op"
};

// Where a block of registrations is written, and of what it registers.
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

  // What defines those operators of this block that C++ does not define: it is imported with the package.
  void python_module(const char* name);

  // Name: "add.Tensor", without the namespace. Throws for an operator that does not exist, has another signature, or has such a kernel
  // already. One of a vendor's namespace may be defined later, until the package has been imported.
  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    check(name);
    detail::Signature<Return(Arguments...)>::impl(*this, name, function);
  }

  const char* name_space() const { return site_.name_space; }
  const char* key() const { return key_; }
  const detail::Site& site() const { return site_; }

  // As kernels are counted and fall back under: "add.Tensor" of aten, else "vendor::op". It lives as long as the process.
  const char* full_name(const char* name) const;

  // For what registers in another way than impl().
  void check(const char* name) const;
  torch::Library& library() { return library_; }

 private:
  const detail::Site site_;
  const char* const key_;
  const char* python_module_ = nullptr;
  torch::Library& library_;  // lives as long as the process: one that goes takes its kernels along
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
