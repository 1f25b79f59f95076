// kernels/portable/unit/places.cpp: tests and texts for places, and the places of nonzero elements.
#include "kernels/portable/unit/places.h"

#include <ATen/Context.h>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"
#include "modules/target.h"

namespace backplane::portable {

bool is_index(const at::Tensor& index, const at::Tensor& self) {
  return is_usable(index) && (index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt) && index.device() == self.device();
}

at::Tensor at_least_1d(const at::Tensor& tensor) { return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor; }

std::optional<int64_t> dimension(const c10::IValue& value, const at::Tensor& self) { return dimension_of(value.toInt(), self); }

bool is_part(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source, int64_t dim) {
  if (source.dim() != self.dim() || source.size(dim) != index.numel()) return false;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && source.size(d) != self.size(d)) return false;
  }
  return true;
}

at::Tensor changed(const Call& call, std::initializer_list<const at::Tensor*> others) {
  const at::Tensor& self = call.tensor(0);
  if (call.is_functional()) return self.clone(at::MemoryFormat::Contiguous);
  const at::Tensor& given = *call.given();
  if (given.scalar_type() != self.scalar_type() || given.device() != self.device() || repeats_places(given)) return {};
  for (const at::Tensor* other : others) {
    if (given.is_alias_of(*other)) return {};
  }
  if (call.form() == Call::Form::inplace || given.is_same(self)) return given;
  if (given.is_alias_of(self)) return {};
  at::Tensor out = call.output(self.sizes(), self.scalar_type(), self.device());
  out.copy_(self);
  return out;
}

bool has_atomic(c10::DeviceIndex device, c10::ScalarType dtype) {
  const Target& target = target_of(device);
  const uint32_t flag = dtype == c10::kFloat  ? BP_ATOMIC_ADD_F32
                        : dtype == c10::kInt  ? BP_ATOMIC_ADD_I32
                        : dtype == c10::kLong ? BP_ATOMIC_ADD_I64
                                              : 0;
  return !target.is_host() && (target.properties.atomics & flag) != 0 && !at::globalContext().deterministicAlgorithms();
}

std::string atomic_add(c10::ScalarType dtype, const char* place, const char* value) {
  const char* word = dtype == c10::kFloat ? "F32" : dtype == c10::kInt ? "I32" : "I64";
  return join("BP_ATOMIC_ADD_", word, "(p0 + (", place, "), ", value, ");");
}

Strides along(const at::Tensor& index, int64_t dim, int64_t dims) {
  Strides strides(static_cast<size_t>(dims), 0);
  strides[dim] = index.dim() == 0 ? 0 : index.stride(0);
  return strides;
}

at::Tensor places_of(const at::Tensor& given) {
  const at::Tensor self = given.contiguous();
  const c10::DeviceIndex device = self.device().index();
  const auto dims = static_cast<size_t>(std::max<int64_t>(self.dim(), 1));
  if (dims > 16) return {};
  const Target& target = target_of(device);
  const auto find = [&](Literal word, Literal kernel, uint32_t pointers) {
    Unit unit(device, "nonzero.bpc", kernel, "nonzero");
    return unit.element("0", self.scalar_type()).define(word, 1).define("DIMS", dims).find(1, pointers, static_cast<uint32_t>(3 + dims), 1);
  };
  const Function* const count = find("COUNT_CHUNKS", "count_chunks", 2);
  const Function* const sum = find("SUM_CHUNKS", "sum_chunks", 1);
  const Function* const write = find("WRITE_PLACES", "write_places", 3);
  if (count == nullptr || sum == nullptr || write == nullptr) return {};
  const int64_t elements = self.numel();
  if (elements == 0) return empty({0, self.dim()}, c10::kLong, device).as_strided({0, self.dim()}, {1, 0});
  // At most about a thousand chunks, each a multiple of the group.
  const int64_t group = target.is_host() ? 1 : count->group;
  const int64_t least = std::max<int64_t>(4096, (elements + 1023) / 1024);
  const int64_t chunk = (least + group - 1) / group * group;
  const int64_t chunks = (elements + chunk - 1) / chunk;
  const at::Tensor counts = empty({chunks + 1}, c10::kLong, device);
  const auto arguments = [&](std::initializer_list<const at::Tensor*> tensors) {
    Arguments block;
    for (const at::Tensor* tensor : tensors) block.read(*tensor);
    block.words(elements, chunk, chunks);
    for (size_t d = 0; d < dims; ++d) block.words(self.dim() == 0 ? int64_t{1} : self.size(self.dim() - 1 - static_cast<int64_t>(d)));
    return block;
  };
  launch_function(device, *count, static_cast<uint64_t>(chunks), arguments({&counts, &self}));
  launch_function(device, *sum, 1, arguments({&counts}));
  const int64_t found = counts.select(0, chunks).item().toLong();
  const at::Tensor places = empty({static_cast<int64_t>(dims), found}, c10::kLong, device);
  if (found != 0) launch_function(device, *write, static_cast<uint64_t>(chunks), arguments({&places, &self, &counts}));
  return places.as_strided({found, self.dim()}, {1, found});  // with the CPU's strides
}

}  // namespace backplane::portable
