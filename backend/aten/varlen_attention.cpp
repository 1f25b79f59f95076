// aten/varlen_attention.cpp: attention over packed sequences of different lengths, as torch.nn.attention.varlen calls it
// (_flash_attention_forward), and its memory-efficient form, composed of products and a softmax, sequence by sequence. Batches of one
// length are computed whole. The CPU has no such kernels.
//
// Tensors have the shape (batch, length, heads, size), or (all lengths, heads, size) with the offsets where sequences begin, which are read
// on the host. Arguments are accessed by name, since versions of torch add some.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "aten/attention_parts.h"
#include "dispatch/defaults.h"
#include "runtime/options.h"

namespace backplane::varlen_attention_impl {
namespace {

using attention_parts::dropout_factors;
using attention_parts::DropoutPlace;
using attention_parts::for_every_head;
using attention_parts::sum_over_sharers;
using attention_parts::take_dropout;

// A call's arguments by name. Those that this torch's schema does not have are None.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {
    const size_t count = op.schema().arguments().size();
    values_.assign(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    stack->resize(stack->size() - count);
  }
  c10::IValue operator[](const char* name) const {
    const auto index = op_.schema().argumentIndexWithName(name);
    return index ? values_[static_cast<size_t>(*index)] : c10::IValue();
  }
  at::Tensor tensor(const char* name) const {
    const c10::IValue value = (*this)[name];
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  // CUDA's kernels support these arguments; the composition does not.
  void refuse(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const c10::IValue value = (*this)[name];
      TORCH_CHECK_NOT_IMPLEMENTED(value.isNone() || (value.isTensor() && !value.toTensor().defined()), op_.operator_name().name, " on ",
                                  device_name(), " does not support ", name);
    }
  }
  template <typename... Results>
  void answer(Results&&... results) {
    (stack_->emplace_back(std::forward<Results>(results)), ...);
  }

 private:
  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  std::vector<c10::IValue> values_;
};

// Which keys a query attends to: aligned at the end of the keys (flash attention) or at their start, and how many before and after it.
struct Mask {
  bool at_end = true;
  std::optional<int64_t> left, right;
};

struct Options {
  Mask mask;
  double dropout_p = 0;
  double scale = 1;
  DropoutPlace place = {};
};

c10::ScalarType compute_dtype(const at::Tensor& query) { return query.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat; }

// (batch, heads, length, size) of (batch, length, heads, size), in the dtype of computation.
at::Tensor by_head(const at::Tensor& tensor) { return tensor.transpose(1, 2).to(compute_dtype(tensor)); }

at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& bias, const Options& options) {
  at::Tensor scores = at::matmul(query * options.scale, key.transpose(-2, -1));
  if (bias.defined()) scores = scores + bias;
  const Mask& mask = options.mask;
  if (!mask.left && !mask.right) return scores;
  const auto numbers = query.options().dtype(c10::kLong);
  const int64_t shift = mask.at_end ? key.size(2) - query.size(2) : 0;
  const at::Tensor behind = at::arange(key.size(2), numbers).unsqueeze(0) - at::arange(query.size(2), numbers).unsqueeze(1) - shift;
  const auto hide = [&](const at::Tensor& hidden) { scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity()); };
  if (mask.right) hide(behind.gt(*mask.right));
  if (mask.left) hide(behind.lt(-*mask.left));
  return scores;
}

// The result (batch, length, heads, size) and the logarithms of the sums (batch, heads, length).
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
                                         const Options& options) {
  const at::Tensor q = by_head(query), k = for_every_head(by_head(key), q), v = for_every_head(by_head(value), q);
  const at::Tensor scores = scores_of(q, k, bias, options);
  at::Tensor weights = at::_safe_softmax(scores, -1);
  if (options.dropout_p > 0) weights = weights * dropout_factors(weights, options.dropout_p, options.place);
  return {at::matmul(weights, v).transpose(1, 2).to(query.scalar_type()), at::logsumexp(scores, -1)};
}

// The sum over the heads of query that share a head.
at::Tensor gradient_like(const at::Tensor& like, const at::Tensor& gradient) {
  return sum_over_sharers(gradient, like.size(2)).transpose(1, 2).to(like.scalar_type());
}

