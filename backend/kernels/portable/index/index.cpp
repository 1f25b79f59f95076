// kernels/portable/index/index.cpp: advanced indexing, x[i, j] and x[i, j] = y.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/places.h"
#include "kernels/portable/unit/text.h"

namespace backplane::portable {
namespace index_impl {
namespace {

constexpr size_t kMostIndices = 5;

// Dimensions of the result in order: `before` dimensions of self, those of the indices, and the rest.
struct Indexing {
  at::Tensor self;                                     // permuted if the indices are not adjacent
  c10::SmallVector<at::Tensor, kMostIndices> indices;  // of equal sizes
  int64_t before = 0;
  Strides sizes;         // of the result
  Strides self_strides;  // 0 in the indices' dimensions
  int64_t index_dims = 0;

  Strides index_strides(const at::Tensor& index) const {
    Strides strides(sizes.size(), 0);
    for (int64_t d = 0; d < index_dims; ++d) strides[before + d] = index.stride(d);
    return strides;
  }
};

std::optional<Indexing> read_indices(const at::Tensor& self, const c10::IValue& value) {
  if (self.dim() == 0) return std::nullopt;
  // A mask stands for the places where it is true: an index for each of its dimensions.
  std::vector<at::Tensor> indices;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isNone() || !element.toTensor().defined()) {
      indices.emplace_back();
      continue;
    }
    at::Tensor index = element.toTensor();
    if (index.device() != self.device()) {
      if (index.dim() != 0 && index.device().type() != c10::kCPU) return std::nullopt;
      index = index.to(self.device());
    }
    if (!is_usable(index)) return std::nullopt;
    if (index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte) {
      const auto place = static_cast<int64_t>(indices.size());
      if (index.dim() == 0) return std::nullopt;
      for (int64_t d = 0; d < index.dim(); ++d) {
        if (place + d >= self.dim() || index.size(d) != self.size(place + d)) return std::nullopt;
      }
      const at::Tensor places = places_of(index);
      if (!places.defined()) return std::nullopt;
      for (int64_t d = 0; d < index.dim(); ++d) indices.push_back(places.select(1, d));
    } else if (index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt) {
      indices.push_back(index.scalar_type() == c10::kInt ? index.to(c10::kLong) : index);
    } else {
      return std::nullopt;
    }
  }
  const int64_t dims = self.dim();
  if (static_cast<int64_t>(indices.size()) > dims) return std::nullopt;
  indices.resize(static_cast<size_t>(dims));

  Indexing result;
  c10::SmallVector<int64_t, 6> indexed, others;
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < dims; ++d) {
    if (!indices[d].defined()) {
      others.push_back(d);
      continue;
    }
    indexed.push_back(d);
    for (int64_t k = 0; k < std::min<int64_t>(indices[d].dim(), static_cast<int64_t>(shape.size())); ++k) {
      const int64_t a = indices[d].size(indices[d].dim() - 1 - k), b = shape[shape.size() - 1 - k];
      if (a != b && a != 1 && b != 1) return std::nullopt;
    }
    shape = at::infer_size(shape, indices[d].sizes());
  }
  if (indexed.empty() || indexed.size() > kMostIndices) return std::nullopt;
  const bool is_together = indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  result.before = is_together ? indexed.front() : 0;
  result.index_dims = static_cast<int64_t>(shape.size());
  int64_t many = 1;
  for (const int64_t size : shape) many *= size;
  c10::SmallVector<int64_t, 6> order;
  for (int64_t k = 0; k < result.before; ++k) order.push_back(others[k]);
  order.append(indexed.begin(), indexed.end());
  for (size_t k = static_cast<size_t>(result.before); k < others.size(); ++k) order.push_back(others[k]);
  result.self = self.permute(order);
  for (const int64_t d : indexed) {
    if (self.size(d) == 0 && many != 0) return std::nullopt;
    result.indices.push_back(indices[d].expand(shape));
  }
  const auto add = [&](int64_t size, int64_t stride) {
    result.sizes.push_back(size);
    result.self_strides.push_back(stride);
  };
  for (int64_t k = 0; k < result.before; ++k) add(result.self.size(k), result.self.stride(k));
  for (const int64_t size : shape) add(size, 0);
  for (int64_t k = result.before + static_cast<int64_t>(indexed.size()); k < dims; ++k) add(result.self.size(k), result.self.stride(k));
  return result;
}

// The statements that find the place `at` in self, with indices from i<first> on. Sizes and strides are s0, s1, ...
std::string find_place(size_t count, size_t first, const char* place) {
  std::string text = join("i64 at = ", place, "; i32 is_in = 1; ");
  for (size_t k = 0; k < count; ++k) {
    const size_t size = 2 * k, stride = 2 * k + 1, n = first + k;
    append(text, "{ const i64 given = p", n, "[i", n, "]; const i64 a = given < 0 ? given + s", size, " : given; if (a < 0 || a >= s", size,
           ") { REPORT(given, s", size, "); is_in = 0; } at += a * s", stride, "; } ");
  }
  return text += "BP_ASSERT(is_in); ";
}

void add_indices(Walk& walk, const Indexing& indexing) {
  for (const at::Tensor& index : indexing.indices) walk.read(index, c10::kLong, indexing.index_strides(index));
  for (size_t k = 0; k < indexing.indices.size(); ++k) {
    const int64_t d = indexing.before + static_cast<int64_t>(k);
    walk.integer(indexing.self.size(d)).integer(indexing.self.stride(d));
  }
}

