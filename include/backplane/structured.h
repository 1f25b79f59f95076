// backplane/structured.h: one kernel, three operators: the functional, out= and in-place forms over ATen's own structured meta class.
//
// ATen's meta class (ATen/ops/<op>_meta.h) computes shape, dtype and strides of the output and makes every check that the CPU makes. A
// kernel only computes:
//
//   struct Add {
//     static bool takes(at::TensorIteratorBase& iter, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);
//     static void run(at::TensorIteratorBase& iter, const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
//                     const at::Tensor& out);
//   };
//   BACKPLANE_KERNELS(aten, m) {
//     backplane::structured<at::meta::structured_add_Tensor, Add>(m, {"add.Tensor", "add.out", "add_.Tensor"});
//   }
//
// `takes` and `run` get the meta object (by its base TensorIteratorBase, where it has one), then ATen's arguments, then, where meta returns
// one, its precomputed struct; `run` finally gets the outputs, in the sizes and strides that meta asked for. What `takes` refuses, and
// everything where the driver does not run host functions, goes to the CPU fallback.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <backplane/kernel.h>
#include <backplane/registration.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace backplane {

// Names in the dispatcher, without "aten::". A form that an operator lacks is NULL.
struct Forms {
  const char* functional;
  const char* out;
  const char* inplace = nullptr;
};

namespace detail {

// The rules of ATen's generated code for a pre-supplied output (aten/structured.cpp).
at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options);
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const c10::TensorOptions& options);
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const c10::TensorOptions& options);
std::optional<at::Tensor> make_proxy(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                                     const c10::TensorOptions& options);
void check_same_device(const at::Tensor& first, const at::Tensor& other, const char* form);

// torch before 2.13 passes the dimensions' names along; they are always empty here.
#if __has_include(<ATen/core/Dimname.h>)
#define BACKPLANE_NAMES_PARAMETER , at::DimnameList
#define BACKPLANE_NAMES_ARGUMENT , at::DimnameList()
#else
#define BACKPLANE_NAMES_PARAMETER
#define BACKPLANE_NAMES_ARGUMENT
#endif

enum class Form { functional, out, inplace };

// The meta class with outputs: it learns what they must be, and makes or checks them.
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

  // What the caller sees, once the kernel has run on maybe_get_output().
  std::array<at::Tensor, N>& finish() {
    for (size_t i = 0; i < N; ++i) {
      if (proxies_[i]) outputs_[i].copy_(*proxies_[i]);
    }
    return outputs_;
  }

 private:
  void prepare(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact) {
    at::Tensor& output = outputs_[index];
    switch (form_) {
      case Form::functional:
        output = make_output(sizes, strides, options);
        break;
      case Form::out:
        resize_out(output, sizes, strides, options);
        break;
      case Form::inplace:
        check_inplace(output, sizes, options);
        break;
    }
    if (exact && form_ != Form::functional) proxies_[index] = make_proxy(output, sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      at::TensorIteratorBase::set_output_raw_strided(index, sizes, strides, options BACKPLANE_NAMES_ARGUMENT);  // reads maybe_get_output
    }
  }

  Form form_ = Form::functional;
  std::array<at::Tensor, N> outputs_;
  std::array<std::optional<at::Tensor>, N> proxies_;
};

#undef BACKPLANE_NAMES_PARAMETER
#undef BACKPLANE_NAMES_ARGUMENT

// A meta function's argument type as the dispatcher passes it, and back again.
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

  inline static Forms forms{};
  inline static std::optional<KernelCounter> counter;

  static Values functional(Passed<First> first, Passed<Rest>... rest) {
    Op op;
    if (!compute(op, first, rest...))
      return Signature<Values(Passed<First>, Passed<Rest>...)>::call_fallback(forms.functional, first, rest...);
    std::array<at::Tensor, N>& outputs = op.finish();
    return Values(std::move(outputs[I])...);
  }

  static References out(Passed<First> first, Passed<Rest>... rest, TensorRefOf<I>... outputs) {
    Op op(Form::out, {outputs...});
    if (!compute(op, first, rest...)) {
      return Signature<References(Passed<First>, Passed<Rest>..., TensorRefOf<I>...)>::call_fallback(forms.out, first, rest..., outputs...);
    }
    op.finish();
    return References(outputs...);
  }

  static at::Tensor& inplace(at::Tensor& self, Passed<Rest>... rest) {
    Op op(Form::inplace, {self});
    if (!compute(op, self, rest...))
      return Signature<at::Tensor&(at::Tensor&, Passed<Rest>...)>::call_fallback(forms.inplace, self, rest...);
    op.finish();
    return self;
  }

 private:
  // False: nothing was computed, the fallback shall.
  static bool compute(Op& op, Passed<First> first, Passed<Rest>... rest) {
    if (C10_UNLIKELY(!can_launch())) return false;
    if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Meta>) check_devices(first, rest...);  // an iterator checks for itself
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
    if (!Kernel::takes(op, all...)) return false;
    counter->count();
    Kernel::run(op, all..., op.maybe_get_output(I)...);
    return true;
  }

  // As ATen's wrappers do: every tensor on the first one's device.
  template <typename... All>
  static void check_devices(const All&... all) {
    const at::Tensor* first = nullptr;
    const auto check = [&first](const auto& argument) {
      if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, at::Tensor>) {
        if (!argument.defined()) return;
        if (first == nullptr) first = &argument;
        check_same_device(*first, argument, forms.functional);
      }
    };
    (check(all), ...);
  }
};

}  // namespace detail

// Registers Kernel under an operator's forms. Meta: at::meta::structured_<op>[_<overload>]; N: how many tensors the operator returns.
template <typename Meta, typename Kernel, size_t N = 1>
void structured(Kernels& kernels, const Forms& forms) {
  using Entry = detail::Structured<Meta, Kernel, std::make_index_sequence<N>, decltype(&Meta::meta)>;
  Entry::forms = forms;
  Entry::counter.emplace(forms.functional);
  kernels.impl(forms.functional, &Entry::functional);
  if (forms.out != nullptr) kernels.impl(forms.out, &Entry::out);
  if constexpr (N == 1) {
    if (forms.inplace != nullptr) kernels.impl(forms.inplace, &Entry::inplace);
  }
}

}  // namespace backplane
