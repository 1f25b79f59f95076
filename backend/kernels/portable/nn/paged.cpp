// kernels/portable/nn/paged.cpp: attention over a cache of keys and values in pages, and writing to the cache, for programs that serve
// models. torch_backplane/paged.py defines both operators, checks their operands, and computes what these kernels do not support.
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "dispatch/defaults.h"
#include "kernels/portable/nn/attention_unit.h"
#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"
#include "modules/target.h"
#include "runtime/reports.h"

namespace backplane::portable {
namespace paged_impl {
namespace {

constexpr int64_t kNoWindow = int64_t{1} << 30;

// A tensor of `dim` dimensions on that device whose last dimension has stride 1.
bool is_lines(const at::Tensor& tensor, int64_t dim, c10::Device device) {
  return tensor.dim() == dim && tensor.device() == device && tensor.layout() == c10::kStrided && !tensor.is_neg() &&
         (tensor.stride(-1) == 1 || tensor.size(-1) == 1);
}

// Query, key, value or out: (tokens, heads, size), of a dtype that is computed in float32.
bool is_rows(const at::Tensor& tensor, c10::Device device) {
  const c10::ScalarType dtype = tensor.scalar_type();
  return is_lines(tensor, 3, device) && (dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16);
}

// (pages, tokens of a page, heads, size)
bool is_cache(const at::Tensor& tensor, c10::Device device) {
  const c10::ScalarType dtype = tensor.scalar_type();
  return is_lines(tensor, 4, device) && (dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16 ||
                                         dtype == c10::kFloat8_e4m3fn || dtype == c10::kFloat8_e5m2 || dtype == c10::kChar);
}

bool are_caches(const at::Tensor& keys, const at::Tensor& values, c10::Device device) {
  return is_cache(keys, device) && is_cache(values, device) && keys.scalar_type() == values.scalar_type() &&
         keys.sizes() == values.sizes() && keys.strides() == values.strides() && keys.numel() > 0;
}

bool is_places(const at::Tensor& tensor, int64_t dim, c10::Device device) {
  return is_lines(tensor, dim, device) && (tensor.scalar_type() == c10::kInt || tensor.scalar_type() == c10::kLong);
}

// None, or a number for each of `count`.
bool is_numbers(const at::Tensor& tensor, int64_t count, c10::Device device) {
  return !tensor.defined() || (is_float(tensor) && tensor.device() == device && tensor.numel() == count && tensor.is_contiguous());
}

// The scales of a cache: none, a number each for all elements, or one for each head of a token.
struct Scales {
  at::Tensor keys, values;

  bool are_of_rows() const { return (keys.defined() && keys.dim() == 3) || (values.defined() && values.dim() == 3); }
  // An int8 cache needs those of rows.
  bool fit(const at::Tensor& cache, c10::Device device) const {
    if (!are_of_rows()) return cache.scalar_type() != c10::kChar && is_numbers(keys, 1, device) && is_numbers(values, 1, device);
    return cache.element_size() == 1 && is_float32(keys, device) && is_float32(values, device) &&
           keys.sizes() == cache.sizes().slice(0, 3) && values.sizes() == keys.sizes() && values.strides() == keys.strides();
  }
  // Of pages, tokens and heads.
  int64_t stride(int64_t dim) const { return are_of_rows() ? keys.stride(dim) : 0; }

 private:
  static bool is_float32(const at::Tensor& tensor, c10::Device device) {
    return tensor.defined() && tensor.scalar_type() == c10::kFloat && tensor.device() == device && tensor.layout() == c10::kStrided;
  }
};

class Operands : public AttentionOperands {
 public:
  using AttentionOperands::AttentionOperands;

