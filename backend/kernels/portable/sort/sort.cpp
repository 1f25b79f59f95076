// kernels/portable/sort/sort.cpp: sorting along a dimension. A device of one item sorts row by row: short rows by counting the elements
// before each one, others by the bytes of the keys. With more items, a group sorts short rows in local memory, and many groups sort a long
// row together.
#include "kernels/portable/sort/sort.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/text.h"
#include "modules/launch.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace sort_impl {
namespace {

constexpr int64_t kRankedBytes = 512;                  // bytes of keys in a row whose elements an item counts against each other
constexpr int64_t kNetwork = 2048;                     // the most elements that a group has in local memory
constexpr int64_t kRowsAtOnce = 64;                    // rows with scratch memory, with one item
constexpr int64_t kScratchBytes = int64_t{256} << 20;  // above it, rows are sorted one after the other
constexpr uint32_t kTile = 8;                          // adjacent elements that an item moves at once
constexpr int64_t kMostParts = 1024;                   // of a long row: one group adds up their counts
constexpr int64_t kLeastTiles = 2;                     // per part

struct Order {
  c10::ScalarType dtype;
  bool is_descending;
  bool is_wide;
  bool has_given;
};

int64_t key_bytes(c10::ScalarType dtype) { return c10::elementSize(dtype) == 8 ? 8 : 4; }
int64_t pair_bytes(const Order& order) { return key_bytes(order.dtype) == 8 || order.is_wide ? 16 : 8; }

// The elements of a group's network in local memory: a key and an i32 each.
int64_t network_size(const Target& target, c10::ScalarType dtype) {
  const uint64_t most = target.properties.local_bytes / static_cast<uint64_t>(key_bytes(dtype) + 4);
  return std::min(kNetwork, static_cast<int64_t>(std::bit_floor(most)));
}

// The elements of a row that an item counts against each other.
int64_t ranked_size(c10::ScalarType dtype) { return kRankedBytes / key_bytes(dtype); }

struct Sides {
  const at::Tensor &x, &given, &values, &places;
  int64_t rows() const { return x.size(0); }
  int64_t size() const { return x.size(1); }
  int64_t kept() const { return places.size(1); }
  c10::DeviceIndex device() const { return x.device().index(); }
};

// Each row by one group, in one launch.
bool sort_at_once(const Sides& sides, const Order& order, const Target& target) {
  enum : uint8_t { ranked, digits, network };
  const auto how = !target.is_host() ? network : sides.size() <= ranked_size(order.dtype) ? ranked : digits;
  const int64_t most = how == network ? network_size(target, order.dtype) : ranked_size(order.dtype);
  Unit unit(sides.device(), "sort.bpc", "sort_rows", "sort");
  define_keys(unit, order.dtype, order.is_descending, order.is_wide);
  unit.define_if(how == network, "NETWORK").define_if(how == ranked, "RANKED").define_if(how == digits, "DIGITS");
  unit.define("MOST", most).define_if(order.has_given, "GIVEN");
  const uint32_t pointers = 3 + (order.has_given ? 1 : 0) + (how == digits ? 1 : 0);
  const uint64_t written = how == digits ? uint64_t{1} << (pointers - 1) | 3 : 3;
  const Function* const sort = unit.define("POINTERS", pointers).find(1, pointers, 4, written);
  if (sort == nullptr) return false;
  const auto span = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sides.size())));
  int64_t groups = sides.rows();
  at::Tensor scratch;
  if (how == digits) {
    const int64_t bytes = 2 * sides.size() * pair_bytes(order);
    groups = std::clamp<int64_t>(kScratchBytes / bytes, 1, std::min(sides.rows(), kRowsAtOnce));
    scratch = empty({groups * bytes}, c10::kByte, sides.device());
  } else if (how == network) {
    groups = sides.rows() / (most / span) + 1;
  } else {
    groups = sides.rows() / sort->group + 1;
  }
  Arguments arguments;
  arguments.write(sides.values).write(sides.places).read(sides.x);
  if (order.has_given) arguments.read(sides.given);
  if (scratch.defined()) arguments.write(scratch);
  arguments.words(sides.rows(), sides.size(), sides.kept(), span);
  launch_function(sides.device(), *sort, static_cast<uint64_t>(groups), arguments);
  return true;
}