struct Gradients {
  at::Tensor query, key, value, scores;
};

Gradients attend_backward(const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const at::Tensor& bias, const Options& options) {
  const at::Tensor q = by_head(query), k = for_every_head(by_head(key), q), v = for_every_head(by_head(value), q);
  const at::Tensor grad = by_head(grad_out);
  const at::Tensor weights = at::_safe_softmax(scores_of(q, k, bias, options), -1);
  at::Tensor grad_weights = at::matmul(grad, v.transpose(-2, -1));
  at::Tensor dropped = weights;
  if (options.dropout_p > 0) {
    const at::Tensor factors = dropout_factors(weights, options.dropout_p, options.place);
    grad_weights = grad_weights * factors;
    dropped = weights * factors;
  }
  const at::Tensor grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, /*keepdim=*/true));
  return {gradient_like(query, at::matmul(grad_scores, k) * options.scale),
          gradient_like(key, at::matmul(grad_scores.transpose(-2, -1), q) * options.scale),
          gradient_like(value, at::matmul(dropped.transpose(-2, -1), grad)), grad_scores};
}

// -- sequences -----------------------------------------------------------------------------------------------------------------------

struct Piece {
  int64_t query_begin, query_end, key_begin, key_end;

  // Numbers of the generator that its dropout takes.
  int64_t numbers(int64_t heads) const { return (heads * (query_end - query_begin) * (key_end - key_begin) + 3) / 4 * 4; }
};

// Where sequences begin, and the end: int32, one more than the number of sequences.
std::vector<int64_t> places(const char* name, const at::Tensor& begins, int64_t length) {
  TORCH_CHECK(begins.dim() == 1 && begins.numel() > 0 && begins.scalar_type() == c10::kInt, name,
              " must be a vector of int32, with one element more than there are sequences, and is ", begins.scalar_type(), " of ",
              begins.sizes());
  const at::Tensor host = begins.to(c10::kCPU, c10::kLong).contiguous();
  std::vector<int64_t> found(host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel());
  TORCH_CHECK(found.front() >= 0 && found.back() <= length, name, " must be between 0 and the length ", length);
  for (size_t i = 1; i < found.size(); ++i) TORCH_CHECK(found[i - 1] <= found[i], name, " must not decrease");
  return found;
}

std::vector<Piece> pieces_of(const at::Tensor& query_begins, const at::Tensor& key_begins, int64_t query_length, int64_t key_length) {
  const auto queries = places("cum_seq_q", query_begins, query_length), keys = places("cum_seq_k", key_begins, key_length);
  TORCH_CHECK(queries.size() == keys.size(), "cum_seq_q and cum_seq_k must have one length, and have ", queries.size(), " and ",
              keys.size());
  std::vector<Piece> pieces;
  for (size_t i = 1; i < queries.size(); ++i) pieces.push_back({queries[i - 1], queries[i], keys[i - 1], keys[i]});
  return pieces;
}

void check(const char* name, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t dim, double dropout_p) {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    TORCH_CHECK(tensor->dim() == dim, name, ": query, key and value must have ", dim, " dimensions, and one has ", tensor->dim());
    TORCH_CHECK(c10::isFloatingType(tensor->scalar_type()) && tensor->scalar_type() == query.scalar_type(), name,
                ": query, key and value must have one floating point dtype, found ", query.scalar_type(), " and ", tensor->scalar_type());
  }
  TORCH_CHECK(query.size(-1) == key.size(-1), name, ": query and key must have one size of head, and have ", query.size(-1), " and ",
              key.size(-1));
  TORCH_CHECK(key.size(-2) == value.size(-2) && key.size(-3) == value.size(-3), name, ": key and value must have equal heads and lengths");
  TORCH_CHECK(key.size(-2) > 0 && query.size(-2) % key.size(-2) == 0, name,
              ": Number of heads in key/value must divide number of heads in query");
  TORCH_CHECK(dropout_p >= 0 && dropout_p < 1, name, ": dropout_p must be at least 0 and below 1, it is ", dropout_p);
}

