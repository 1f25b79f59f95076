// kernels/portable/matrix/product.cpp: chooses a kernel by shape and strides, and launches it.
#include "kernels/portable/matrix/product.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/tiles.h"
#include "modules/target.h"
#include "tensor/tensors.h"

namespace backplane::portable {
namespace product_impl {
namespace {

constexpr int64_t kEnoughGroups = 128;  // keep a device of items busy
constexpr int64_t kSplitDepth = 512;    // the least k per group, where groups share a sum

// The direction of lanes in a thin product: along k, or along the rows of the long side.
enum class Lanes : uint8_t { k, rows };

int64_t reach(const Matrices& matrices, int64_t batches, int64_t rows, int64_t columns) {
  return batches * matrices.batch + rows * matrices.row + columns * matrices.column;
}

bool wide_index(const Target& target, const Product& p) {
  const int64_t furthest = std::max({reach(p.a, p.batches, p.m, p.k), reach(p.b, p.batches, p.k, p.n), reach(p.out, p.batches, p.m, p.n),
                                     reach(p.self, p.batches, p.m, p.n), p.batches * p.m * p.n});
  return target.is_host() || furthest >= (int64_t{1} << 30);
}

int64_t splits_of(const Target& target, int64_t groups, int64_t k) {
  if (target.is_host() || groups >= kEnoughGroups) return 1;
  return std::clamp<int64_t>(kEnoughGroups / std::max<int64_t>(groups, 1), 1, std::max<int64_t>(k / kSplitDepth, 1));
}

c10::ScalarType out_dtype(const Product& p) { return p.keeps_sums ? sum_dtype(p.dtype) : p.dtype; }

// What a launch writes: the result, or parts of its sums.
struct Goal {
  c10::ScalarType dtype;
  Matrices out, self;
  int64_t split_stride = 0;
  uint64_t alpha, beta;

  Goal(const Product& p, const at::Tensor* parts)
      : dtype(parts == nullptr ? out_dtype(p) : sum_dtype(p.dtype)), out(p.out), self(p.self), alpha(p.alpha), beta(p.beta) {
    if (parts == nullptr) return;
    out = {writable_address_of(*parts), p.m * p.n, p.n, 1};
    self = {};
    split_stride = p.batches * p.m * p.n;
    alpha = one_of(p.dtype);
  }
};

bool run_tiles(const Product& p, const Target& target, int64_t splits, const Goal& goal) {
  const bool wide = wide_index(target, p);
  const auto bytes = static_cast<int64_t>(c10::elementSize(sum_dtype(p.dtype)));
  Tiles tiles = tiles_of(target, bytes, false);
  const auto count = [&] { return p.batches * ((p.m + tiles.m - 1) / tiles.m) * ((p.n + tiles.n - 1) / tiles.n); };
  const bool small = !target.is_host() && count() < kEnoughGroups;
  if (small) tiles = tiles_of(target, bytes, true);
  Unit unit(p.device, "matmul.bpc", "matmul", "matmul");
  define_elements(unit, p.dtype, goal.dtype, wide);
  define_tiles(unit, tiles);
  const Function* function = unit.find(1, 4, 24, 1);
  if (function == nullptr) return false;
  const int64_t tile_m = even_tile(target, p.m, tiles.m, tiles.micro_m);
  const int64_t tile_n = even_tile(target, p.n, tiles.n, tiles.micro_n);
  Arguments arguments;
  arguments.words(goal.out.address, p.a.address, p.b.address, goal.self.address, p.batches, p.m, p.n, p.k, splits,
                  (p.k + splits - 1) / splits, tile_m, tile_n);
  for (const Matrices& matrices : {p.a, p.b, goal.self, goal.out}) arguments.words(matrices.batch, matrices.row, matrices.column);
  arguments.words(goal.split_stride, goal.self.address != 0, goal.alpha, goal.beta);
  const int64_t groups = p.batches * splits * ((p.m + tile_m - 1) / tile_m) * ((p.n + tile_n - 1) / tile_n);
  launch_function(p.device, *function, static_cast<uint64_t>(groups), arguments);
  return true;
}

// A thin product as a matrix Q and a few vectors: the columns of b, or the rows of a.
struct Thin {
  int64_t rows, few;
  int64_t q_batch, q_row, q_k, p_batch, p_few, p_k;
  bool is_transposed;  // the long side is out's columns
  Lanes lanes;
};

Thin thin_of(const Product& p) {
  const bool transposed = p.m <= p.n;
  Thin thin = transposed ? Thin{p.n, p.m, p.b.batch, p.b.column, p.b.row, p.a.batch, p.a.row, p.a.column, true, Lanes::k}
                         : Thin{p.m, p.n, p.a.batch, p.a.row, p.a.column, p.b.batch, p.b.column, p.b.row, false, Lanes::k};
  if (thin.rows > 1 && thin.q_k != 1 && thin.q_k >= thin.q_row) thin.lanes = Lanes::rows;
  return thin;
}

// The most vectors of matvec.bpc. On a host, lanes along k end in sums within a vector, and lanes along rows widen halves for each vector.
int64_t most_vectors(const Target& target, const Thin& thin, c10::ScalarType dtype) {
  return !target.is_host() || (thin.lanes == Lanes::rows && sum_dtype(dtype) == dtype) ? 8 : 4;
}

// What the text of matvec.bpc depends on.
struct VectorShape {
  int few = 1, rows;
  uint32_t per_item;

