// kernels/portable/pointwise.cpp: the operators of the tables as kernels: finds an operator's forms, reads the call, builds the iterator.
#include "kernels/portable/pointwise.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/scalar_tensor.h>
#include <backplane/signature.h>
#include <backplane/structured.h>
#include <backplane/torch_compat.h>
#include <c10/core/Scalar.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/defaults.h"
#include "kernels/portable/call.h"
#include "kernels/portable/dialect.h"

namespace backplane::portable {
namespace pointwise_impl {
namespace {

// What an argument of the schema is to the kernel.
enum class Role : uint8_t { operand, number, text, output };

// Whether a finite number is none of that dtype.
bool is_beyond(double number, c10::ScalarType dtype) {
  const double most = dtype == c10::kHalf ? 65504.0 : dtype == c10::kDouble ? std::numeric_limits<double>::max() : 3.3895e38;
  return std::isfinite(number) && std::abs(number) > most;
}

uint8_t category(c10::ScalarType dtype) {
  if (dtype == c10::kBool) return kBool;
  if (is_float8(dtype)) return kFloat8;
  return c10::isReducedFloatingType(dtype) ? kHalves : c10::isFloatingType(dtype) ? kWide : kIntegers;
}

at::Tensor empty_part(const at::Tensor& of) { return empty(of.sizes(), c10::toRealValueType(of.scalar_type()), of.device().index()); }

// Whether its dimensions have names, which torch 2.13 has no longer.
template <typename Impl>
bool has_names(const Impl& tensor) {
  if constexpr (requires { tensor.has_named_tensor_meta(); }) return tensor.has_named_tensor_meta();
  return false;
}

// Of all tables, whatever the order of their initialisers.
std::vector<Pointwise>& lines() {
  static auto& instance = *new std::vector<Pointwise>;
  return instance;
}

std::vector<ComplexPointwise>& complex_lines() {
  static auto& instance = *new std::vector<ComplexPointwise>;
  return instance;
}

std::optional<ComplexPointwise> complex_line(std::string_view name) {
  for (const ComplexPointwise& line : complex_lines()) {
    if (line.name == name) return line;
  }
  return std::nullopt;
}

// An operator of a table: what its forms share.
struct Operator {
  explicit Operator(const Pointwise& line) : line(line), complex(complex_line(line.name)), counter(portable_counter(line.name)) {}
  const Pointwise line;
  const std::optional<ComplexPointwise> complex;
  KernelCounter& counter;
  KernelSlots slots;
};

enum class FormKind : uint8_t { functional, out, inplace };

// As at::TensorIterator, which asks the dispatcher for a new output: this one asks the allocator.
class Iterator final : public at::TensorIteratorBase {
 public:
  const at::Tensor& maybe_get_output(int64_t index) override { return operands_[static_cast<size_t>(index)].tensor(); }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options BACKPLANE_NAMES_PARAMETER) override {
    at::OperandInfo& operand = operands_[static_cast<size_t>(index)];
    const bool is_given = operand.tensor_base().defined();
    if (is_given && !operand.will_resize) return;
    at::Tensor output = operand.tensor();
    detail::prepare_output(is_given ? detail::Form::out : detail::Form::functional, output, sizes, strides, options, false);
    if (is_given) return;
    operand.tensor(c10::MaybeOwned<at::TensorBase>::owned(std::move(output)));
    operand.current_dtype = operand.target_dtype;
  }
};

// The roles of a form's arguments; throws for a schema that these kernels cannot serve.
std::vector<Role> roles_of(const c10::FunctionSchema& schema) {
  std::vector<Role> roles;
  for (const c10::Argument& argument : schema.arguments()) {
    c10::TypePtr type = argument.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        roles.push_back(argument.is_out() ? Role::output : Role::operand);
        break;
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::IntType:
      case c10::TypeKind::BoolType:
        roles.push_back(Role::number);
        break;
      case c10::TypeKind::StringType:
        roles.push_back(Role::text);
        break;
      default:
        TORCH_CHECK(false, "a pointwise table cannot serve ", schema, ": it has an argument of type ", type->str());
    }
  }
  return roles;
}

// The arguments of a call.
struct Call {
  c10::SmallVector<const at::Tensor*, kMostOperands> inputs;
  c10::SmallVector<c10::Scalar, kMostScalars> numbers;
  const at::Tensor* output = nullptr;
  CallOptions options;
  std::array<at::Tensor, kMostOperands> moved;  // where inputs point to numbers of the host that had to come to the device
};

// One form of an operator.
class Form {
 public:
  Form(std::shared_ptr<Operator> shared, FormKind kind, const c10::FunctionSchema& schema)
      : operator_(std::move(shared)), kind_(kind), roles_(roles_of(schema)) {}

