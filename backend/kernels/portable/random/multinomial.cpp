// kernels/portable/random/multinomial.cpp: samples from rows of probabilities. The host reads back whether they are valid; for invalid ones
// the CPU raises the error. A graph has an assertion on the device instead.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/searchsorted.h>
#include <backplane/kernel.h>

#include <limits>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "modules/target.h"

namespace backplane::portable {
namespace multinomial_impl {
namespace {

bool are_probabilities(const at::Tensor& p) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor least_sum = p.sum(-1).min();
  const at::Tensor are = p.min().ge(0).logical_and_(p.max().lt(infinity)).logical_and_(least_sum.gt(0));
  if (!is_capturing(p.device().index())) return are.item().toBool();
  at::_assert_async(are, "multinomial: the probabilities contain `inf`, `nan` or an element < 0, or a row that sums to 0");
  return true;
}

// Without replacement: the largest p / e in order, with e exponentially distributed (Efraimidis and Spirakis, 2006).
at::Tensor sample_distinct(const at::Tensor& p, int64_t count, const std::optional<at::Generator>& generator) {
  const at::Tensor scaled = empty(p.sizes(), p.scalar_type(), p.device().index()).exponential_(1, generator).reciprocal_().mul_(p);
  return count == 1 ? scaled.argmax(-1, true) : std::get<1>(scaled.topk(count, -1));
}

// With replacement: the place of a uniform number among the cumulative sums. A number rounded up to the total selects the last possible
// sample.
at::Tensor sample_any(const at::Tensor& p, int64_t count, const std::optional<at::Generator>& generator) {
  const at::Tensor sums = p.cumsum(-1);
  const at::Tensor all = sums.narrow(-1, p.size(-1) - 1, 1);
  at::DimVector sizes(p.sizes());
  sizes.back() = count;
  const at::Tensor numbers = empty(sizes, p.scalar_type(), p.device().index()).uniform_(0, 1, generator).mul_(all);
  const at::Tensor last = at::searchsorted(sums, all.contiguous(), false, false);
  return at::searchsorted(sums, numbers, false, true).minimum(last);
}

// multinomial(self, num_samples, replacement, generator), and with out
bool multinomial(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const int64_t count = call[1].toInt();
  const bool is_replaced = call[2].toBool();
  constexpr int64_t kMostCategories = int64_t{1} << 24;
  if (!is_usable(self) || !c10::isFloatingType(self.scalar_type()) || self.dim() < 1 || self.dim() > 2 || count <= 0) return false;
  const int64_t categories = self.size(-1);
  if (categories == 0 || categories > kMostCategories || (!is_replaced && count > categories)) return false;
  if (const at::Tensor* given = call.given();
      given != nullptr && (!is_usable(*given) || given->scalar_type() != c10::kLong || given->device() != self.device())) {
    return false;
  }
  const std::optional<at::Generator> generator = call.has(3) ? std::optional(call[3].toGenerator()) : std::nullopt;
  at::DimVector sizes(self.sizes());
  sizes.back() = count;
  at::Tensor result;
  if (self.numel() != 0) {
    const bool has_double = has_dtype(target_of(self.device().index()), c10::kDouble);
    const bool is_distinct = !is_replaced || count == 1;
    const at::Tensor p = is_distinct ? (c10::isReducedFloatingType(self.scalar_type()) ? self.to(c10::kFloat) : self).contiguous()
                                     : self.to(has_double ? c10::kDouble : c10::kFloat).contiguous();
    if (!are_probabilities(p)) return false;
    result = is_distinct ? sample_distinct(p, count, generator) : sample_any(p, count, generator);
  } else {
    result = empty(sizes, c10::kLong, self.device().index());
  }
  if (!call.is_functional()) {
    result = call.given()->resize_(sizes).copy_(result);  // torch does not warn when it resizes this one
  }
  call.give(std::move(result));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"multinomial", "multinomial.out"}, &multinomial); });

}  // namespace
}  // namespace multinomial_impl
}  // namespace backplane::portable