  void places(const at::Tensor& tensor, Literal name, Literal word) {
    unit_.read(name, tensor.scalar_type()).define(word, Literal("("), name, Literal("[i])"));
    arguments_.read(tensor);
  }
  void scale(const at::Tensor& tensor, Literal name, Literal word, Literal place) {
    if (tensor.defined()) {
      read(tensor, name, word, place);
    } else {
      unit_.define(word, Literal("1.0f"));
    }
  }
};

bool attend(Call& call) {
  const at::Tensor &query = call.tensor(0), &key_cache = call.tensor(1), &value_cache = call.tensor(2), &block_table = call.tensor(3),
                   &seq_lens = call.tensor(4), &query_starts = call.tensor(5), &out = call.tensor(6);
  const double scale = call[7].toDouble(), softcap = call[11].toDouble();
  const int64_t window = call[10].toInt();
  const at::Tensor sinks = call.tensor_or_none(12), slopes = call.tensor_or_none(13);
  const Scales scales{call.tensor_or_none(14), call.tensor_or_none(15)};
  const c10::Device device = query.device();
  if (!is_rows(query, device) || !is_rows(out, device) || out.sizes() != query.sizes() || !are_caches(key_cache, value_cache, device) ||
      !is_places(block_table, 2, device) || !is_places(seq_lens, 1, device) || !is_places(query_starts, 1, device)) {
    return false;
  }
  const int64_t tokens = query.size(0), heads = query.size(1), size = query.size(2), kv_heads = key_cache.size(2);
  const int64_t requests = seq_lens.size(0);
  if (heads % kv_heads != 0 || key_cache.size(3) != size || block_table.size(0) != requests || query_starts.size(0) != requests + 1 ||
      window < 0 || !(softcap >= 0) || !is_numbers(sinks, heads, device) || !is_numbers(slopes, heads, device) ||
      !scales.fit(key_cache, device)) {
    return false;
  }
  if (query.numel() == 0 || requests == 0) return true;
  const Target& target = target_of(device.index());
  const std::optional<AttentionTile> tile = AttentionTile::of(target, heads / kv_heads, size, call[8].toInt());
  if (!tile) return false;

  Unit unit(device.index(), "attention.bpc", "attention", "paged_attention");
  unit.compute_in(query.scalar_type()).file("local_product.bpc").name(key_cache.scalar_type());
  Arguments arguments;
  Operands operands(unit, arguments);
  operands.write(out, "out", "STORE(i, v)", "out, i, v");
  operands.read(query, "q", "Q(i)", "q, i");
  operands.read(key_cache, "keys", "K(i)", "keys, i");
  operands.read(value_cache, "values", "V(i)", "values, i");
  operands.places(block_table, "table", "TABLE(i)");
  operands.places(seq_lens, "lengths", "LENGTH(i)");
  operands.places(query_starts, "starts", "STARTS(i)");
  if (sinks.defined()) operands.read(sinks, "sinks", "SINK(h)", "sinks, h");
  if (slopes.defined()) operands.read(slopes, "slopes", "SLOPE(h)", "slopes, h");
  if (scales.are_of_rows()) {
    operands.read(scales.keys, "k_factors", "K_FACTOR(i)", "k_factors, i");
    operands.read(scales.values, "v_factors", "V_FACTOR(i)", "v_factors, i");
    unit.define("K_SCALE", Literal("1.0f")).define("V_SCALE", Literal("1.0f"));
  } else {
    operands.scale(scales.keys, "k_scale", "K_SCALE", "k_scale, 0");
    operands.scale(scales.values, "v_scale", "V_SCALE", "v_scale, 0");
  }
  unit.record().define("HAS_SINKS", sinks.defined()).define("HAS_SLOPES", slopes.defined()).define("HAS_FACTORS", scales.are_of_rows());
  unit.define("CAUSAL", call[9].toBool()).define("CAPPED", softcap != 0).define_if(key_cache.scalar_type() == c10::kHalf, "IS_F16");
  unit.define("PAGED", 1);
  tile->define(unit, size);
  const Function* function = unit.find(1, 22);
  if (function == nullptr) return false;
  arguments.add(report_record(device.index()));
  const int64_t splits = heads / kv_heads / tile->heads;
  arguments.words(requests, tokens, kv_heads, splits, query.stride(0), query.stride(1), out.stride(0), out.stride(1));
  arguments.words(key_cache.size(0), key_cache.size(1), key_cache.stride(0), key_cache.stride(1), key_cache.stride(2));
  arguments.words(scales.stride(0), scales.stride(1), scales.stride(2));
  arguments.words(block_table.stride(0), block_table.size(1), window == 0 ? kNoWindow : std::min(window, kNoWindow));
  arguments.words(report_site("paged_attention"), word_of(scale, c10::kFloat), word_of(softcap, c10::kFloat));
  launch_function(device.index(), *function, static_cast<uint64_t>((tokens / tile->queries + requests) * kv_heads * splits), arguments);
  raise_visible_reports(device.index());
  return true;
}

bool write(Call& call) {
  const at::Tensor &key = call.tensor(0), &value = call.tensor(1), &key_cache = call.tensor(2), &value_cache = call.tensor(3),
                   &slots = call.tensor(4);
  const Scales scales{call.tensor_or_none(5), call.tensor_or_none(6)};
  const c10::Device device = key.device();
  if (!is_rows(key, device) || !is_rows(value, device) || key.scalar_type() != value.scalar_type() || key.sizes() != value.sizes() ||
      !are_caches(key_cache, value_cache, device) || !is_places(slots, 1, device) || slots.size(0) > key.size(0) ||
      key.size(1) != key_cache.size(2) || key.size(2) != key_cache.size(3) || !scales.fit(key_cache, device)) {
    return false;
  }
  const int64_t tokens = slots.size(0), heads = key.size(1);
  if (tokens == 0) return true;
  const c10::ScalarType kind = key_cache.scalar_type();
  Unit unit(device.index(), "paged_write.bpc", "paged_write", "paged_write");
  unit.compute_in(key.scalar_type()).name(kind);
  Arguments arguments;
  Operands operands(unit, arguments);
  operands.write(key_cache, "key_cache", "STORE_K(i, v)", "key_cache, i, v");
  operands.write(value_cache, "value_cache", "STORE_V(i, v)", "value_cache, i, v");
  operands.read(key, "keys", "K(i)", "keys, i");
  operands.read(value, "values", "V(i)", "values, i");
  operands.places(slots, "slots", "SLOT(i)");
  const uint32_t group = target_of(device.index()).properties.group_size;
  if (scales.are_of_rows()) {
    unit.file("rows.bpc").index(false).define("ROW_ITEMS", group).write("k_factors", c10::kFloat).write("v_factors", c10::kFloat);
    unit.define("ROUNDED(x)", kind == c10::kChar ? Literal("bp_rint(x)") : Literal("(x)"));
    arguments.write(scales.keys);
    arguments.write(scales.values);
  } else {
    operands.scale(scales.keys, "k_scale", "K_SCALE", "k_scale, 0");
    operands.scale(scales.values, "v_scale", "V_SCALE", "v_scale, 0");
  }
  unit.record().define("SCALES_ROWS", scales.are_of_rows());
  unit.define("MOST", kind == c10::kFloat8_e4m3fn ? 448 : kind == c10::kFloat8_e5m2 ? 57344 : kind == c10::kChar ? 127 : 0);
  const Function* function = unit.find(scales.are_of_rows() && group == 1 ? 16 : 1, 16);
  if (function == nullptr) return false;
  arguments.add(report_record(device.index()));
  arguments.words(tokens, heads, key.size(2), key.stride(0), key.stride(1), value.stride(0), value.stride(1));
  arguments.words(key_cache.size(0) * key_cache.size(1), key_cache.size(1), key_cache.stride(0), key_cache.stride(1), key_cache.stride(2));
  arguments.words(scales.stride(0), scales.stride(1), scales.stride(2));
  arguments.add(report_site("paged_write"));
  launch_function(device.index(), *function, static_cast<uint64_t>(tokens * heads), arguments);
  raise_visible_reports(device.index());
  return true;
}

KernelCounter* const attention_calls = &portable_counter("paged_attention");
KernelCounter* const write_calls = &portable_counter("paged_write");

// The composition computes where there are no compiled kernels, or they do not support the operands.
template <bool (*compute)(Call&), KernelCounter* const& calls>
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Call call(stack->data() + stack->size() - count, count, Call::Form::functional);
  if (!can_compile() || kernel_policy() == KernelPolicy::off || !compute(call)) return decline_portable(op, keys, stack);
  calls->count();
  torch::jit::drop(*stack, count);
}

TORCH_LIBRARY_IMPL(backplane, PrivateUse1, m) {
  if (portable_is_left_out()) return;
  m.impl("paged_attention", torch::CppFunction::makeFromBoxedFunction<&run<&attend, attention_calls>>());
  m.impl("paged_write", torch::CppFunction::makeFromBoxedFunction<&run<&write, write_calls>>());
}

}  // namespace
}  // namespace paged_impl
}  // namespace backplane::portable