  size_t arguments() const { return roles_.size(); }

  // These are false where the call is none of this kernel's: nothing was computed then.
  bool compute(const c10::IValue* values, at::Tensor& result) const {
    Call call;
    return read(values, call) && compute(call, result);
  }
  // Of arguments which are all there, tensors first.
  bool compute(std::initializer_list<const at::Tensor*> tensors, const c10::Scalar* number, at::Tensor& result) const {
    Call call;
    for (const at::Tensor* tensor : tensors) {
      if (!add_tensor(*tensor, call)) return false;
    }
    if (number != nullptr) call.numbers.push_back(*number);
    call.options.given = (1u << arguments()) - 1;
    if (kind_ == FormKind::inplace) call.output = *tensors.begin();
    return compute(call, result);
  }

 private:
  bool read(const c10::IValue* values, Call& call) const {
    uint32_t bit = 1;
    for (size_t i = 0; i < roles_.size(); ++i) {
      const c10::IValue& value = values[i];
      if (roles_[i] == Role::output) {
        call.output = &value.toTensor();
      } else if (roles_[i] == Role::text) {
        if (!value.isNone()) call.options.text = value.toStringView();
      } else {
        if (!value.isNone()) {
          if (!(roles_[i] == Role::operand ? add_tensor(value.toTensor(), call) : add_number(value, call))) return false;
          call.options.given |= bit;
        }
        bit <<= 1;
      }
    }
    if (kind_ == FormKind::inplace) call.output = &values[0].toTensor();
    return true;
  }

