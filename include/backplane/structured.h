// backplane/structured.h: one kernel, three operators: the functional, out= and in-place forms over ATen's own structured meta class.
//
// ATen's meta class (ATen/ops/<op>_meta.h) determines shape, dtype and strides of the output and makes the same checks as on the CPU. A
// kernel only computes:
//
//   struct Add {
//     using Takes = backplane::NumbersAndBool;
//     static void run(at::TensorIteratorBase& iter, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
//                     const at::Tensor& out);
//   };
//   BACKPLANE_KERNELS(aten, m) {
//     backplane::structured<at::meta::structured_add_Tensor, Add>(m, {"add.Tensor", "add.out", "add_.Tensor"});
//   }
//
// `run` gets the meta object (as its base TensorIteratorBase, if it has one), then ATen's arguments, then, if meta returns one, its
// precomputed struct, and finally the outputs, with the sizes and strides that meta set.
//
// An operator without a meta class is a function with ATen's signature, which allocates its result itself:
//
//   struct Relu {
//     using Takes = backplane::Floats;
//     static at::Tensor run(const at::Tensor& self);
//   };
//   BACKPLANE_KERNELS(aten, m) { backplane::function<Relu>(m, "relu"); }
//
// Note [What a kernel takes]: a call that the kernel does not take is computed by the core's own kernel, if there is one, else by the CPU
// fallback. The kernel takes it if
// - `Kernel::Takes`, a list of dtypes (dtypes.h), contains the dtype of computation: an iterator's common dtype, else the first tensor's;
// - every tensor argument of a function() is on the same device;
// - `static bool Kernel::takes(...)`, called with the arguments of run() except the outputs, returns true;
// - its base class agrees: HostKernel (kernel.h) checks that the driver runs host functions, and that they support the iterator.
// A kernel has Takes, takes, or both. A kernel that calls the vendor's API has no such base, and queries the iterator itself: is_flat(),
// strides, dtypes, and which operand is a number on the host.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <backplane/dtypes.h>
#include <backplane/kernel.h>
#include <backplane/registration.h>
#include <backplane/torch_compat.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace backplane {

// An operator's names in the dispatcher, without "aten::": of its functional, out= and, usually, in-place form.
struct Forms {
  Forms(const char* functional, const char* out, const char* inplace) : functional(functional), out(out), inplace(inplace) {}
  const char* functional;
  const char* out;
  const char* inplace;
};
struct FormsWithoutInplace {
  FormsWithoutInplace(const char* functional, const char* out) : functional(functional), out(out) {}
  const char* functional;
  const char* out;
};

// A new contiguous, or strided, tensor for a kernel to write: undefined content, in memory of the current stream.
at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype, c10::DeviceIndex device);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype, c10::DeviceIndex device);

// Whether a loop over addresses can compute it: all operands are in device memory, have one dtype, and the same order without gaps.
// Otherwise an operand is broadcast, strided, promoted from another dtype, or a number on the host (iter.is_cpu_scalar(i)).
bool is_flat(const at::TensorIteratorBase& iter);

namespace detail {

enum class Form { functional, out, inplace };

// Creates or checks an output by the rules of ATen's generated code. Returns the proxy to compute into instead, if meta requires strides
// that a given output does not have.
std::optional<at::Tensor> prepare_output(Form form, at::Tensor& output, at::IntArrayRef sizes, at::IntArrayRef strides,
                                         const c10::TensorOptions& options, bool exact_strides);
// Throws for an output whose elements share memory. An iterator checks that itself, where it matters; a kernel is queued work, in which an
// error would put the device in error.
void check_overlap(const at::Tensor& output);
void copy_back(const at::Tensor& proxy, const at::Tensor& output);
void check_same_device(const at::Tensor& first, const at::Tensor& other, const char* form);

// Records the dtypes of a kernel's list, for torch_backplane.ops.explain. `name` as in Kernels::impl.
void declare_dtypes(const Kernels& kernels, const char* name, const c10::ScalarType* dtypes, size_t count);

// Records that a kernel runs only if can_run() returns true, for explain and lint. `needs` is a literal, for messages.
void declare_needs(const Kernels& kernels, const char* name, const char* needs, bool (*can_run)());

template <typename Kernel>
void declare(const Kernels& kernels, const char* name) {
  if constexpr (requires { Kernel::can_run(); }) declare_needs(kernels, name, Kernel::kNeeds, &Kernel::can_run);
  if constexpr (requires { std::size(Kernel::Takes::kAll); }) {
    declare_dtypes(kernels, name, Kernel::Takes::kAll, std::size(Kernel::Takes::kAll));
  }
}

// The meta class with outputs: it receives their properties, and creates or checks them.
template <typename Meta, size_t N>
class Operation final : public Meta {
 public:
  Operation() = default;
  Operation(Form form, std::array<at::Tensor, N> outputs) : form_(form), outputs_(std::move(outputs)) {}

  const at::Tensor& maybe_get_output(int64_t index) override { return proxies_[index] ? *proxies_[index] : outputs_[index]; }

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options BACKPLANE_NAMES_PARAMETER) override {
    prepare(index, sizes, strides, options, /*exact=*/true);
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options BACKPLANE_NAMES_PARAMETER) override {
    prepare(index, sizes, strides, options, /*exact=*/false);
  }