// For flash attention: -1 and None are no limit; causal is a limit of 0.
Mask flash_mask(const Arguments& arguments) {
  const auto limit = [&](const char* name) -> std::optional<int64_t> {
    const c10::IValue value = arguments[name];
    return value.isNone() || value.toInt() < 0 ? std::nullopt : std::optional(value.toInt());
  };
  Mask mask{/*at_end=*/true, limit("window_size_left"), limit("window_size_right")};
  if (arguments["is_causal"].toBool()) mask.right = 0;
  return mask;
}

// For memory-efficient attention: 1 is causal from the first key on, 2 up to the last.
Mask efficient_mask(const Arguments& arguments) {
  const int64_t kind = arguments["custom_mask_type"].toInt();
  TORCH_CHECK(kind >= 0 && kind <= 2, "custom_mask_type must be 0 (none), 1 (causal from the top left) or 2 (from the bottom right)");
  Mask mask{/*at_end=*/kind == 2, std::nullopt, std::nullopt};
  if (kind != 0) mask.right = 0;
  return mask;
}

double scale_of(const Arguments& arguments, const at::Tensor& query) {
  const c10::IValue scale = arguments["scale"];
  return scale.isNone() ? 1.0 / std::sqrt(static_cast<double>(query.size(-1))) : scale.toDouble();
}

at::Tensor as_batch(const at::Tensor& tensor, int64_t begin, int64_t end) { return tensor.slice(0, begin, end).unsqueeze(0); }

// With the place of the dropout `numbers` behind its beginning.
Options behind(Options options, int64_t numbers) {
  if (options.dropout_p > 0) options.place.offset = options.place.offset + numbers;
  return options;
}

// Packed sequences (all lengths, heads, size): the result, and the logarithms of the sums of each sequence (heads, length).
std::pair<at::Tensor, std::vector<at::Tensor>> attend_pieces(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                             const std::vector<Piece>& pieces, const Options& options) {
  at::Tensor out = at::zeros({query.size(0), query.size(1), value.size(2)}, query.options());
  std::vector<at::Tensor> sums;
  int64_t numbers = 0;
  for (const Piece& p : pieces) {
    auto [result, sum] = attend(as_batch(query, p.query_begin, p.query_end), as_batch(key, p.key_begin, p.key_end),
                                as_batch(value, p.key_begin, p.key_end), {}, behind(options, numbers));
    numbers += p.numbers(query.size(1));
    out.slice(0, p.query_begin, p.query_end).copy_(result.squeeze(0));
    sums.push_back(sum.squeeze(0));
  }
  return {out, std::move(sums)};
}

Gradients attend_pieces_backward(const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const std::vector<Piece>& pieces, const Options& options) {
  Gradients all{at::zeros_like(query), at::zeros_like(key), at::zeros_like(value), {}};
  int64_t numbers = 0;
  for (const Piece& p : pieces) {
    const Gradients one =
        attend_backward(as_batch(grad_out, p.query_begin, p.query_end), as_batch(query, p.query_begin, p.query_end),
                        as_batch(key, p.key_begin, p.key_end), as_batch(value, p.key_begin, p.key_end), {}, behind(options, numbers));
    numbers += p.numbers(query.size(1));
    all.query.slice(0, p.query_begin, p.query_end).copy_(one.query.squeeze(0));
    all.key.slice(0, p.key_begin, p.key_end).copy_(one.key.squeeze(0));
    all.value.slice(0, p.key_begin, p.key_end).copy_(one.value.squeeze(0));
  }
  return all;
}

// The dropout's place, if there is any: for all pieces of packed sequences, or for a batch of one length.
DropoutPlace take_place(const at::Tensor& query, const at::Tensor& key, const std::vector<Piece>& pieces, double dropout_p) {
  if (dropout_p == 0) return {};
  const int64_t heads = query.size(-2);
  int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.numbers(heads);
  if (query.dim() == 4 && pieces.empty()) count = query.size(0) * heads * query.size(1) * key.size(1);
  return take_dropout(query.device().index(), count);
}

// -- flash attention -----------------------------------------------------------------------------------------------------------------