  static bool add_tensor(const at::Tensor& tensor, Call& call) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided) return false;
    const bool is_number = tensor.device().type() != c10::kPrivateUse1;
    if (is_number && tensor.dim() != 0) return false;
    if (!is_pointwise(tensor.scalar_type()) && !(is_number && tensor.scalar_type() == c10::kComplexDouble)) return false;
    call.inputs.push_back(&tensor);
    return true;
  }

  static bool add_number(const c10::IValue& value, Call& call) {
    call.numbers.push_back(value.isBool() ? c10::Scalar(value.toBool()) : value.toScalar());
    return true;
  }

  // torch.where takes any of its operands from the host if it is a number, and the iterator one of them, but not the first.
  static void move_numbers(Call& call) {
    const auto is_on_host = [](const at::Tensor* input) { return input->device().is_cpu(); };
    const auto of_device = std::find_if_not(call.inputs.begin(), call.inputs.end(), is_on_host);
    const at::Tensor* const there = of_device != call.inputs.end() ? *of_device : call.output;
    if (!is_on_host(call.inputs[0]) && std::count_if(call.inputs.begin(), call.inputs.end(), is_on_host) < 2) return;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (!is_on_host(call.inputs[i])) continue;
      call.moved[i] = at::scalar_tensor(call.inputs[i]->item(), call.inputs[i]->options().device(there->device()));
      call.inputs[i] = &call.moved[i];
    }
  }

  // Builds the iterator, which makes or checks the output; gives the dtype that is computed, or Undefined where the CPU raises.
  c10::ScalarType build(const Call& call, Iterator& iter) const {
    const Kind kind = operator_->line.kind;
    const bool compares = kind == Kind::compare || kind == Kind::compare_numbers;
    const bool parts = gives_part(call);
    at::TensorIteratorConfig config;
    at::Tensor made;
    if (parts && operator_->complex->gives == Gives::dense_part) made = empty_part(*call.inputs[0]);
    config.add_owned_output(call.output != nullptr ? *call.output : made);
    if ((operator_->line.takes & kSelfFirst) != 0) {
      config.add_const_input(*call.inputs[1]).add_const_input(*call.inputs[0]);
    } else {
      for (const at::Tensor* input : call.inputs) config.add_const_input(*input);
    }
    if (kind == Kind::choose && is_float8(call.inputs[1]->scalar_type())) {  // which torch does not promote
      const c10::ScalarType dtype = call.inputs[1]->scalar_type();
      if (!can_choose_bits(call, dtype)) return c10::ScalarType::Undefined;
      iter.build(config.check_all_same_dtype(false).declare_static_dtype(dtype));
      return dtype;
    }
    if (kind != Kind::numbers && kind != Kind::compare_numbers) {
      config.allow_cpu_scalars(true).promote_inputs_to_common_dtype(true).enforce_safe_casting_to_output(!compares && !parts);
      if (parts) config.declare_static_dtype(c10::toRealValueType(call.inputs[0]->scalar_type()));
      if (kind == Kind::to_float) config.promote_integer_inputs_to_float(true);
      if (compares) config.declare_static_dtype(c10::kBool);
      iter.build(config);
      return iter.common_dtype();
    }
    at::native::ResultTypeState state;
    for (const at::Tensor* input : call.inputs) state = at::native::update_result_type_state(*input, state);
    for (const c10::Scalar& number : call.numbers) state = at::native::update_result_type_state(number, state);
    const c10::ScalarType common = at::native::result_type(state);
    // The CPU's error, whose words differ between operators.
    if (!compares && call.output != nullptr && !c10::canCast(common, call.output->scalar_type())) return c10::ScalarType::Undefined;
    iter.build(config.check_all_same_dtype(false).declare_static_dtype(compares ? c10::kBool : common));
    return common;
  }

  // Whether the operands are what compute_dense() takes.
  bool is_dense(const Call& call) const {
    const Kind kind = operator_->line.kind;
    if (call.output != nullptr || (operator_->line.takes & kSelfFirst) != 0) return false;
    if (kind != Kind::promote && kind != Kind::to_float && kind != Kind::compare && kind != Kind::alike) return false;
    const at::Tensor& first = *call.inputs[0];
    const c10::ScalarType dtype = first.scalar_type();
    if (!is_in_dialect(dtype) || (kind == Kind::to_float && !c10::isFloatingType(dtype)) || first.dim() == 0) return false;
    return std::all_of(call.inputs.begin(), call.inputs.end(), [&](const at::Tensor* input) {
      return input->is_contiguous() && input->scalar_type() == dtype && input->device() == first.device() &&
             !has_names(*input->unsafeGetTensorImpl()) && input->sizes() == first.sizes();
    });
  }

  static bool can_write(const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided &&
           is_pointwise(tensor.scalar_type());
  }

  // Whether the result is real and the first operand is not.
  bool gives_part(const Call& call) const {
    return operator_->complex && operator_->complex->gives != Gives::number && is_complex(call.inputs[0]->scalar_type());
  }

  // Whether an out= tensor may have another dtype than the result: of several inputs, if theirs can be cast. What else there is, each of
  // the CPU's kernels refuses in its own words.
  bool can_hold(const Call& call) const {
    const Kind kind = operator_->line.kind;
    const c10::ScalarType dtype = call.output->scalar_type();
    if (gives_part(call)) return dtype == c10::toRealValueType(call.inputs[0]->scalar_type());
    if (kind_ != FormKind::out) return true;
    if (kind == Kind::compare || kind == Kind::compare_numbers) return dtype == c10::kBool || call.inputs.size() > 1;
    if (kind == Kind::alike || (kind == Kind::promote && call.inputs.size() == 1)) return dtype == call.inputs[0]->scalar_type();
    if (kind == Kind::choose) {
      const auto state = at::native::update_result_type_state(*call.inputs[1], {});
      return dtype == at::native::result_type(at::native::update_result_type_state(*call.inputs[2], state));
    }
    return std::all_of(call.inputs.begin(), call.inputs.end(),
                       [&](const at::Tensor* input) { return input->dim() == 0 || c10::canCast(input->scalar_type(), dtype); });
  }

  // The CPU takes elements that share a place and values of a wider category, which may fit all the same, and raises the errors.
  static bool can_be_masked(const Call& call) {
    const at::Tensor& self = *call.inputs[0];
    const at::Tensor* const value = call.inputs.size() < 3 ? nullptr : call.inputs[2];
    return call.inputs[1]->scalar_type() == c10::kBool && at::has_internal_overlap(self) != at::MemOverlap::Yes &&
           (value == nullptr || (value->dim() == 0 && c10::canCast(value->scalar_type(), self.scalar_type())));
  }

  // Whether the bits of one of two elements are the result's.
  static bool can_choose_bits(const Call& call, c10::ScalarType common) {
    return std::all_of(
               call.inputs.begin() + 1, call.inputs.end(),
               [&](const at::Tensor* input) { return input->scalar_type() == common && input->device().type() == c10::kPrivateUse1; }) &&
           (call.output == nullptr || call.output->scalar_type() == common);
  }

  // Integers by a number of the host that is not 0 as one of theirs.
  static bool is_divided_by_number(const Call& call, c10::ScalarType common) {
    const at::Tensor& divisor = *call.inputs.back();
    return category(common) == kIntegers && divisor.device().is_cpu() && divisor.dim() == 0 &&
           wrapped(divisor.item().toLong(), common) != 0;
  }

  bool compute(Call& call, at::Tensor& result) const {
    const Pointwise& line = operator_->line;
    if (C10_UNLIKELY(!can_compile() || kernel_policy() == KernelPolicy::off)) return false;
    if (call.output != nullptr && (!can_write(*call.output) || !can_hold(call))) return false;
    int variant = 0;
    if (line.variant != nullptr) {
      if (!call.numbers.empty()) call.options.number = call.numbers.back().isComplex() ? NAN : call.numbers.back().toDouble();
      variant = line.variant(call.options);
      if (variant < 0) return false;
    }
    if (line.kind == Kind::choose) {
      if (call.inputs[0]->scalar_type() != c10::kBool) return false;
      move_numbers(call);
    }
    if (line.kind == Kind::masked && !can_be_masked(call)) return false;
    if (line.kind == Kind::alike) {
      for (const at::Tensor* input : call.inputs) {
        if (input->scalar_type() != call.inputs[0]->scalar_type()) return false;
      }
    }

    if ((line.takes & kWithoutBool) != 0) {
      for (const at::Tensor* input : call.inputs) {
        if (input->scalar_type() == c10::kBool) return false;
      }
    }

    std::optional<Iterator> iter;
    const bool dense = is_dense(call);
    const c10::ScalarType common = dense ? call.inputs[0]->scalar_type() : build(call, iter.emplace());
    if (!is_pointwise(common)) return false;
    const bool divides = line.variant == nullptr || variant != 0;  // div without a mode gives floats
    const char* text = line.expressions[static_cast<size_t>(variant)];
    if (is_complex(common)) {
      text = operator_->complex ? operator_->complex->expressions[static_cast<size_t>(variant)] : nullptr;
      if (text == nullptr) return false;
    } else if ((line.takes & category(common)) == 0 && (!divides || (line.takes & kByNumber) == 0 || !is_divided_by_number(call, common))) {
      return false;
    }
    Computation what{line.name, common, variant};
    if (line.kind == Kind::choose && is_float8(common)) {
      what.common = bits_of(common);
      what.bits = true;
    }
    for (const c10::Scalar& number : call.numbers) {
      uint64_t word = 0;
      if (!scalar_word(number, common, line.kind, word)) return false;
      what.scalars.push_back(word);
    }
    const Expression expression{text,
                                static_cast<int>(call.numbers.size()),
                                line.numbers,
                                line.kind == Kind::compare || line.kind == Kind::compare_numbers,
                                gives_part(call),
                                line.is_special && !is_complex(common),
                                false};
    if (dense) {
      if (!compute_dense(call.inputs, what, expression, operator_->slots, result)) return false;
    } else {
      if (!portable::compute(*iter, what, expression, operator_->slots)) return false;
      result = call.output != nullptr ? *call.output : iter->maybe_get_output(0);
    }
    operator_->counter.count();
    return true;
  }

  // A number of the call as the compute type; false for a fraction where integers are computed, and for what leaves the range: some
  // operators raise an error then, and the CPU knows which.
  static bool scalar_word(const c10::Scalar& value, c10::ScalarType common, Kind kind, uint64_t& word) {
    if (is_complex(common)) {
      const c10::complex<double> number = value.toComplexDouble();
      word = word_of(number);
      return !is_beyond(number.real(), c10::kFloat) && !is_beyond(number.imag(), c10::kFloat);
    }
    if (value.isComplex()) return false;
    if (c10::isFloatingType(common)) {
      const double number = value.toDouble();
      if (is_beyond(number, common)) return false;
      const bool is_operand = kind == Kind::numbers || kind == Kind::compare_numbers;
      word = word_of(is_operand ? rounded(number, common) : number, common);
      return true;
    }
    if (!value.isIntegral(/*includeBool=*/true)) return false;
    word = static_cast<uint64_t>(wrapped(value.toLong(), common));
    return true;
  }

  const std::shared_ptr<Operator> operator_;
  const FormKind kind_;
  const std::vector<Role> roles_;
};

