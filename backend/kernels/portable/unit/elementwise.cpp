// kernels/portable/unit/elementwise.cpp: reads the operands of an expression and walks them.
#include "kernels/portable/unit/elementwise.h"

#include <backplane/structured.h>

#include <algorithm>
#include <bit>

#include "kernels/portable/unit/call.h"

namespace backplane::portable {

// A number in eight bytes, as a member of the compute type in the kernel's struct.
uint64_t word_of(double value, c10::ScalarType common) {
  if (common == c10::kDouble) return std::bit_cast<uint64_t>(value);
  return std::bit_cast<uint32_t>(static_cast<float>(value));  // in the lower half; the upper half is padding
}

uint64_t word_of(c10::complex<double> value) { return word_of(value.real(), c10::kFloat) | word_of(value.imag(), c10::kFloat) << 32; }

double rounded(double value, c10::ScalarType common) {
  const auto number = static_cast<float>(value);
  switch (common) {
    case c10::kHalf:
      return static_cast<float>(c10::Half(number));
    case c10::kBFloat16:
      return static_cast<float>(c10::BFloat16(number));
    case c10::ScalarType::Float8_e4m3fn:
      return static_cast<float>(c10::Float8_e4m3fn(number));
    case c10::ScalarType::Float8_e5m2:
      return static_cast<float>(c10::Float8_e5m2(number));
    case c10::ScalarType::Float8_e4m3fnuz:
      return static_cast<float>(c10::Float8_e4m3fnuz(number));
    case c10::ScalarType::Float8_e5m2fnuz:
      return static_cast<float>(c10::Float8_e5m2fnuz(number));
    case c10::ScalarType::Float8_e8m0fnu:
      return static_cast<float>(c10::Float8_e8m0fnu(number));
    default:
      return value;
  }
}

int64_t wrapped(int64_t value, c10::ScalarType common) {
  switch (common) {
    case c10::kByte:
      return static_cast<uint8_t>(value);
    case c10::kChar:
      return static_cast<int8_t>(value);
    case c10::kShort:
      return static_cast<int16_t>(value);
    case c10::kInt:
      return static_cast<int32_t>(value);
    case c10::kBool:
      return value != 0;
    default:
      return value;
  }
}

// An operand on the host as a word of the common dtype.
static uint64_t number_word(at::TensorIteratorBase& iter, int k, c10::ScalarType common, bool keeps_value) {
  if (is_complex(common)) return word_of(iter.scalar_value<c10::complex<double>>(k));
  if (!c10::isFloatingType(common)) return static_cast<uint64_t>(wrapped(iter.scalar_value<int64_t>(k), common));
  const auto value = iter.scalar_value<double>(k);
  return word_of(keeps_value ? value : rounded(value, common), common);
}

static WalkForm form_of(const Computation& what, const Expression& expression) {
  WalkForm form;
  form.expression = expression.text;
  form.computed = what.common;
  form.written = 1;
  form.scalars = static_cast<uint8_t>(expression.scalars);
  form.numbers = ~0u;
  form.gives_bool = expression.gives_bool;
  form.gives_part = expression.gives_part;
  form.is_exact = expression.is_exact;
  form.keeps_numbers = expression.numbers == HostNumbers::exact;
  form.is_special = expression.is_special;
  return form;
}

// A walk over an iterator's operands, whose dimensions the iterator has merged.
class Elementwise {
 public:
  Elementwise(const Computation& what, const Expression& expression, c10::DeviceIndex device)
      : what_(what), target_(target_of(device)), walk_(what.name, {}, device) {
    walk_.form_ = form_of(what, expression);
  }

  bool has_dtype(c10::ScalarType dtype) const { return is_complex(dtype) || is_float8(dtype) || portable::has_dtype(target_, dtype); }

  // False: an operand is on another device, or its dtype is not supported.
  bool read(at::TensorIteratorBase& iter) {
    const c10::Device first = iter.device(0);
    walk_.sizes_.assign(iter.shape().begin(), iter.shape().end());
    for (int k = 0; k < iter.ntensors(); ++k) {
      const c10::ScalarType dtype = what_.bits ? what_.common : iter.dtype(k);
      if (k > 0 && iter.device(k) != first) {
        if (!iter.is_cpu_scalar(k)) return false;
        // A number is passed in the common dtype.
        add(0, is_complex(what_.common) ? what_.common : dtype, Step::number);
        walk_.scalars_.push_back(number_word(iter, k, what_.common, k == 2 && walk_.form_.keeps_numbers));
        continue;
      }
      if (!has_dtype(dtype)) return false;
      check_allocated(iter.tensor_base(k));
      Walk::Operand& operand = add(reinterpret_cast<uint64_t>(iter.data_ptr(k)), dtype, Step::unit);
      const int shift = std::countr_zero(c10::elementSize(dtype));
      for (const int64_t stride : iter.strides(k)) operand.strides.push_back(stride >> shift);
    }
    return true;
  }

