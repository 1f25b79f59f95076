// backplane/library.h: defines operators of a vendor's own, with their kernels, their gradient and their rule under autocast.
//
//   BACKPLANE_LIBRARY(vendor, m) {
//     m.python_module("vendor.ops");  // its fakes: the import of the package imports it
//     m.def("swiglu(Tensor x) -> Tensor")
//         .kernel(&swiglu)            // the device's
//         .reference(&swiglu_cpu)     // the CPU's: what tests compare with, and what the fallback calls
//         .backward("swiglu_backward")  // include <backplane/autograd.h>
//         .autocast(backplane::Cast::lower_precision);
//     m.def("swiglu_backward(Tensor grad, Tensor x) -> Tensor").kernel(&swiglu_backward).reference(&swiglu_backward_cpu);
//   }
//
// Several blocks, in several files and libraries, may define operators of one namespace. Kernels may also stand elsewhere, before or after:
// BACKPLANE_KERNELS(vendor, m), BACKPLANE_IMPL(vendor, CPU, m). What is wrong (a schema, an operator defined twice, another signature)
// makes the import of the package fail with the line of the block.
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

// What autocast of the device does with an operator's floating-point tensors, float64 excepted.
enum class Cast : uint8_t {
  lower_precision,  // to the region's dtype, as matmul's
  float32,          // as softmax's
  promote,          // to the widest among them, as cat's
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

  // The gradient, on every device that has a kernel. Both are in <backplane/autograd.h>, which costs a file some seconds of building: by
  // another operator, or by a class derived from torch::autograd::Function.
  Operator& backward(const char* operator_name);
  template <typename Function>
  Operator& autograd();

  const std::string& name() const { return name_; }  // "swiglu", "swiglu.out"
  Kernels& kernels(const char* key);
  void at_end(std::function<void()> check);  // of the block, when all of its operators are defined

 private:
  Definitions& definitions_;
  std::string name_;
};

// The operators of one namespace, while a block runs.
class Definitions {
 public:
  explicit Definitions(const detail::Site& site);
  Definitions(const Definitions&) = delete;

  // Where the fakes and whatever else Python adds to the operators defined below this line are. torch lets no other module register them,
  // and names this one where a fake is missing; the import of the package imports it.
  void python_module(const char* name);

  // Schema: "swiglu(Tensor x) -> Tensor", without the namespace. Throws where torch cannot read it, or has such an operator.
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