// A result with torch's strides: its iterator follows those of self.
at::Tensor new_indexed(const Indexing& indexing, const at::Tensor& self) {
  if (self.is_contiguous()) return empty(indexing.sizes, self.scalar_type(), self.device().index());
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).add_owned_output(at::Tensor());
  config.add_owned_const_input(indexing.self.as_strided(indexing.sizes, indexing.self_strides));
  for (const at::Tensor& index : indexing.indices) {
    config.add_owned_const_input(index.as_strided(indexing.sizes, indexing.index_strides(index)));
  }
  config.declare_static_dtype_and_device(self.scalar_type(), self.device());
  return config.build().output();
}

bool index(Call& call) {
  const at::Tensor& self = call.tensor(0);
  if (!is_movable(self)) return false;
  const auto indexing = read_indices(self, call[1]);
  if (!indexing) return false;
  at::Tensor out;
  if (call.is_functional()) {
    out = new_indexed(*indexing, self);
  } else {
    if (call.given()->is_alias_of(self) || repeats_places(*call.given())) return false;
    for (const at::Tensor& index : indexing->indices) {
      if (call.given()->is_alias_of(index)) return false;
    }
    out = call.output(indexing->sizes, self.scalar_type(), self.device());
    if (!out.defined()) return false;
  }
  const c10::ScalarType bits = bits_of(self.scalar_type());
  Walk walk("index", indexing->sizes, self.device().index());
  walk.reports();
  walk.write(out, bits, out.strides()).read(indexing->self, bits, indexing->self_strides);
  add_indices(walk, *indexing);
  const size_t count = indexing->indices.size();
  const std::string body = join(find_place(count, 2, "i1"), "p0[i0] = is_in ? p1[at] : 0;");
  if (!walk.run(body)) return false;
  call.give(std::move(out));
  return true;
}

bool index_put(Call& call) {
  const at::Tensor& self = call.tensor(0);
  at::Tensor values = call.tensor(2);
  const bool sums = call[3].toBool();
  if (values.defined() && values.dim() == 0 && values.device().type() == c10::kCPU) values = values.to(self.device());
  const bool has_complex = has_parts(self) && !repeats_places(self);
  if (!(has_complex ? is_movable(values) : is_usable(self) && is_usable(values)) || values.scalar_type() != self.scalar_type() ||
      values.device() != self.device() || repeats_places(self) || self.is_alias_of(values) || (sums && self.scalar_type() == c10::kBool)) {
    return false;
  }
  const auto list = call[1].toListRef();
  if (!sums && values.numel() == 1 && list.size() == 1 && list[0].isTensor() && list[0].toTensor().scalar_type() == c10::kBool &&
      list[0].toTensor().device() == self.device()) {
    at::Tensor mask = list[0].toTensor();
    if (mask.dim() == 0 || mask.dim() > self.dim() || mask.sizes() != self.sizes().slice(0, static_cast<size_t>(mask.dim()))) return false;
    for (int64_t d = mask.dim(); d < self.dim(); ++d) mask = mask.unsqueeze(-1);
    self.masked_fill_(mask, values.reshape({}));
    call.give(self);
    return true;
  }
  if (has_complex) {
    const c10::IValue arguments[] = {self, call[1], values, call[3], call[4]};
    Call each(arguments, 5, call.form());
    return compute_parts(each, &index_put) && (call.give(self), true);
  }
  auto indexing = read_indices(self, call[1]);
  if (!indexing || !at::is_expandable_to(values.sizes(), indexing->sizes)) return false;
  for (const at::Tensor& index : indexing->indices) {
    if (self.is_alias_of(index)) return false;
  }
  const c10::DeviceIndex device = self.device().index();
  const c10::ScalarType dtype = self.scalar_type();
  const size_t count = indexing->indices.size();
  const bool is_atomic = sums && has_atomic(device, dtype);
  const bool is_ordered = (sums && !is_atomic) || (!sums && at::globalContext().deterministicAlgorithms());
  at::Tensor source = values.expand(indexing->sizes);
  if (is_ordered && indexing->index_dims != 1) {  // merges the indices' dimensions into one, which is walked in order
    source = indexing->index_dims == 0 ? source.unsqueeze(indexing->before)
                                       : source.flatten(indexing->before, indexing->before + indexing->index_dims - 1);
    for (at::Tensor& index : indexing->indices) index = index.reshape({-1});
    Strides sizes(source.sizes().begin(), source.sizes().end());
    Strides strides(indexing->self_strides.begin(), indexing->self_strides.begin() + indexing->before);
    strides.push_back(0);
    strides.append(indexing->self_strides.begin() + indexing->before + indexing->index_dims, indexing->self_strides.end());
    indexing->sizes = sizes;
    indexing->self_strides = strides;
    indexing->index_dims = 1;
  }
  Walk walk("index_put", indexing->sizes, device);
  walk.reports();
  walk.write(indexing->self, dtype, indexing->self_strides).read(source);
  add_indices(walk, *indexing);
  if (is_ordered) walk.in_order(indexing->before);
  const std::string put = is_atomic ? atomic_add(dtype, "at", "LOAD1(i1)")
                          : sums    ? "STORE0(at, LOAD0(at) + LOAD1(i1));"
                                    : "p0[at] = p1[i1];";
  const std::string body = join(find_place(count, 2, "i0"), "if (is_in) { ", put, " }");
  if (!walk.run(body)) return false;
  call.give(self);
  return true;
}

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"index.Tensor", "index.Tensor_out"}, &index);
  add_operator(kernels, {"_index_put_impl_"}, &index_put);
});

}  // namespace
}  // namespace index_impl
}  // namespace backplane::portable
