// kernels/portable/reduction/reduction.cpp: sums, products, extremes, norms, variances and others along any dimensions, with the dtypes,
// shapes and forms of torch's CPU kernels.
//
// For complex64, sums fold the parts, norms the moduli, and products the complex numbers. Calls for which torch's kernels warn or raise an
// error, and those that are not supported here (complex128, extremes of empty tensors, more than six dimensions that do not collapse), are
// passed on to the next kernel.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/var.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DefaultDtype.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string_view>

#include "kernels/portable/reduction/reduce.h"
#include "kernels/portable/unit/call.h"

namespace backplane::portable {
namespace reduction_impl {
namespace {

// The dtypes of the fold and of its results.
enum class Rule : uint8_t {
  sum,       // the requested dtype, the output's, or the input's; int64 for integers
  mean,      // the same, only for floats
  same,      // the input's dtype
  place,     // the same, and places in int64
  places,    // places in int64
  truth,     // bool; uint8 for uint8
  count,     // int64
  norm,      // floats; the requested dtype
  moments,   // floats; the input's dtype
  to_float,  // the default dtype for integers
};

struct Line {
  Fold fold;
  Rule rule;
  int outputs;
  bool takes_empty;                          // it has a value for empty tensors
  bool empty_list_is_all;                    // dim=[] stands for all dimensions
  std::initializer_list<const char*> forms;  // the first one names the operator
};

// The positions of a form's arguments; -1: it does not have it.
struct Places {
  explicit Places(const c10::FunctionSchema& schema) {
    const auto find = [&](const char* name) { return schema.argumentIndexWithName(name).value_or(-1); };
    dim = find("dim");
    keepdim = find("keepdim");
    dtype = find("dtype");
    correction = find("correction");
    order = find("ord") >= 0 ? find("ord") : find("p");
  }
  int dim = -1, keepdim = -1, dtype = -1, correction = -1, order = -1;
};

// False for invalid or repeated dimensions: the CPU raises.
bool read_dims(const c10::IValue& value, int64_t dims, bool empty_list_is_all, DimMask& mask) {
  const auto add = [&](int64_t dim) {
    const int64_t most = std::max<int64_t>(dims, 1);
    if (dim < -most || dim >= most) return false;
    const auto bit = static_cast<size_t>(dim < 0 ? dim + most : dim);
    if (mask[bit]) return false;
    mask.set(bit);
    return true;
  };
  if (value.isInt()) return add(value.toInt());
  if (!value.isNone()) {
    const auto list = value.toIntList();
    if (list.empty() && dims > 0 && !empty_list_is_all) return false;
    for (const int64_t dim : list) {
      if (!add(dim)) return false;
    }
    if (!list.empty()) return true;
  }
  for (int64_t d = 0; d < dims; ++d) mask.set(static_cast<size_t>(d));
  return true;
}

// The fold of a vector norm, and its numbers.
Fold norm_of(double order, std::array<double, 2>& numbers) {
  if (order == 0) return {"norm_0"};
  if (order == 1) return {"norm_1"};
  if (order == 2) return {"norm_2"};
  if (std::isinf(order)) return {order > 0 ? Literal("norm_inf") : Literal("norm_neg_inf")};
  numbers = {order, 1 / order};
  return {"norm_p"};
}

// The forms of an operator.
class Reduction {
 public:
  explicit Reduction(const Line& op) : op_(op) {}

