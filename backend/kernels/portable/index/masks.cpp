// kernels/portable/index/masks.cpp: the places of nonzero elements, and elements selected by a mask.
#include <ATen/ExpandUtils.h>

#include <vector>

#include "kernels/portable/unit/places.h"

namespace backplane::portable {
namespace masks_impl {
namespace {

bool nonzero(Call& call) {
  const at::Tensor& given = call.tensor(0);
  const at::Tensor self = is_complex(given.scalar_type()) ? given.ne(0) : given;
  if (!is_usable(self)) return false;
  if (!call.is_functional() && (call.given()->scalar_type() != c10::kLong || call.given()->device() != self.device())) return false;
  at::Tensor places = places_of(self);
  if (!places.defined()) return false;
  if (!call.is_functional()) {
    const at::Tensor out = call.output(places.sizes(), c10::kLong, self.device());
    out.copy_(places);
    places = out;
  }
  call.give(std::move(places));
  return true;
}

bool masked_select(Call& call) {
  const at::Tensor& given = call.tensor(0);
  const at::Tensor& given_mask = call.tensor(1);
  if (!is_movable(given) || !is_usable(given_mask) || given_mask.scalar_type() != c10::kBool || given.device() != given_mask.device() ||
      (!call.is_functional() && (call.given()->is_alias_of(given) || call.given()->is_alias_of(given_mask)))) {
    return false;
  }
  std::vector<int64_t> shape;
  if (!at::are_expandable(given.sizes(), given_mask.sizes())) return false;
  shape = at::infer_size(given.sizes(), given_mask.sizes());
  const at::Tensor self = given.expand(shape).reshape(-1);
  const at::Tensor places = places_of(given_mask.expand(shape).reshape(-1));
  if (!places.defined()) return false;
  at::Tensor out = call.output({places.size(0)}, given.scalar_type(), given.device());
  if (!out.defined()) return false;
  out.copy_(self.index_select(0, places.select(1, 0)));
  call.give(std::move(out));
  return true;
}

bool masked_scatter(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& given_mask = call.tensor(1);
  const at::Tensor& source = call.tensor(2);
  if (!is_movable(self) || !is_usable(given_mask) || !is_movable(source) || given_mask.scalar_type() != c10::kBool ||
      source.scalar_type() != self.scalar_type() || source.device() != self.device() || given_mask.device() != self.device() ||
      repeats_places(self) || self.is_alias_of(source) || self.is_alias_of(given_mask) ||
      !at::is_expandable_to(given_mask.sizes(), self.sizes())) {
    return false;
  }
  const at::Tensor places = places_of(given_mask.expand(self.sizes()).reshape(-1));
  if (!places.defined() || places.size(0) > source.numel()) return false;
  self.put_(places.select(1, 0), source.reshape(-1).narrow(0, 0, places.size(0)));
  call.give(self);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"nonzero", "nonzero.out"}, &nonzero);
  add_operator(kernels, {"masked_select", "masked_select.out"}, &masked_select);
  add_operator(kernels, {"masked_scatter_"}, &masked_scatter);
});

}  // namespace
}  // namespace masks_impl
}  // namespace backplane::portable