  // The outputs for the caller, once the kernel has run on maybe_get_output().
  std::array<at::Tensor, N>& finish() {
    for (size_t i = 0; i < N; ++i) {
      if (C10_UNLIKELY(proxies_[i].has_value())) copy_back(*proxies_[i], outputs_[i]);
    }
    return outputs_;
  }

 private:
  void prepare(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact) {
    proxies_[index] = prepare_output(form_, outputs_[index], sizes, strides, options, exact);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options BACKPLANE_NAMES_ARGUMENT);  // reads maybe_get_output
    } else if (form_ != Form::functional) {
      check_overlap(outputs_[index]);
    }
  }

  Form form_ = Form::functional;
  std::array<at::Tensor, N> outputs_;
  std::array<std::optional<at::Tensor>, N> proxies_;
};

// A meta function's argument type as the dispatcher passes it, and the conversion back.
template <typename T>
struct Argument {
  using Type = T;
  static T to_meta(T value) { return value; }
};
template <>
struct Argument<at::OptionalTensorRef> {
  using Type = const std::optional<at::Tensor>&;
  static at::OptionalTensorRef to_meta(const std::optional<at::Tensor>& value) {
    return value && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
  }
};

// Note [What a kernel takes].
template <typename Kernel>
bool can_run() {
  if constexpr (requires { Kernel::can_run(); }) return Kernel::can_run();
  return true;
}

template <typename Kernel>
bool takes_iterator(const at::TensorIteratorBase& iter) {
  if constexpr (requires { Kernel::can_walk(iter); }) {
    if (!Kernel::can_walk(iter)) return false;
  }
  if constexpr (requires { typename Kernel::Takes; }) return Kernel::Takes::has(iter.common_dtype());
  return true;
}

template <typename Kernel, typename First, typename... Rest>
bool takes_first(const First& first, const Rest&... rest) {
  if constexpr (requires { typename Kernel::Takes; }) {
    if constexpr (std::is_same_v<First, at::Tensor>) {
      return Kernel::Takes::has(first.scalar_type());
    } else {
      return takes_first<Kernel>(rest...);
    }
  }
  return true;
}

template <typename Kernel, typename... All>
bool takes_call(const All&... all) {
  constexpr bool kAsks = requires { Kernel::takes(all...); };
  static_assert(
      kAsks || requires { typename Kernel::Takes; }, "a kernel declares what it takes: a list `Takes`, a function `takes`, or both");
  if constexpr (kAsks) return Kernel::takes(all...);
  return true;
}

// Calls visit(tensor) for every defined tensor among the arguments and in lists among them.
template <typename Visit, typename... All>
void each_tensor(const Visit& visit, const All&... all) {
  const auto one = [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  const auto each = [&](const auto& argument) {
    using T = std::decay_t<decltype(argument)>;
    if constexpr (std::is_same_v<T, at::Tensor>) {
      one(argument);
    } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
      if (argument) one(*argument);
    } else if constexpr (std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef>) {
      for (const at::Tensor& tensor : argument) one(tensor);
    }
  };
  (each(all), ...);
}

// Every tensor that has elements has memory, too. A kernel is queued work, in which a missing address would end the process, or the device.
template <typename... All>
void check_memory(const All&... all) {
  each_tensor([](const at::Tensor& tensor) { check_allocated(tensor); }, all...);
}

// The three forms of one operator as functions for the dispatcher.
template <typename Meta, typename Kernel, typename Outputs, typename MetaFunction>
struct Structured;

template <typename Meta, typename Kernel, size_t... I, typename Precomputed, typename First, typename... Rest>
struct Structured<Meta, Kernel, std::index_sequence<I...>, Precomputed (Meta::*)(First, Rest...)> {
  static constexpr size_t N = sizeof...(I);
  template <size_t>
  using TensorOf = at::Tensor;
  template <size_t>
  using TensorRefOf = at::Tensor&;
  using Values = std::conditional_t<N == 1, at::Tensor, std::tuple<TensorOf<I>...>>;
  using References = std::conditional_t<N == 1, at::Tensor&, std::tuple<TensorRefOf<I>...>>;
  template <typename T>
  using Passed = typename Argument<T>::Type;
  using Op = Operation<Meta, N>;

  inline static const char* functional_name = nullptr;
  inline static const char* out_name = nullptr;
  inline static const char* inplace_name = nullptr;
  inline static std::optional<KernelCounter> counter;

  static Values functional(Passed<First> first, Passed<Rest>... rest) {
    Op op;
    if (!compute(op, first, rest...))
      return Signature<Values(Passed<First>, Passed<Rest>...)>::call_fallback(functional_name, first, rest...);
    std::array<at::Tensor, N>& outputs = op.finish();
    return Values(std::move(outputs[I])...);
  }

  static References out(Passed<First> first, Passed<Rest>... rest, TensorRefOf<I>... outputs) {
    Op op(Form::out, {outputs...});
    if (!compute(op, first, rest...)) {
      return Signature<References(Passed<First>, Passed<Rest>..., TensorRefOf<I>...)>::call_fallback(out_name, first, rest..., outputs...);
    }
    op.finish();
    return References(outputs...);
  }