  bool compute(Call& given_call, const Places& places) const {
    const c10::IValue* const arguments = &given_call[0];
    const at::Tensor& argument = given_call.tensor(0);
    const at::Tensor self = has_parts(argument) ? real_operand(argument) : argument;
    const bool has_complex = has_parts(self);
    if ((!is_usable(self) && !has_complex) || self.dim() > 64) return false;
    if (has_complex && op_.rule == Rule::moments) return compute_moments(given_call, places);
    if (self.numel() == 0 && !op_.takes_empty) return false;
    const bool folds_parts = has_complex && is_linear();
    const auto elements_of = [&](const at::Tensor& tensor) {
      return !folds_parts ? tensor : at::view_as_real(tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor);
    };
    const at::Tensor elements = elements_of(self);
    FoldCall call{elements, {}, elements.scalar_type()};
    if (places.dim < 0) {
      for (int64_t d = 0; d < self.dim(); ++d) call.reduced.set(static_cast<size_t>(d));
    } else if (!read_dims(arguments[places.dim], self.dim(), op_.empty_list_is_all, call.reduced)) {
      return false;
    }
    const bool keepdim = places.keepdim >= 0 && arguments[places.keepdim].toBool();
    const at::DimVector size = reduced_size(self.sizes(), call.reduced, keepdim);

    const size_t outputs = op_.outputs;
    const at::Tensor* const given[] = {given_call.given(0, outputs), outputs == 2 ? given_call.given(1, outputs) : nullptr};
    const bool asks = places.dtype >= 0 && given_call.has(static_cast<size_t>(places.dtype));
    auto asked = asks ? std::optional(arguments[places.dtype].toScalarType()) : std::nullopt;
    if (op_.rule == Rule::norm && asked && has_parts(argument)) {  // the dtype is that of the complex numbers, not of their moduli
      if (*asked != argument.scalar_type()) return false;
      asked = self.scalar_type();
    }
    std::array<c10::ScalarType, 2> dtypes{};
    if (!find_dtypes(self, asked, given[0], call, dtypes)) return false;

    Fold fold = op_.fold;
    if (places.order >= 0) {
      double order = 2;
      if (!read_order(arguments[places.order], order)) return false;
      if (self.numel() == 0 && (order < 0 || std::isinf(order))) return false;
      fold = norm_of(order, call.numbers);
    }
    if (op_.rule == Rule::moments) {
      const c10::IValue& correction = arguments[places.correction];
      call.numbers[0] = correction.isNone() ? 1 : correction.toScalar().to<double>();
      int64_t count = 1;
      for (int64_t d = 0; d < self.dim(); ++d) count *= call.reduced[static_cast<size_t>(d)] ? self.size(d) : 1;
      if (static_cast<double>(count) <= call.numbers[0]) return false;  // the CPU warns
    }

    for (size_t k = 0; k < outputs; ++k) {
      if (given[k] != nullptr && !can_become(*given[k], size, dtypes[k], {argument})) return false;
    }
    if (outputs == 2 && given[0] != nullptr && given[0]->is_alias_of(*given[1])) return false;
    const Output first(given_call, size, dtypes[0], self.device(), 0, outputs);
    const bool is_mean = op_.rule == Rule::mean;
    if (folds_parts && (is_mean || std::string_view(fold.name) == "sum") && has_many_in_order(self, call.reduced)) {
      const at::Tensor few = fewer_numbers(elements);
      if (is_mean) few.mul_(static_cast<double>(kFewNumbers) / static_cast<double>(self.numel()));
      if (!portable::fold(fold, {few, DimMask(1), call.dtype}, {elements_of(first.dense())})) return false;
    } else if (outputs == 1) {
      if (!portable::fold(fold, call, {elements_of(first.dense())})) return false;
    } else {
      const Output second(given_call, size, dtypes[1], self.device(), 1, outputs);
      if (!portable::fold(fold, call, {first.dense(), second.dense()})) return false;
      first.give(given_call);
      second.give(given_call);
      return true;
    }
    first.give(given_call);
    return true;
  }

 private:
  // Whether the parts of complex numbers are folded separately.
  bool is_linear() const { return std::string_view(op_.fold.name) != "prod"; }

  static constexpr int64_t kFewNumbers = 256;

  // Whether everything is reduced, and an additional launch that walks it in memory order is faster.
  static bool has_many_in_order(const at::Tensor& self, DimMask reduced) {
    return reduced.count() == static_cast<size_t>(self.dim()) && self.is_contiguous() && self.numel() >= 16 * kFewNumbers;
  }

  // [..., 2] parts as [kFewNumbers, 2] with the same sum, by summing the columns of a table of that width: a walk along one part alone
  // would read every second element.
  static at::Tensor fewer_numbers(const at::Tensor& parts) {
    const at::Tensor numbers = parts.view({-1, 2});
    const int64_t rest = numbers.size(0) % kFewNumbers;
    const int64_t head = numbers.size(0) - rest;
    const at::Tensor few = numbers.narrow(0, 0, head).view({-1, 2 * kFewNumbers}).sum(at::IntArrayRef{0}).view({kFewNumbers, 2});
    if (rest != 0) few.narrow(0, 0, rest).add_(numbers.narrow(0, head, rest));
    return few;
  }

  // The real operand that is folded in place of complex numbers.
  at::Tensor real_operand(const at::Tensor& self) const {
    if (op_.rule == Rule::truth || op_.rule == Rule::count) return self.ne(0);
    return op_.rule == Rule::norm ? self.abs() : self;
  }

  // The variance of complex numbers is the sum of the variances of their parts.
  bool compute_moments(Call& call, const Places& places) const {
    const c10::IValue* const arguments = &call[0];
    const at::Tensor& self = call.tensor(0);
    DimMask reduced;
    if (!call.is_functional() || self.dim() == 0 || self.dim() > 63 ||
        !read_dims(arguments[places.dim], self.dim(), op_.empty_list_is_all, reduced)) {
      return false;
    }
    at::DimVector dims;
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (reduced[static_cast<size_t>(d)]) dims.push_back(d);
    }
    const auto correction = arguments[places.correction].toOptional<c10::Scalar>();
    const bool keepdim = arguments[places.keepdim].toBool();
    const at::Tensor variance = at::var(at::view_as_real(self), dims, correction, keepdim).sum(-1);
    call.give(std::string_view(op_.fold.name) == "std" ? variance.sqrt() : variance);
    if (op_.outputs == 2) call.give(self.mean(dims, keepdim));
    return true;
  }

  static bool read_order(const c10::IValue& value, double& order) {
    if (value.isNone()) return true;
    if (value.isComplexDouble()) return false;
    order = value.toScalar().to<double>();
    return !std::isnan(order);
  }