  VectorShape(const Target& target, const Thin& thin) {
    while (few < thin.few) few *= 2;
    const bool along_k = thin.lanes == Lanes::k;
    rows = !along_k ? 0 : target.is_host() ? 16 : 4;
    per_item = target.is_host() ? (along_k ? 1024 : 512) : along_k ? 4 : 1;
  }
};

bool run_vectors(const Product& p, const Target& target, const Thin& thin, int64_t splits, const VectorShape& shape, const Goal& goal) {
  const bool wide = wide_index(target, p);
  Unit unit(p.device, "matvec.bpc", "matvec", "matvec");
  define_elements(unit, p.dtype, goal.dtype, wide);
  const Function* function = unit.define("FEW", shape.few).define("ROWS", shape.rows).find(shape.per_item, 4, 22, 1);
  if (function == nullptr) return false;
  Matrices out = goal.out, self = goal.self;
  if (thin.is_transposed) {
    std::swap(out.row, out.column);
    std::swap(self.row, self.column);
  }
  Arguments arguments;
  arguments.words(out.address, thin.is_transposed ? p.b.address : p.a.address, thin.is_transposed ? p.a.address : p.b.address,
                  self.address);
  arguments.words(p.batches, thin.rows, p.k, thin.few, splits, (p.k + splits - 1) / splits, thin.q_batch, thin.q_row, thin.q_k,
                  thin.p_batch, thin.p_few, thin.p_k);
  for (const Matrices& matrices : {self, out}) arguments.words(matrices.batch, matrices.row, matrices.column);
  arguments.words(goal.split_stride, self.address != 0, goal.alpha, goal.beta);
  const int64_t step = shape.rows > 0 ? shape.rows : function->group * shape.per_item;
  launch_function(p.device, *function, static_cast<uint64_t>(p.batches * splits * ((thin.rows + step - 1) / step)), arguments);
  return true;
}

// Kernels write rows. Where the columns of out are the contiguous ones, as those of a weight's gradient often are: the transposed product.
Product written_along_rows(const Product& p) {
  if (p.out.row >= p.out.column) return p;
  const auto transposed = [](const Matrices& of) { return Matrices{of.address, of.batch, of.column, of.row}; };
  Product out = p;
  std::swap(out.m, out.n);
  out.out = transposed(p.out);
  out.a = transposed(p.b);
  out.b = transposed(p.a);
  out.self = transposed(p.self);
  return out;
}

// The sum over a batch: each product is a part.
bool multiply_and_sum(const Product& product) {
  Product each = product;
  each.sums_batches = false;
  const at::Tensor parts = empty_tensor({product.batches * product.m * product.n}, sum_dtype(product.dtype), product.device);
  Product sum = product;
  sum.batches = 1;
  const uint64_t address = writable_address_of(parts);
  const Target& target = target_of(product.device);
  return run_tiles(each, target, 1, Goal(each, &parts)) && add_parts(sum, product.batches, address);
}

}  // namespace
}  // namespace product_impl

c10::ScalarType sum_dtype(c10::ScalarType dtype) {
  if (dtype == c10::kHalf || dtype == c10::kBFloat16) return c10::kFloat;
  return c10::isIntegralType(dtype, /*includeBool=*/true) && dtype != c10::kLong ? c10::kInt : dtype;
}

uint64_t one_of(c10::ScalarType dtype) {
  const std::string_view compute = compute_type(dtype).view();
  return compute == "f64" ? 0x3ff0000000000000u : compute == "f32" ? 0x3f800000u : 1;
}

void define_elements(Unit& unit, c10::ScalarType dtype, c10::ScalarType out, bool wide_index) {
  const std::string_view type = compute_type(dtype).view();
  unit.element("", dtype).define("C", compute_type(dtype)).index(wide_index).define("OUT", memory_type(out));
  if (out != dtype) unit.name(out);
  unit.define("HALVES", dtype == c10::kHalf).define("BF16", dtype == c10::kBFloat16).define("PLAIN", memory_type(dtype).view() == type);
  unit.store("STORE_OUT(p, i, x)", out, "p, i, x");
  unit.define("SCALARS", type == "f64"   ? Literal("f64 alpha; f64 beta;")
                         : type == "f32" ? Literal("f32 alpha; u32 alpha_; f32 beta; u32 beta_;")
                                         : Literal("i64 alpha; i64 beta;"));
}

bool add_parts(const Product& p, int64_t splits, uint64_t parts) {
  using namespace product_impl;
  const Target& target = target_of(p.device);
  const bool wide = target.is_host() || splits * p.batches * p.m * p.n >= (int64_t{1} << 30) || wide_index(target, p);
  const uint32_t per_item = target.is_host() ? 1024 : 1;
  Unit unit(p.device, "split.bpc", "split", "split");
  define_elements(unit, p.dtype, out_dtype(p), wide);
  const Function* function = unit.find(per_item, 3, 13, 1);
  if (function == nullptr) return false;
  Arguments arguments;
  arguments.words(p.out.address, parts, p.self.address, splits, p.batches, p.m, p.n);
  for (const Matrices& matrices : {p.self, p.out}) arguments.words(matrices.batch, matrices.row, matrices.column);
  arguments.words(p.self.address != 0, p.alpha, p.beta);
  launch_function(p.device, *function, static_cast<uint64_t>(p.batches * p.m * p.n) / (function->group * per_item) + 1, arguments);
  return true;
}

bool multiply(const Product& product) {
  using namespace product_impl;
  const Target& target = target_of(product.device);
  if (!has_dtype(target, product.dtype)) return false;
  if (product.sums_batches) return multiply_and_sum(product);
  const Product p = written_along_rows(product);
  const Thin thin = thin_of(p);
  const bool is_thin = thin.few <= most_vectors(target, thin, p.dtype);
  const VectorShape shape(target, thin);
  int64_t splits;
  if (is_thin) {
    const int64_t step = shape.rows > 0 ? shape.rows : target.properties.group_size * shape.per_item;
    splits = splits_of(target, p.batches * ((thin.rows + step - 1) / step), p.k);
  } else {
    const Tiles tiles = tiles_of(target, static_cast<int64_t>(c10::elementSize(sum_dtype(p.dtype))), true);
    splits = splits_of(target, p.batches * ((p.m + tiles.m - 1) / tiles.m) * ((p.n + tiles.n - 1) / tiles.n), p.k);
  }
  at::Tensor parts;
  if (splits > 1) parts = empty_tensor({splits * p.batches * p.m * p.n}, sum_dtype(p.dtype), p.device);
  const Goal goal(p, splits > 1 ? &parts : nullptr);
  if (!(is_thin ? run_vectors(p, target, thin, splits, shape, goal) : run_tiles(p, target, splits, goal))) return false;
  return splits == 1 || add_parts(p, splits, address_of(parts));
}

// The real (0) or imaginary (1) parts, as floats.
static Matrices part_of(const Matrices& matrices, uint64_t part) {
  if (matrices.address == 0) return matrices;
  return {matrices.address + part * sizeof(float), 2 * matrices.batch, 2 * matrices.row, 2 * matrices.column};
}

bool multiply_parts(const Product& p, double alpha, double beta, bool conj_a, bool conj_b) {
  const double sign_a = conj_a ? -1 : 1, sign_b = conj_b ? -1 : 1;
  const auto add = [&](uint64_t a, uint64_t b, double by, bool is_first) {
    Product part = p;
    part.dtype = c10::kFloat;
    part.a = part_of(p.a, a);
    part.b = part_of(p.b, b);
    part.out = part_of(p.out, a ^ b);
    part.self = is_first ? part_of(p.self, a ^ b) : part.out;
    part.alpha = word_of(alpha * by, c10::kFloat);
    part.beta = word_of(is_first ? beta : 1, c10::kFloat);
    return multiply(part);
  };
  return add(0, 0, 1, true) && add(1, 1, -sign_a * sign_b, false) && add(0, 1, sign_b, true) && add(1, 0, sign_a, false);
}

}  // namespace backplane::portable