  static at::Tensor& inplace(at::Tensor& self, Passed<Rest>... rest) {
    Op op(Form::inplace, {self});
    if (!compute(op, self, rest...))
      return Signature<at::Tensor&(at::Tensor&, Passed<Rest>...)>::call_fallback(inplace_name, self, rest...);
    op.finish();
    return self;
  }

 private:
  // False: nothing was computed; the fallback must.
  static bool compute(Op& op, Passed<First> first, Passed<Rest>... rest) {
    if (C10_UNLIKELY(!can_run<Kernel>())) return false;
    if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Meta>) check_devices(first, rest...);  // an iterator checks this itself
    if constexpr (std::is_void_v<Precomputed>) {
      op.meta(Argument<First>::to_meta(first), Argument<Rest>::to_meta(rest)...);
      return run(op, first, rest...);
    } else {
      const auto precomputed = op.meta(Argument<First>::to_meta(first), Argument<Rest>::to_meta(rest)...);
      return run(op, first, rest..., precomputed);
    }
  }

  template <typename... All>
  static bool run(Op& op, const All&... all) {
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      if (!takes_iterator<Kernel>(op)) return false;
    } else {
      if (!takes_first<Kernel>(all...)) return false;
    }
    if (!takes_call<Kernel>(op, all...)) return false;
    check_memory(all..., op.maybe_get_output(I)...);
    counter->count();
    Kernel::run(op, all..., op.maybe_get_output(I)...);
    return true;
  }

  // As ATen's wrappers: every tensor must be on the first one's device.
  template <typename... All>
  static void check_devices(const All&... all) {
    const at::Tensor* first = nullptr;
    const auto check = [&](const at::Tensor& tensor) {
      if (first == nullptr) first = &tensor;
      check_same_device(*first, tensor, functional_name);
    };
    each_tensor(check, all...);
  }
};

// An operator without a meta class as a function for the dispatcher.
template <typename Kernel, typename Run>
struct Function;

template <typename Kernel, typename Return, typename... Parameters>
struct Function<Kernel, Return (*)(Parameters...)> {
  inline static const char* name = nullptr;
  inline static std::optional<KernelCounter> counter;

  static Return call(Parameters... parameters) {
    if (C10_UNLIKELY(!can_run<Kernel>() || !on_one_device(parameters...) || !takes_first<Kernel>(parameters...) ||
                     !takes_call<Kernel>(parameters...))) {
      return Signature<Return(Parameters...)>::call_fallback(name, std::forward<Parameters>(parameters)...);
    }
    check_memory(parameters...);
    counter->count();
    return Kernel::run(std::forward<Parameters>(parameters)...);
  }

 private:
  // If they are not, the fallback computes, or raises torch's own error.
  template <typename... All>
  static bool on_one_device(const All&... all) {
    std::optional<c10::Device> device;
    bool agree = true;
    const auto check = [&](const at::Tensor& tensor) {
      if (!device) device = tensor.device();
      agree = agree && tensor.is_privateuseone() && *device == tensor.device() && tensor.layout() == c10::kStrided;
    };
    each_tensor(check, all...);
    return agree;
  }
};

}  // namespace detail

// Registers Kernel::run, with the operator's own signature, as "relu" or "where.self". Its calls are counted under that name, and in a
// vendor's namespace under "vendor::name".
template <typename Kernel>
void function(Kernels& kernels, const char* name) {
  using Entry = detail::Function<Kernel, decltype(&Kernel::run)>;
  Entry::name = kernels.full_name(name);
  Entry::counter.emplace(Entry::name);
  kernels.impl(name, &Entry::call);
  detail::declare<Kernel>(kernels, name);
}

// Registers Kernel for an operator's forms. Meta: at::meta::structured_<op>[_<overload>]; N: the number of tensors that the operator
// returns.
template <typename Meta, typename Kernel, size_t N = 1>
void structured(Kernels& kernels, const FormsWithoutInplace& forms) {
  using Entry = detail::Structured<Meta, Kernel, std::make_index_sequence<N>, decltype(&Meta::meta)>;
  Entry::functional_name = forms.functional;
  Entry::out_name = forms.out;
  Entry::counter.emplace(forms.functional);
  kernels.impl(forms.functional, &Entry::functional);
  kernels.impl(forms.out, &Entry::out);
  detail::declare<Kernel>(kernels, forms.functional);
  detail::declare<Kernel>(kernels, forms.out);
}

template <typename Meta, typename Kernel>
void structured(Kernels& kernels, const Forms& forms) {
  using Entry = detail::Structured<Meta, Kernel, std::make_index_sequence<1>, decltype(&Meta::meta)>;
  structured<Meta, Kernel>(kernels, FormsWithoutInplace(forms.functional, forms.out));
  Entry::inplace_name = forms.inplace;
  kernels.impl(forms.inplace, &Entry::inplace);
  detail::declare<Kernel>(kernels, forms.inplace);
}

}  // namespace backplane
