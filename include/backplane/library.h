// backplane/library.h: defines a vendor's own operators, with their kernels, gradient and autocast rule.
//
//   BACKPLANE_LIBRARY(vendor, m) {
//     m.python_module("vendor.ops");  // its fakes; imported with the package
//     m.def("swiglu(Tensor x) -> Tensor")
//         .kernel(&swiglu)            // the device's
//         .reference(&swiglu_cpu)     // the CPU's: tests compare with it, and the fallback calls it
//         .backward("swiglu_backward")  // include <backplane/autograd.h>
//         .autocast(backplane::Cast::lower_precision);
//     m.def("swiglu_backward(Tensor grad, Tensor x) -> Tensor").kernel(&swiglu_backward).reference(&swiglu_backward_cpu);
//   }
//
// Several blocks, in several files and libraries, may define operators of one namespace. Kernels may also be registered elsewhere, before
// or after: BACKPLANE_KERNELS(vendor, m), BACKPLANE_IMPL(vendor, CPU, m). Errors (in a schema, an operator that is defined twice, another
// signature) make the import of the package fail with the line of the block.
#pragma once

#include <ATen/core/enum_tag.h>
#include <backplane/registration.h>

#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace backplane {

// What the device's autocast does with an operator's floating-point tensors, float64 excepted.
enum class Cast : uint8_t {
  lower_precision,  // to the region's dtype, as for matmul
  float32,          // as for softmax
  promote,          // to the widest among them, as for cat
};

class Definitions;

// An operator that has been defined, while its BACKPLANE_LIBRARY block runs.
class Operator {
 public:
  Operator(Definitions& definitions, std::string name) : definitions_(definitions), name_(std::move(name)) {}

  template <typename Return, typename... Arguments>
  Operator& kernel(Return (*function)(Arguments...)) {
    return impl("PrivateUse1", function);
  }
  template <typename Return, typename... Arguments>
  Operator& reference(Return (*function)(Arguments...)) {
    return impl("CPU", function);
  }
  // For any dispatch key.
  template <typename Return, typename... Arguments>
  Operator& impl(const char* key, Return (*function)(Arguments...));

  Operator& autocast(Cast cast);

  // The gradient, on every device that has a kernel. Both functions are in <backplane/autograd.h>, which adds some seconds to the
  // compilation of a file: another operator, or a class derived from torch::autograd::Function.
  Operator& backward(const char* operator_name);
  template <typename Function>
  Operator& autograd();

  const std::string& name() const { return name_; }  // "swiglu", "swiglu.out"
  Kernels& kernels(const char* key);
  void at_end(std::function<void()> check);  // runs at the end of the block, when all of its operators are defined

 private:
  Definitions& definitions_;
  std::string name_;
};

// The operators of one namespace, while a block runs.
class Definitions {
 public:
  explicit Definitions(const detail::Site& site);
  Definitions(const Definitions&) = delete;

  // The module with the fakes, and whatever else Python adds to the operators that are defined below this line. torch lets no other module
  // register them, and names this one if a fake is missing; it is imported with the package.
  void python_module(const char* name);

  // Schema: "swiglu(Tensor x) -> Tensor", without the namespace. Throws if torch cannot parse it, or has such an operator.
  Operator def(const char* schema, std::initializer_list<at::Tag> tags = {});

  void finish();  // once, after the block

 private:
  friend class Operator;
  const detail::Site site_;
  torch::Library& library_;                              // lives as long as the process
  std::deque<std::pair<std::string, Kernels>> kernels_;  // by key
  std::vector<std::function<void()>> at_end_;
};

template <typename Return, typename... Arguments>
Operator& Operator::impl(const char* key, Return (*function)(Arguments...)) {
  kernels(key).impl(name_.c_str(), function);
  return *this;
}

namespace detail {

// One BACKPLANE_LIBRARY block. Runs it at once; an exception is kept for the import of the package.
class LibraryBlock {
 public:
  LibraryBlock(const Site& site, void (*block)(Definitions&));
};

}  // namespace detail

}  // namespace backplane

#define BACKPLANE_LIBRARY(name_space, m) \
  BACKPLANE_BLOCK(LibraryBlock, Definitions, m, BACKPLANE_CONCAT(backplane_block_, __COUNTER__), #name_space)