// A form as the dispatcher calls it.
struct Boxed final : c10::OperatorKernel {
  explicit Boxed(std::shared_ptr<const Form> form) : form(std::move(form)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t arguments = form->arguments();
    at::Tensor result;
    if (!form->compute(stack->data() + stack->size() - arguments, result)) return decline_portable(op, keys, stack);
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
    stack->emplace_back(std::move(result));
  }
  const std::shared_ptr<const Form> form;
};

// The same with the arguments of one of the commonest schemas, which spares a small call the making of a stack.
template <typename Return, typename... Arguments>
struct Unboxed final : c10::OperatorKernel {
  Unboxed(std::shared_ptr<const Form> form, const c10::OperatorHandle& op) : form(std::move(form)), op(op) {}

  Return operator()(c10::DispatchKeySet keys, Arguments... arguments) {
    at::Tensor result;
    if (!compute(result, arguments...)) {
      torch::jit::Stack stack;
      torch::jit::push(stack, arguments...);
      decline_portable(op, keys, &stack);
      result = std::move(stack[0]).toTensor();
    }
    if constexpr (std::is_reference_v<Return>) {
      return std::get<0>(std::tie(arguments...));
    } else {
      return result;
    }
  }

  bool compute(at::Tensor& result, const at::Tensor& x) { return form->compute({&x}, nullptr, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const at::Tensor& y) { return form->compute({&x, &y}, nullptr, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const c10::Scalar& s) { return form->compute({&x}, &s, result); }
  bool compute(at::Tensor& result, const at::Tensor& x, const at::Tensor& y, const c10::Scalar& s) {
    return form->compute({&x, &y}, &s, result);
  }

  const std::shared_ptr<const Form> form;
  const c10::OperatorHandle op;
};

template <typename Return, typename... Arguments>
detail::TypedKernel unboxed_as(const std::shared_ptr<const Form>& form, const c10::OperatorHandle& op) {
  using Kernel = Unboxed<Return, Arguments...>;
  static constexpr std::array<detail::Type, sizeof...(Arguments)> arguments{detail::type_of<Arguments>()...};
  return {c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::unique_ptr<c10::OperatorKernel>(new Kernel(form, op))),
          c10::impl::CppSignature::make<Return(Arguments...)>(), arguments, detail::Result<Return>::types};
}

// Nothing for a schema that is none of the commonest.
std::optional<detail::TypedKernel> unboxed(const std::shared_ptr<const Form>& form, const c10::OperatorHandle& op, FormKind kind) {
  using at::Tensor;
  using c10::Scalar;
  std::string letters;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const c10::TypeKind type = argument.type()->kind();
    letters += type == c10::TypeKind::TensorType ? 'T' : type == c10::TypeKind::NumberType ? 'S' : '?';
  }
  if (kind == FormKind::functional) {
    if (letters == "T") return unboxed_as<Tensor, const Tensor&>(form, op);
    if (letters == "TT") return unboxed_as<Tensor, const Tensor&, const Tensor&>(form, op);
    if (letters == "TS") return unboxed_as<Tensor, const Tensor&, const Scalar&>(form, op);
    if (letters == "TTS") return unboxed_as<Tensor, const Tensor&, const Tensor&, const Scalar&>(form, op);
  } else if (kind == FormKind::inplace) {
    if (letters == "T") return unboxed_as<Tensor&, Tensor&>(form, op);
    if (letters == "TT") return unboxed_as<Tensor&, Tensor&, const Tensor&>(form, op);
    if (letters == "TS") return unboxed_as<Tensor&, Tensor&, const Scalar&>(form, op);
    if (letters == "TTS") return unboxed_as<Tensor&, Tensor&, const Tensor&, const Scalar&>(form, op);
  }
  return std::nullopt;
}