Options flash_options(const Arguments& arguments, const at::Tensor& query) {
  return {flash_mask(arguments), arguments["dropout_p"].toDouble(), scale_of(arguments, query)};
}

void flash_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments arguments(op, stack);
  arguments.refuse({"seqused_k", "alibi_slopes", "block_table"});
  TORCH_CHECK_NOT_IMPLEMENTED(!arguments["return_debug_mask"].toBool(), "_flash_attention_forward on ", device_name(),
                              " has no debug mask: pass return_debug_mask=False");
  const at::Tensor query = arguments.tensor("query"), key = arguments.tensor("key"), value = arguments.tensor("value");
  const at::Tensor query_begins = arguments.tensor("cum_seq_q"), key_begins = arguments.tensor("cum_seq_k");
  TORCH_CHECK(query_begins.defined() == key_begins.defined(), "cum_seq_q and cum_seq_k must be both set or both not set");
  check("_flash_attention_forward", query, key, value, query_begins.defined() ? 3 : 4, arguments["dropout_p"].toDouble());
  Options options = flash_options(arguments, query);
  const bool is_packed = query_begins.defined();
  const auto pieces = is_packed ? pieces_of(query_begins, key_begins, query.size(0), key.size(0)) : std::vector<Piece>();
  options.place = take_place(query, key, pieces, options.dropout_p);
  at::Tensor out, sums;
  if (is_packed) {
    auto [result, of_pieces] = attend_pieces(query, key, value, pieces, options);
    out = result;
    sums = at::zeros({query.size(1), query.size(0)}, query.options().dtype(c10::kFloat));
    for (size_t i = 0; i < pieces.size(); ++i) sums.slice(1, pieces[i].query_begin, pieces[i].query_end).copy_(of_pieces[i]);
  } else {
    std::tie(out, sums) = attend(query, key, value, {}, options);
    sums = sums.to(c10::kFloat);
  }
  const auto numbers = query.options().dtype(c10::kLong);
  const auto [seed, offset] = options.place;
  const at::Tensor state = seed.defined() ? at::stack({seed, offset}).to(numbers) : at::zeros({2}, numbers);
  const at::Tensor none = at::zeros({}, numbers);
  arguments.answer(out.contiguous(), sums, state.view(c10::kUInt64), none.view(c10::kUInt64), at::empty({0}, query.options()));
}

void flash_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments arguments(op, stack);
  const at::Tensor query = arguments.tensor("query"), key = arguments.tensor("key"), value = arguments.tensor("value");
  const at::Tensor grad_out = arguments.tensor("grad_out"), query_begins = arguments.tensor("cum_seq_q");
  Options options = flash_options(arguments, query);
  if (options.dropout_p > 0) {
    const at::Tensor state = arguments.tensor("rng_state").view(c10::kLong);
    options.place = {state.select(0, 0), state.select(0, 1)};
  }
  Gradients found;
  if (query_begins.defined()) {
    const auto pieces = pieces_of(query_begins, arguments.tensor("cum_seq_k"), query.size(0), key.size(0));
    found = attend_pieces_backward(grad_out, query, key, value, pieces, options);
  } else {
    found = attend_backward(grad_out, query, key, value, {}, options);
  }
  arguments.answer(found.query, found.key, found.value);
}

// -- memory-efficient attention ------------------------------------------------------------------------------------------------------

constexpr int64_t kAlign = 32;  // of the logarithms' rows, as CUDA has them

Options efficient_options(const Arguments& arguments, const at::Tensor& query) {
  return {efficient_mask(arguments), arguments["dropout_p"].toDouble(), scale_of(arguments, query)};
}

// A batch of one that contains packed sequences; empty if all have one length.
std::vector<Piece> efficient_pieces(const Arguments& arguments, const char* queries, const char* keys, const at::Tensor& query,
                                    const at::Tensor& key, const at::Tensor& bias) {
  const at::Tensor query_begins = arguments.tensor(queries), key_begins = arguments.tensor(keys);
  TORCH_CHECK(query_begins.defined() == key_begins.defined(), queries, " and ", keys, " must be both set or both not set");
  if (!query_begins.defined()) return {};
  TORCH_CHECK(query.size(0) == 1 && !bias.defined(), "packed sequences must be a batch of 1, without a bias");
  return pieces_of(query_begins, key_begins, query.size(1), key.size(1));
}