// Each row by all groups.
bool sort_together(const Sides& sides, const Order& order, const Target& target) {
  const int bits = digit_bits(target);
  const auto find = [&](Literal word, Literal kernel, uint32_t pointers, uint64_t written) {
    Unit unit(sides.device(), "radix.bpc", kernel, "sort");
    define_keys(unit, order.dtype, order.is_descending, order.is_wide);
    unit.define_if(order.has_given, "GIVEN").define(word, 1).define("DIGIT_BITS", bits).define("POINTERS", pointers);
    return unit.find(kTile, pointers, 6, written);
  };
  const Function* const start = find("START", "radix_start", 2, 1);
  const Function* const count = find("COUNT", "radix_count", 2, 1);
  const Function* const offsets = find("OFFSETS", "radix_offsets", 1, 1);
  const Function* const move = find("MOVE", "radix_move", 3, 1);
  const Function* const finish = find("FINISH", "radix_finish", order.has_given ? 5 : 4, 3);
  if (start == nullptr || count == nullptr || offsets == nullptr || move == nullptr || finish == nullptr) return false;
  const int64_t rows = sides.rows(), size = sides.size();
  const int64_t tile = int64_t{move->group} * kTile;
  const int64_t part = std::max(kLeastTiles, (size + kMostParts * tile - 1) / (kMostParts * tile)) * tile;
  const int64_t parts = (size + part - 1) / part;
  at::Tensor from = empty({rows * size * pair_bytes(order)}, c10::kByte, sides.device());
  at::Tensor to = empty(from.sizes(), c10::kByte, sides.device());
  const at::Tensor counts = empty({(rows << bits) * parts}, c10::kLong, sides.device());
  int64_t shift = 0;
  const auto launch = [&](const Function& function, int64_t groups, std::initializer_list<const at::Tensor*> written,
                          std::initializer_list<const at::Tensor*> read) {
    Arguments arguments;
    for (const at::Tensor* tensor : written) arguments.write(*tensor);
    for (const at::Tensor* tensor : read) {
      if (tensor->defined()) arguments.read(*tensor);
    }
    arguments.words(rows, size, sides.kept(), parts, part, shift);
    launch_function(sides.device(), function, static_cast<uint64_t>(groups), arguments);
  };
  launch(*start, rows * parts, {&from}, {&sides.x});
  const int64_t key_bits = order.dtype == c10::kBool ? 1 : static_cast<int64_t>(c10::elementSize(order.dtype)) * 8;
  for (; shift < key_bits; shift += bits) {
    launch(*count, rows * parts, {&counts}, {&from});
    launch(*offsets, rows, {&counts}, {});
    launch(*move, rows * parts, {&to}, {&from, &counts});
    std::swap(from, to);
  }
  launch(*finish, rows * parts, {&sides.values, &sides.places}, {&sides.x, &from, &sides.given});
  return true;
}

}  // namespace
}  // namespace sort_impl

Rows rows_of(const at::Tensor& tensor, int64_t dim) {
  const int64_t size = tensor.dim() == 0 ? 1 : tensor.size(dim);
  const at::Tensor moved = tensor.dim() == 0 ? tensor : tensor.movedim(dim, -1).contiguous();
  const int64_t count = size == 0 ? 0 : tensor.numel() / size;
  return {moved.reshape({count, size}), count, size};
}

std::optional<ValuesAndPlaces> outputs_of(const Call& call, const at::Tensor& self, at::IntArrayRef sizes) {
  const at::Tensor *const values = call.given(0, 2), *const places = call.given(1, 2);
  if (values != nullptr && !can_become(*values, sizes, self.scalar_type(), {self})) return std::nullopt;
  if (places != nullptr && !can_become(*places, sizes, c10::kLong, {self, *values})) return std::nullopt;
  return ValuesAndPlaces{Output(call, sizes, self.scalar_type(), self.device(), 0, 2),
                         Output(call, sizes, c10::kLong, self.device(), 1, 2)};
}

void define_keys(Unit& unit, c10::ScalarType dtype, bool is_descending, bool is_wide) {
  const auto bytes = c10::elementSize(dtype);
  unit.file("keys.bpc").name(dtype).define("T", "u", bytes * 8).define("KEY", "u", bytes == 8 ? 64 : 32).define("KEY_BITS", bytes * 8);
  unit.define("PLACE", "i", is_wide ? 64 : 32).define_if(is_descending, "KEY_DESCENDING");
  if (c10::isFloatingType(dtype)) {
    unit.define("KEY_FLOAT", dtype == c10::kHalf       ? Literal("0x7c00u")
                             : dtype == c10::kBFloat16 ? Literal("0x7f80u")
                             : dtype == c10::kFloat    ? Literal("0x7f800000u")
                                                       : Literal("0x7ff0000000000000u"));
  } else {
    unit.define_if(dtype == c10::kBool, "KEY_BOOL").define_if(dtype != c10::kBool && dtype != c10::kByte, "KEY_SIGNED");
  }
}