bool has_same_inputs(const c10::FunctionSchema& form, const c10::FunctionSchema& functional) {
  std::vector<std::string> inputs[2];
  for (const c10::Argument& argument : form.arguments()) {
    if (!argument.is_out()) inputs[0].push_back(argument.name() + argument.type()->str());
  }
  for (const c10::Argument& argument : functional.arguments()) inputs[1].push_back(argument.name() + argument.type()->str());
  return inputs[0] == inputs[1];
}

// The first of these overloads that takes the functional form's arguments.
std::optional<c10::OperatorHandle> find_form(const std::string& base, std::initializer_list<std::string> overloads, bool has_out,
                                             const c10::FunctionSchema& functional) {
  for (const std::string& overload : overloads) {
    const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + base, overload});
    if (found && found->schema().arguments().back().is_out() == has_out && has_same_inputs(found->schema(), functional)) return found;
  }
  return std::nullopt;
}

std::string local_name(const c10::OperatorName& full) {
  return full.name.substr(full.name.find("::") + 2) + (full.overload_name.empty() ? "" : "." + full.overload_name);
}

void add_form(DefaultKernels& kernels, const std::shared_ptr<Operator>& shared, const c10::OperatorHandle& op, FormKind kind) {
  const c10::OperatorName& full = op.operator_name();
  TORCH_CHECK(op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd),
              full, " is composed of others: a kernel of the device would take its gradient away");
  const auto form = std::make_shared<const Form>(shared, kind, op.schema());
  kernels.impl_portable(local_name(full).c_str(), c10::BoxedKernel::makeFromFunctor(std::make_unique<Boxed>(form)),
                        unboxed(form, op, kind));
}

