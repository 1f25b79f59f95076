// backplane/registration.h: registers C++ functions as the device's kernels of existing operators, at load time.
//
//   BACKPLANE_KERNELS(aten, m) {
//     m.impl("sigmoid_backward", &sigmoid_backward);
//   }
//
// It is torch's TORCH_LIBRARY_IMPL(aten, PrivateUse1, m), which works as well, with two differences. An operator that this torch does not
// have, or whose signature is another, makes the import of the package fail with the line that registers it, instead of passing in silence
// or ending the process. And it does not include torch/library.h, which is most of a small kernel's build time: what the dispatcher needs
// of a signature is compiled once, in the core (aten/signatures.cpp). A signature that is not there is an error of the linker, "undefined
// reference to backplane::detail::Signature<at::Tensor (...)>::...": include <backplane/signature.h> in that file.
#pragma once

#include <cstdint>

namespace torch {
class Library;
}

namespace backplane {

class Kernels;

namespace detail {

// What the dispatcher needs of a C++ signature. Defined in backplane/signature.h.
template <typename Function>
struct Signature;
template <typename Return, typename... Arguments>
struct Signature<Return(Arguments...)> {
  static void impl(torch::Library& library, const char* name, Return (*function)(Arguments...));
  static Return call_fallback(const char* name, Arguments... arguments);  // "add.Tensor" of aten, "vendor::op"
};

// One BACKPLANE_KERNELS block. Runs it at once; an exception is kept for registration_errors().
class Registration {
 public:
  Registration(const char* name_space, void (*block)(Kernels&), const char* file, uint32_t line);
};

}  // namespace detail

// The kernels of one namespace for the device, while a BACKPLANE_KERNELS block runs.
class Kernels {
 public:
  Kernels(torch::Library& library, const char* name_space) : library_(library), name_space_(name_space) {}
  Kernels(const Kernels&) = delete;

  // Name: "add.Tensor", without the namespace. Throws for an operator that does not exist or has another signature.
  template <typename Return, typename... Arguments>
  void impl(const char* name, Return (*function)(Arguments...)) {
    check(name);
    detail::Signature<Return(Arguments...)>::impl(library_, name, function);
  }

  const char* name_space() const { return name_space_; }

 private:
  void check(const char* name) const;

  torch::Library& library_;
  const char* name_space_;
};

}  // namespace backplane

#define BACKPLANE_KERNELS(name_space, m) BACKPLANE_KERNELS_BLOCK(name_space, m, BACKPLANE_CONCAT(backplane_kernels_, __COUNTER__))
#define BACKPLANE_KERNELS_BLOCK(name_space, m, block)                                                                           \
  static void block(backplane::Kernels&);                                                                                       \
  static const backplane::detail::Registration BACKPLANE_CONCAT(block, _registration)(#name_space, &block, __FILE__, __LINE__); \
  static void block(backplane::Kernels& m)
#define BACKPLANE_CONCAT(a, b) BACKPLANE_CONCAT_(a, b)
#define BACKPLANE_CONCAT_(a, b) a##b