int digit_bits(const Target& target) {
  // One count for each item and digit, two for each digit, and four numbers of at most 8 bytes for each item.
  const uint64_t items = target.properties.group_size;
  int bits = 4;
  while (bits > 1 && (((items + 2) << bits) + 4 * items) * 8 > target.properties.local_bytes) --bits;
  return bits;
}

bool is_short_row(const Target& target, c10::ScalarType dtype, int64_t size) {
  return size <= (target.is_host() ? sort_impl::ranked_size(dtype) : sort_impl::network_size(target, dtype));
}

bool sort_rows(const at::Tensor& x, bool is_descending, const at::Tensor& given, const at::Tensor& values, const at::Tensor& places) {
  if (places.numel() == 0) return true;
  const Target& target = target_of(x.device().index());
  const sort_impl::Sides sides{x, given, values, places};
  const sort_impl::Order order{x.scalar_type(), is_descending, has_wide_places(sides.size()), given.defined()};
  if (target.is_host() || is_short_row(target, order.dtype, sides.size())) return sort_at_once(sides, order, target);
  return sort_together(sides, order, target);
}

namespace sort_impl {
namespace {

// Sorts into tensors of self's sizes, directly if the dimension is the innermost one in memory in all of them.
bool sort_into(const at::Tensor& self, int64_t dim, bool is_descending, const at::Tensor& values, const at::Tensor& places) {
  if (self.numel() == 0) return true;
  if (self.dim() == 0) {
    return sort_rows(self.reshape({1, 1}), is_descending, {}, values.view({1, 1}), places.view({1, 1}));
  }
  // The dimensions in memory order.
  c10::SmallVector<int64_t, 6> dims(static_cast<size_t>(self.dim()));
  for (int64_t d = 0; d < self.dim(); ++d) dims[d] = d;
  sort_few(dims, [&](int64_t a, int64_t b) {
    const auto far = [&](int64_t d) { return d == dim && (values.stride(d) == 1 || values.size(d) == 1) ? -1 : values.stride(d); };
    return far(a) > far(b);
  });
  const at::Tensor in = self.permute(dims), to = values.permute(dims), to_places = places.permute(dims);
  if (dims.back() == dim && to.is_contiguous() && to_places.is_contiguous()) {
    const std::array<int64_t, 2> shape{self.numel() / self.size(dim), self.size(dim)};
    return sort_rows(in.contiguous().view(shape), is_descending, {}, to.view(shape), to_places.view(shape));
  }
  const Rows rows = rows_of(self, dim);
  const c10::DeviceIndex device = self.device().index();
  const at::Tensor sorted = empty(rows.x.sizes(), self.scalar_type(), device), stood = empty(rows.x.sizes(), c10::kLong, device);
  if (!sort_rows(rows.x, is_descending, {}, sorted, stood)) return false;
  const at::Tensor moved = values.movedim(dim, -1), moved_places = places.movedim(dim, -1);
  moved.copy_(sorted.view(moved.sizes()));
  moved_places.copy_(stood.view(moved.sizes()));
  return true;
}

// sort.stable(self, stable, dim, descending): always stable
bool sort(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const auto dim = dimension_of(call[2].toInt(), self);
  if (!is_usable(self) || !dim) return false;
  at::Tensor values, places;
  if (call.is_functional()) {
    // As in torch: self's strides, if it is dense.
    const at::DimVector strides = self.is_non_overlapping_and_dense()
                                      ? at::DimVector(self.strides())
                                      : at::DimVector(at::infer_dense_strides(self.sizes(), self.strides()));
    values = empty_strided_tensor(self.sizes(), strides, self.scalar_type(), self.device().index());
    places = empty_strided_tensor(self.sizes(), strides, c10::kLong, self.device().index());
  } else {
    if (!can_become(*call.given(0, 2), self.sizes(), self.scalar_type(), {self})) return false;
    if (!can_become(*call.given(1, 2), self.sizes(), c10::kLong, {self, *call.given(0, 2)})) return false;
    values = call.output(self.sizes(), self.scalar_type(), self.device(), 0, 2);
    places = call.output(self.sizes(), c10::kLong, self.device(), 1, 2);
  }
  if (!sort_into(self, *dim, call[3].toBool(), values, places)) return false;
  call.give(std::move(values));
  call.give(std::move(places));
  return true;
}

const Defaults registered([](DefaultKernels& kernels) { add_operator(kernels, {"sort.stable", "sort.values_stable"}, &sort); });

}  // namespace
}  // namespace sort_impl
}  // namespace backplane::portable