// All forms of a line: of "pow.Tensor_Scalar" also pow.Tensor_Scalar_out and pow_.Scalar.
void add_forms(DefaultKernels& kernels, const Pointwise& line) {
  const std::string name(line.name);
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const std::string last = overload.substr(overload.rfind('_') + 1);
  const c10::OperatorHandle given = detail::find_operator(line.name);
  const auto shared = std::make_shared<Operator>(line);
  if (given.schema().is_mutable()) return add_form(kernels, shared, given, FormKind::inplace);
  const auto out = find_form(base, {"out", overload + "_out", "out_" + last}, true, given.schema());
  add_form(kernels, shared, given, FormKind::functional);
  if (out) add_form(kernels, shared, *out, FormKind::out);
  if (const auto inplace = find_form(base + "_", {overload, last}, false, given.schema())) {
    add_form(kernels, shared, *inplace, FormKind::inplace);
  }
}

}  // namespace
}  // namespace pointwise_impl

PointwiseTable::PointwiseTable(std::initializer_list<Pointwise> operators) {
  pointwise_impl::lines().insert(pointwise_impl::lines().end(), operators.begin(), operators.end());
}

ComplexTable::ComplexTable(std::initializer_list<ComplexPointwise> operators) {
  pointwise_impl::complex_lines().insert(pointwise_impl::complex_lines().end(), operators.begin(), operators.end());
}

PointwiseTable PointwiseTable::special(std::initializer_list<Pointwise> operators) {
  for (Pointwise line : operators) {
    line.is_special = true;
    pointwise_impl::lines().push_back(line);
  }
  return {};
}

static const Defaults pointwise_tables([](DefaultKernels& kernels) {
  for (const Pointwise& line : pointwise_impl::lines()) pointwise_impl::add_forms(kernels, line);
});

}  // namespace backplane::portable
