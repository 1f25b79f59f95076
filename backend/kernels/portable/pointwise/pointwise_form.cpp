// kernels/portable/pointwise/pointwise_form.cpp: reads a call of an operator of the tables, finds its dtype as the CPU does, and queues it.
#include "kernels/portable/pointwise/pointwise_form.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/scalar_tensor.h>
#include <backplane/structured.h>
#include <backplane/torch_compat.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/portable/unit/dialect.h"

namespace backplane::portable {

// The arguments of a call.
struct PointwiseCall {
  c10::SmallVector<const at::Tensor*, kMostInputs + 1> inputs;
  c10::SmallVector<c10::Scalar, kMostScalars> numbers;
  const at::Tensor* output = nullptr;
  CallOptions options;
  std::array<at::Tensor, kMostInputs> moved;  // inputs that were numbers on the host and were copied to the device
};

namespace pointwise_form_impl {
namespace {

using Role = PointwiseForm::Role;

// Whether a finite number is out of the dtype's range.
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

// Whether its dimensions have names, which torch 2.13 no longer supports.
template <typename Impl>
bool has_names(const Impl& tensor) {
  if constexpr (requires { tensor.has_named_tensor_meta(); }) return tensor.has_named_tensor_meta();
  return false;
}

// at::TensorIterator asks the dispatcher for a new output; this one asks the allocator.
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

// The roles of a form's arguments. Throws for a schema that these kernels do not support.
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

bool add_tensor(const at::Tensor& tensor, PointwiseCall& call) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided) return false;
  const bool is_number = tensor.device().type() != c10::kPrivateUse1;
  if (is_number && tensor.dim() != 0) return false;
  if (!is_pointwise(tensor.scalar_type()) && !(is_number && tensor.scalar_type() == c10::kComplexDouble)) return false;
  call.inputs.push_back(&tensor);
  return true;
}

bool add_number(const c10::IValue& value, PointwiseCall& call) {
  call.numbers.push_back(value.isBool() ? c10::Scalar(value.toBool()) : value.toScalar());
  return true;
}

// torch.where accepts numbers on the host for all operands; the iterator accepts one, except as the first operand.
void move_numbers(PointwiseCall& call) {
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

bool can_write(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::kPrivateUse1 && tensor.layout() == c10::kStrided &&
         is_pointwise(tensor.scalar_type());
}

// The CPU handles elements that share memory and values of a wider category, which may fit, and raises the errors.
bool can_be_masked(const PointwiseCall& call) {
  const at::Tensor& self = *call.inputs[0];
  const at::Tensor* const value = call.inputs.size() < 3 ? nullptr : call.inputs[2];
  return call.inputs[1]->scalar_type() == c10::kBool && !repeats_places(self) &&
         (value == nullptr || (value->dim() == 0 && c10::canCast(value->scalar_type(), self.scalar_type())));
}

// Whether the inputs, from number `first` on, and the output are elements of one dtype, so that their bits can be computed with.
bool has_bits_of(const PointwiseCall& call, size_t first, c10::ScalarType common) {
  return std::all_of(
             call.inputs.begin() + first, call.inputs.end(),
             [&](const at::Tensor* input) { return input->scalar_type() == common && input->device().type() == c10::kPrivateUse1; }) &&
         (call.output == nullptr || call.output->scalar_type() == common);
}

// Whether integers are divided by a number on the host that, as one of theirs, is not 0.
bool is_divided_by_number(const PointwiseCall& call, c10::ScalarType common) {
  const at::Tensor& divisor = *call.inputs.back();
  return category(common) == kIntegers && divisor.device().is_cpu() && divisor.dim() == 0 && wrapped(divisor.item().toLong(), common) != 0;
}

// A number of the call as the compute type. False: a fraction for integers, or out of range. Some operators raise an error then; the CPU
// does.
bool scalar_word(const c10::Scalar& value, c10::ScalarType common, Kind kind, uint64_t& word) {
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

}  // namespace
}  // namespace pointwise_form_impl

using namespace pointwise_form_impl;

PointwiseOperator::PointwiseOperator(const Pointwise& line, std::optional<ComplexPointwise> complex)
    : line(line), complex(std::move(complex)), counter(portable_counter(line.name)) {}

PointwiseForm::PointwiseForm(std::shared_ptr<PointwiseOperator> shared, Call::Form which, const c10::FunctionSchema& schema)
    : operator_(std::move(shared)), which_(which), roles_(roles_of(schema)) {}

bool PointwiseForm::compute(const c10::IValue* values, at::Tensor& result) const {
  PointwiseCall call;
  return read(values, call) && compute(call, result);
}

bool PointwiseForm::compute(std::initializer_list<const at::Tensor*> tensors, const c10::Scalar* number, at::Tensor& result) const {
  PointwiseCall call;
  for (const at::Tensor* tensor : tensors) {
    if (!add_tensor(*tensor, call)) return false;
  }
  if (number != nullptr) call.numbers.push_back(*number);
  call.options.given = (1u << arguments()) - 1;
  if (which_ == Call::Form::inplace) call.output = *tensors.begin();
  return compute(call, result);
}

bool PointwiseForm::read(const c10::IValue* values, PointwiseCall& call) const {
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
  if (which_ == Call::Form::inplace) call.output = &values[0].toTensor();
  return true;
}

// Builds the iterator, which makes or checks the output. Returns the common dtype, or Undefined where the CPU raises.
c10::ScalarType PointwiseForm::build(const PointwiseCall& call, at::TensorIteratorBase& iter) const {
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
  if (kind == Kind::choose && is_float8(call.inputs[1]->scalar_type())) {  // torch does not promote it
    const c10::ScalarType dtype = call.inputs[1]->scalar_type();
    if (!has_bits_of(call, 1, dtype)) return c10::ScalarType::Undefined;
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
  // The CPU raises the error, whose text differs between operators.
  if (!compares && call.output != nullptr && !c10::canCast(common, call.output->scalar_type())) return c10::ScalarType::Undefined;
  iter.build(config.check_all_same_dtype(false).declare_static_dtype(compares ? c10::kBool : common));
  return common;
}

// Whether compute_dense() supports the operands.
bool PointwiseForm::is_dense(const PointwiseCall& call) const {
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

// Whether the result is real although the first operand is complex.
bool PointwiseForm::gives_part(const PointwiseCall& call) const {
  return operator_->complex && operator_->complex->gives != Gives::number && is_complex(call.inputs[0]->scalar_type());
}

// Whether an out= tensor's dtype is valid: another one than the result's only for several inputs that can be cast to it. In other cases the
// CPU's kernels raise errors with different texts.
bool PointwiseForm::can_hold(const PointwiseCall& call) const {
  const Kind kind = operator_->line.kind;
  const c10::ScalarType dtype = call.output->scalar_type();
  if (gives_part(call)) return dtype == c10::toRealValueType(call.inputs[0]->scalar_type());
  if (which_ != Call::Form::out) return true;
  if (kind == Kind::compare || kind == Kind::compare_numbers) return dtype == c10::kBool || call.inputs.size() > 1;
  if (kind == Kind::alike || (kind == Kind::promote && call.inputs.size() == 1)) return dtype == call.inputs[0]->scalar_type();
  if (kind == Kind::choose) {
    const auto state = at::native::update_result_type_state(*call.inputs[1], {});
    return dtype == at::native::result_type(at::native::update_result_type_state(*call.inputs[2], state));
  }
  return std::all_of(call.inputs.begin(), call.inputs.end(),
                     [&](const at::Tensor* input) { return input->dim() == 0 || c10::canCast(input->scalar_type(), dtype); });
}

bool PointwiseForm::compute(PointwiseCall& call, at::Tensor& result) const {
  const Pointwise& line = operator_->line;
  if (call.output != nullptr && (!can_write(*call.output) || !can_hold(call))) return false;
  int variant = 0;
  if (line.variant != nullptr) {
    if (!call.numbers.empty()) {
      const c10::Scalar& last = call.numbers.back();
      call.options.number = last.isComplex() ? NAN : last.toDouble();
      call.options.integers = last.isIntegral(true) && c10::isIntegralType(call.inputs[0]->scalar_type(), true);
    }
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
  const bool divides = line.variant == nullptr || variant != 0;  // div without a mode returns floats
  Literal text = line.expressions[static_cast<size_t>(variant)];
  if (is_complex(common)) {
    text = operator_->complex ? operator_->complex->expressions[static_cast<size_t>(variant)] : Literal();
    if (text == nullptr) return false;
  } else if ((line.takes & category(common)) == 0 && (!divides || (line.takes & kByNumber) == 0 || !is_divided_by_number(call, common))) {
    return false;
  }
  Computation what{line.name, common};
  if (line.kind == Kind::choose && is_float8(common)) {
    what.common = bits_of(common);
    what.bits = true;
  }
  if (line.of_halves != nullptr && c10::isReducedFloatingType(common) && has_bits_of(call, 0, common)) {
    text = line.of_halves;
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
    if (!compute_dense(call.inputs, what, expression, result)) return false;
  } else {
    if (!portable::compute(*iter, what, expression)) return false;
    result = call.output != nullptr ? *call.output : iter->maybe_get_output(0);
  }
  return true;
}

}  // namespace backplane::portable