void efficient_forward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments arguments(op, stack);
  arguments.refuse({"seqlen_k", "window_size"});
  const at::Tensor query = arguments.tensor("query"), key = arguments.tensor("key"), value = arguments.tensor("value");
  const at::Tensor bias = arguments.tensor("bias");
  check("_efficient_attention_forward", query, key, value, 4, arguments["dropout_p"].toDouble());
  Options options = efficient_options(arguments, query);
  const bool is_packed = arguments.tensor("cu_seqlens_q").defined();
  const auto pieces = efficient_pieces(arguments, "cu_seqlens_q", "cu_seqlens_k", query, key, bias);
  options.place = take_place(query, key, pieces, options.dropout_p);
  int64_t longest = query.size(1);
  at::Tensor out;
  std::vector<at::Tensor> sums;
  if (is_packed) {
    longest = arguments["max_seqlen_q"].toInt();
    std::tie(out, sums) = attend_pieces(query.squeeze(0), key.squeeze(0), value.squeeze(0), pieces, options);
    out = out.unsqueeze(0);
  } else {
    auto [result, sum] = attend(query, key, value, bias, options);
    out = result;
    sums = sum.unbind(0);
  }
  const int64_t width = arguments["compute_log_sumexp"].toBool() ? (longest + kAlign - 1) / kAlign * kAlign : 0;
  const at::Tensor all = at::full({static_cast<int64_t>(sums.size()), query.size(2), width}, std::numeric_limits<float>::infinity(),
                                  query.options().dtype(c10::kFloat));
  for (size_t i = 0; width > 0 && i < sums.size(); ++i) all[static_cast<int64_t>(i)].slice(-1, 0, sums[i].size(-1)).copy_(sums[i]);
  const auto numbers = query.options().dtype(c10::kLong);
  const auto number = [&](const at::Tensor& value) { return value.defined() ? value.to(numbers) : at::zeros({}, numbers); };
  const c10::IValue longest_key = arguments["max_seqlen_k"];
  arguments.answer(out.contiguous(), all, number(options.place.seed), number(options.place.offset), longest,
                   longest_key.isNone() ? key.size(1) : longest_key.toInt());
}

void efficient_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments arguments(op, stack);
  arguments.refuse({"window_size"});
  const at::Tensor query = arguments.tensor("query"), key = arguments.tensor("key"), value = arguments.tensor("value");
  const at::Tensor grad_out = arguments.tensor("grad_out_"), bias = arguments.tensor("bias");
  Options options = efficient_options(arguments, query);
  options.place = {arguments.tensor("philox_seed"), arguments.tensor("philox_offset")};
  Gradients found;
  if (arguments.tensor("cu_seqlens_q").defined()) {
    const auto pieces = efficient_pieces(arguments, "cu_seqlens_q", "cu_seqlens_k", query, key, bias);
    found = attend_pieces_backward(grad_out.squeeze(0), query.squeeze(0), key.squeeze(0), value.squeeze(0), pieces, options);
    for (at::Tensor* each : {&found.query, &found.key, &found.value}) *each = each->unsqueeze(0);
  } else {
    found = attend_backward(grad_out, query, key, value, bias, options);
  }
  const bool wants_bias = arguments["bias_requires_grad"].toBool() && bias.defined();
  arguments.answer(found.query, found.key, found.value,
                   wants_bias ? found.scores.sum_to_size(bias.sizes()).to(bias.scalar_type()) : at::Tensor());
}

const Defaults defaults([](DefaultKernels& m) {
  m.impl_boxed<&flash_forward>("_flash_attention_forward");
  m.impl_boxed<&flash_backward>("_flash_attention_backward");
  m.impl_boxed<&efficient_forward>("_efficient_attention_forward");
  m.impl_boxed<&efficient_backward>("_efficient_attention_backward");
});

}  // namespace
}  // namespace backplane::varlen_attention_impl