  bool run() {
    const bool had_short_rows = target_.is_host() && walk_.avoid_short_rows();
    if (!walk_.choose_form(target_)) return false;
    if (walk_.form_.rows != 0 && target_.is_host()) walk_.form_.strip = strip(had_short_rows);
    walk_.scalars_.append(what_.scalars.begin(), what_.scalars.end());
    return walk_.launch(target_, "");
  }

 private:
  Walk::Operand& add(uint64_t address, c10::ScalarType dtype, Step step) {
    walk_.form_.operands[walk_.form_.count++] = {dtype, step};
    return walk_.operands_.emplace_back(Walk::Operand{address, {}});
  }

  // The columns of a strip: if rows were short, or if an operand that a walk along the rows accesses with a stride is dense in the next
  // dimension. 0: whole rows. Rows of halves are converted as rows.
  uint8_t strip(bool had_short_rows) const {
    constexpr uint8_t kNarrow = 8, kWide = 64;
    if (walk_.sizes_.size() < 2 || walk_.sizes_[0] < kNarrow) return 0;
    bool is_across = had_short_rows;
    for (size_t k = 0; k < walk_.form_.count; ++k) {
      const auto [dtype, step] = walk_.form_.operands[k];
      if (dtype == c10::kHalf) return 0;
      const bool is_strided = step == Step::other || step == Step::reversed;
      is_across = is_across || (is_strided && walk_.sizes_[1] >= kNarrow && walk_.operands_[k].strides[1] == 1);
    }
    return !is_across ? 0 : had_short_rows ? kWide : kNarrow;
  }

  const Computation& what_;
  const Target& target_;
  Walk walk_;
};

bool compute(at::TensorIteratorBase& iter, const Computation& what, const Expression& expression) {
  if (iter.ntensors() > kMostInputs + 1) return false;
  Elementwise walk(what, expression, iter.device(0).index());
  if (!walk.has_dtype(what.common)) return false;
  return iter.numel() == 0 || (walk.read(iter) && walk.run());
}

bool compute_dense(at::ArrayRef<const at::Tensor*> inputs, const Computation& what, const Expression& expression, at::Tensor& result) {
  const at::Tensor& first = *inputs[0];
  const c10::DeviceIndex device = first.device().index();
  const Target& target = target_of(device);
  if (!has_dtype(target, what.common)) return false;
  const int64_t count = first.numel();
  WalkForm form = form_of(what, expression);  // all steps are Step::unit
  form.count = static_cast<uint8_t>(inputs.size() + 1);
  for (size_t k = 0; k < form.count; ++k) form.operands[k].dtype = what.common;
  if (expression.gives_bool) form.operands[0].dtype = c10::kBool;
  form.is_wide = has_wide_extent(target, count);
  const Function* const function = count == 0 ? nullptr : find_walk(what.name, form, "", device);
  if (count != 0 && function == nullptr) return false;
  result = empty(first.sizes(), what.bits ? first.scalar_type() : form.operands[0].dtype, device);
  if (count == 0) return true;
  Arguments arguments;
  arguments.add(reinterpret_cast<uint64_t>(result.mutable_data_ptr()));
  for (const at::Tensor* input : inputs) arguments.read(*input);
  arguments.words(count).all(what.scalars);
  launch_function(device, *function, walk_groups(*function, target, count), arguments);
  return true;
}

static bool run(at::TensorIteratorConfig& config, Literal name, at::Tensor& out, at::ArrayRef<at::Tensor> inputs, Literal text,
                std::initializer_list<double> numbers, c10::ScalarType common) {
  config.resize_outputs(false).set_check_mem_overlap(false);
  for (const at::Tensor& input : inputs) config.add_const_input(input);
  at::TensorIterator iter = config.build();
  Computation what{name, common};
  for (const double number : numbers) what.scalars.push_back(word_of(number, common));
  if (!compute(iter, what, {text, static_cast<int>(numbers.size())})) return false;
  if (!out.defined()) out = iter.output();
  return true;
}

bool apply(Literal name, const at::Tensor& out, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
           c10::ScalarType common) {
  if (repeats_places(out)) return false;
  at::TensorIteratorConfig config;
  at::Tensor result = out;
  config.add_output(out).check_all_same_dtype(false);
  return run(config, name, result, inputs, text, numbers, common);
}

at::Tensor apply(Literal name, c10::ScalarType dtype, at::ArrayRef<at::Tensor> inputs, Literal text, std::initializer_list<double> numbers,
                 c10::ScalarType common) {
  at::TensorIteratorConfig config;
  at::Tensor result;
  config.add_owned_output(at::Tensor()).check_all_same_dtype(false).declare_static_dtype(dtype);
  run(config, name, result, inputs, text, numbers, common);
  return result;
}

}  // namespace backplane::portable