  // False: the operator does not support them.
  bool find_dtypes(const at::Tensor& self, std::optional<c10::ScalarType> asked, const at::Tensor* out, FoldCall& call,
                   std::array<c10::ScalarType, 2>& dtypes) const {
    const c10::ScalarType own = self.scalar_type();
    const bool is_float = c10::isFloatingType(own);
    const bool stays = is_float || is_complex(own);
    c10::ScalarType result = own;
    switch (op_.rule) {
      case Rule::sum:
        result = asked ? *asked : out != nullptr ? out->scalar_type() : stays ? own : c10::kLong;
        if (is_float && !c10::isFloatingType(result) && std::string_view(op_.fold.name) == "nansum") return false;  // the CPU raises
        call.is_summed = true;
        call.dtype = result;
        break;
      case Rule::mean:
        if (!asked && !stays) return false;
        result = asked ? *asked : out != nullptr ? out->scalar_type() : own;
        if (!c10::isFloatingType(result) && !is_complex(result)) return false;
        call.dtype = result;
        break;
      case Rule::same:
      case Rule::place:
        dtypes[1] = op_.rule == Rule::place ? c10::kLong : own;
        break;
      case Rule::places:
        if (own == c10::kBool) return false;  // the CPU raises
        result = c10::kLong;
        break;
      case Rule::truth:
        result = own == c10::kByte ? c10::kByte : c10::kBool;
        break;
      case Rule::count:
        result = c10::kLong;
        break;
      case Rule::norm:
        if (!is_float) return false;
        result = asked.value_or(own);
        if (!c10::isFloatingType(result) || c10::promoteTypes(own, result) != result) return false;
        call.dtype = result;
        break;
      case Rule::moments:
        if (!is_float) return false;
        dtypes[1] = own;
        break;
      case Rule::to_float:
        result = is_float ? own : c10::get_default_dtype_as_scalartype();
        call.dtype = result;
        break;
    }
    dtypes[0] = result;
    if (!is_complex(own) && !is_complex(result)) return is_in_dialect(result);
    if (is_linear()) call.dtype = c10::kFloat;
    return own == result && (op_.rule == Rule::sum || op_.rule == Rule::mean) && std::string_view(op_.fold.name) != "nansum";
  }

  const Line op_;
};

const std::initializer_list<Line> kLines = {
    {{"sum"}, Rule::sum, 1, true, true, {"sum.dim_IntList", "sum", "sum.IntList_out", "sum.out"}},
    {{"nansum"}, Rule::sum, 1, true, true, {"nansum", "nansum.out"}},
    {{"prod"}, Rule::sum, 1, true, true, {"prod", "prod.dim_int", "prod.int_out", "prod.out"}},
    {{"mean"}, Rule::mean, 1, true, true, {"mean.dim", "mean", "mean.out", "mean.dtype_out"}},
    {{"amax"}, Rule::same, 1, false, true, {"amax", "amax.out", "max", "max.unary_out"}},
    {{"amin"}, Rule::same, 1, false, true, {"amin", "amin.out", "min", "min.unary_out"}},
    {{"aminmax", 2}, Rule::same, 2, false, true, {"aminmax", "aminmax.out"}},
    {{"max", 2, true}, Rule::place, 2, false, true, {"max.dim", "max.dim_max"}},
    {{"min", 2, true}, Rule::place, 2, false, true, {"min.dim", "min.dim_min"}},
    {{"argmax", 2, true}, Rule::places, 1, false, true, {"argmax", "argmax.out"}},
    {{"argmin", 2, true}, Rule::places, 1, false, true, {"argmin", "argmin.out"}},
    {{"any"}, Rule::truth, 1, true, false, {"any", "any.dim", "any.dims", "any.all_out", "any.out", "any.dims_out"}},
    {{"all"}, Rule::truth, 1, true, false, {"all", "all.dim", "all.dims", "all.all_out", "all.out", "all.dims_out"}},
    {{"count"}, Rule::count, 1, true, true, {"count_nonzero.dim_IntList"}},
    {{"norm_2"},
     Rule::norm,
     1,
     true,
     true,
     {"linalg_vector_norm", "linalg_vector_norm.out", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.out", "norm.dtype_out"}},
    {{"var", 3}, Rule::moments, 1, true, true, {"var.correction", "var.correction_out"}},
    {{"std", 3}, Rule::moments, 1, true, true, {"std.correction", "std.correction_out"}},
    {{"var", 3}, Rule::moments, 2, true, true, {"var_mean.correction"}},
    {{"std", 3}, Rule::moments, 2, true, true, {"std_mean.correction"}},
    {{"logsumexp", 2}, Rule::to_float, 1, true, false, {"logsumexp", "logsumexp.out"}},
};

const Defaults registered([](DefaultKernels& kernels) {
  for (const Line& op : kLines) {
    KernelCounter& counter = portable_counter(*op.forms.begin());
    for (const char* form : op.forms) {
      const auto compute = [reduction = Reduction(op), places = Places(detail::find_operator(form).schema())](Call& call) {
        return reduction.compute(call, places);
      };
      add_operator(kernels, form, compute, counter);
    }
  }
});

}  // namespace
}  // namespace reduction_impl
}  // namespace backplane::portable
