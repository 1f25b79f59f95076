// kernels/portable/random/random.cpp: random tensors and dropout. Element i of a call, counted row by row whatever the strides, is made of
// fixed numbers of the generator's sequence, so that results depend neither on the target nor on the launch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>
#include <backplane/random.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/portable/unit/call.h"
#include "kernels/portable/unit/dialect.h"
#include "kernels/portable/unit/elementwise.h"
#include "kernels/portable/unit/generator.h"
#include "kernels/portable/unit/text.h"
#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"

namespace backplane::portable {
namespace random_impl {
namespace {

constexpr uint32_t kHostBlocks = 256;
constexpr uint32_t kBlocks = 1;

// How elements are made of numbers.
struct Recipe {
  Literal name;
  int each;                               // elements per block
  int numbers;                            // numbers of the sequence per element: 4 / each
  Part make;                              // in the words of random.bpc
  c10::ScalarType computed;               // C
  c10::SmallVector<double, 3> floats{};   // f0, f1, ...
  c10::SmallVector<uint64_t, 3> words{};  // w0, w1, ...
};

struct Operand {
  Literal name, suffix;
  at::Tensor tensor;
  bool is_written;
};

// The struct's members f0, f1, ... and w0, w1, ...
struct Members {
  uint32_t floats, words;
  uint64_t is_double;
};
void write_members(KernelSource& source, const Members& counts) {
  std::string members, begin;
  for (uint32_t k = 0; k < counts.floats; ++k) {
    members += counts.is_double ? join("f64 f", k, "; ") : join("f32 f", k, "; u32 f", k, "_; ");
    append(begin, "const C f", k, " = bp_arg.f", k, "; ");
  }
  for (uint32_t k = 0; k < counts.words; ++k) {
    append(members, "u64 w", k, "; ");
    append(begin, "const u64 w", k, " = bp_arg.w", k, "; ");
  }
  define(source.definitions, "MEMBERS", members);
  define(source.definitions, "BEGIN", begin);
}

// Queues it over dense operands of equal sizes. put: the use of element x at place i.
bool launch_random(const Recipe& recipe, const c10::SmallVector<Operand, 3>& operands, Literal put, int64_t count,
                   const std::optional<at::Generator>& generator) {
  const c10::DeviceIndex device = operands[0].tensor.device().index();
  const Target& target = target_of(device);
  if (!has_dtype(target, recipe.computed)) return false;
  const uint32_t per_item = target.is_host() ? kHostBlocks : kBlocks;
  const Members members{static_cast<uint32_t>(recipe.floats.size()), static_cast<uint32_t>(recipe.words.size()),
                        recipe.computed == c10::kDouble};
  const auto find = [&](bool in_graph) {
    Unit unit(device, "random.bpc", "random_elements", recipe.name);
    define_generator(unit, in_graph);
    for (const Operand& operand : operands) {
      const c10::ScalarType dtype = operand.tensor.scalar_type();
      unit.element(operand.suffix, dtype);
      if (operand.is_written) {
        unit.write(operand.name, dtype);
      } else {
        unit.read(operand.name, dtype);
      }
    }
    unit.compute_in(recipe.computed).file("philox.bpc").define("EACH", recipe.each).define("MAKE", recipe.make).define("PUT(i, x)", put);
    unit.define("IS_DOUBLE", members.is_double).made_by(&write_members, members);
    return unit.find(per_item, 3 + members.floats + members.words);
  };
  // The generator advances only if the kernel is available.
  const Function* function = find(false);
  if (function == nullptr) return false;
  const PhiloxState state = philox_state(generator, device, static_cast<uint64_t>((count + count % 2) * recipe.numbers));
  if (state.in_graph()) function = find(true);
  TORCH_CHECK(function != nullptr, "the kernel ", recipe.name, " for a graph is not there");
  Arguments arguments;
  add_generator(arguments, state);
  for (const Operand& operand : operands) {
    arguments.add(operand.is_written ? writable_address_of(operand.tensor) : address_of(operand.tensor));
  }
  arguments.words(count);
  add_numbers(arguments, state);
  for (const double number : recipe.floats) arguments.add(word_of(number, recipe.computed));
  arguments.all(recipe.words);
  const uint64_t tile = uint64_t{function->group} * per_item * static_cast<uint64_t>(recipe.each);
  launch_function(device, *function, static_cast<uint64_t>(count) / tile + 1, arguments);
  return true;
}

// The compute dtype: numbers of half types are rounded floats.
c10::ScalarType computed_for(c10::ScalarType dtype) { return dtype == c10::kDouble ? c10::kDouble : c10::kFloat; }

bool is_writable(const at::Tensor& self) { return is_usable(self) && !repeats_places(self); }

bool fill(Call& call, const Recipe& recipe, size_t generator) {
  const at::Tensor& self = call.tensor(0);
  if (self.numel() != 0) {
    const at::Tensor dense = self.is_contiguous() ? self : empty(self.sizes(), self.scalar_type(), self.device().index());
    if (!launch_random(recipe, {{"out", "0", dense, true}}, "STORE0(out, i, x)", self.numel(), call.generator(generator))) return false;
    if (!dense.is_same(self)) self.copy_(dense);
  }
  call.give(self);
  return true;
}

// A recipe for floats, from uniform numbers u(k) of the block in [0, 1).
#define UNIFORM_FLOATS                                                           \
  "const f32 u0 = bp_philox_uniform(n0); const f32 u1 = bp_philox_uniform(n1); " \
  "const f32 u2 = bp_philox_uniform(n2); const f32 u3 = bp_philox_uniform(n3); "
#define UNIFORM_DOUBLES "const f64 u0 = bp_philox_uniform64(n0, n1); const f64 u1 = bp_philox_uniform64(n2, n3); "

// e<k> = expression(u<k>), for an expression with @ in the place of u<k>.
std::string of_each(const std::string& expression, bool is_double) {
  std::string text = is_double ? UNIFORM_DOUBLES : UNIFORM_FLOATS;
  for (int k = 0; k < (is_double ? 2 : 4); ++k) {
    append(text, "const C e", k, " = ", replaced(expression, "@", join("u", k)), "; ");
  }
  return text;
}

bool fill_of_uniform(Call& call, Literal name, const std::string& expression, std::initializer_list<double> numbers, size_t generator) {
  const c10::ScalarType computed = computed_for(call.tensor(0).scalar_type());
  const bool is_double = computed == c10::kDouble;
  const std::string make = of_each(expression, is_double);
  Recipe recipe{name, is_double ? 2 : 4, is_double ? 2 : 1, make, computed};
  recipe.floats.assign(numbers.begin(), numbers.end());
  return fill(call, recipe, generator);
}

bool takes_floats(const at::Tensor& self) { return is_writable(self) && c10::isFloatingType(self.scalar_type()); }

bool uniform(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const double from = call[1].toDouble(), to = call[2].toDouble();
  if (!takes_floats(self)) return false;
  const c10::ScalarType dtype = self.scalar_type();
  const double limit = dtype == c10::kHalf ? 65504 : dtype == c10::kDouble ? 1.7e308 : 3.3e38;
  if (!(from <= to) || std::abs(from) > limit || std::abs(to) > limit || to - from > limit) return false;
  // Rounding may reach the end of the range, which is excluded. The element is compared after conversion to its dtype.
  const std::string value = join("bp_to_", dialect_name(dtype), "(@ * f0 + f1)");
  const std::string expression = join(value, " < f2 || f0 == (C)0 ? ", value, " : f1");
  return fill_of_uniform(call, "uniform_", expression, {to - from, from, rounded(to, dtype)}, 3);
}

// Pairs of normal numbers from pairs of uniform ones (Box and Muller). @ is one of them in `finish`.
std::string normal_pairs(bool is_double, const std::string& finish) {
  const auto finished = [&](const char* x) { return replaced(finish, "@", x); };
  if (is_double) {
    return join(UNIFORM_DOUBLES
                "const f64 r = f1 * bp_sqrt64(-2.0 * bp_log64(1.0 - u0)); const f64 turn = 6.283185307179586 * u1; "
                "const f64 e0 = ",
                finished("(r * bp_cos64(turn) + f0)"), "; const f64 e1 = ", finished("(r * bp_sin64(turn) + f0)"), ";");
  }
  return join(UNIFORM_FLOATS
              "const f32 r0 = f1 * bp_sqrt(-2.0f * bp_log(1.0f - u0)); const f32 r1 = f1 * bp_sqrt(-2.0f * bp_log(1.0f - u2)); "
              "f32 c0, s0, c1, s1; BP_COS_SIN_OF_TURNS(u1, c0, s0) BP_COS_SIN_OF_TURNS(u3, c1, s1) "
              "const f32 e0 = ",
              finished("(r0 * c0 + f0)"), "; const f32 e1 = ", finished("(r0 * s0 + f0)"), "; const f32 e2 = ", finished("(r1 * c1 + f0)"),
              "; const f32 e3 = ", finished("(r1 * s1 + f0)"), ";");
}

bool fill_normal(Call& call, Literal name, const char* finish) {
  const at::Tensor& self = call.tensor(0);
  const double mean = call[1].toDouble(), deviation = call[2].toDouble();
  if (!takes_floats(self) || !(deviation >= 0)) return false;
  const c10::ScalarType computed = computed_for(self.scalar_type());
  const bool is_double = computed == c10::kDouble;
  const std::string make = normal_pairs(is_double, finish);
  return fill(call, {name, is_double ? 2 : 4, is_double ? 2 : 1, make, computed, {mean, deviation}}, 3);
}
bool normal(Call& call) {
  if (!has_parts(call.tensor(0))) return fill_normal(call, "normal_", "@");
  // Each part has half of the variance.
  const c10::IValue arguments[] = {at::view_as_real(call.tensor(0)), call[1], call[2].toDouble() * std::sqrt(0.5), call[3]};
  Call parts(arguments, 4, call.form());
  if (!fill_normal(parts, "normal_", "@")) return false;
  call.give(call.tensor(0));
  return true;
}
bool log_normal(Call& call) { return call[2].toDouble() > 0 && fill_normal(call, "log_normal_", "m_exp(@)"); }

bool exponential(Call& call) {
  const double rate = call[1].toDouble();
  if (!takes_floats(call.tensor(0)) || !(rate > 0)) return false;
  // Never 0, also as float16: the smallest other number replaces it.
  const char* expression = call.tensor(0).scalar_type() == c10::kDouble ? "(@ == 0.0 ? 5.5511151231257827e-17 : -m_log(1.0 - @)) * f0"
                                                                        : "(@ == 0.0f ? 5.96046448e-8f : -m_log(1.0f - @)) * f0";
  return fill_of_uniform(call, "exponential_", expression, {1 / rate}, 2);
}

bool cauchy(Call& call) {
  if (!takes_floats(call.tensor(0)) || !(call[2].toDouble() > 0)) return false;
  return fill_of_uniform(call, "cauchy_", "f0 + f1 * m_tan((@ - LIT(0.5)) * LIT(3.14159265358979323846))",
                         {call[1].toDouble(), call[2].toDouble()}, 3);
}

bool geometric(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const double p = call[1].toDouble();
  if (!is_writable(self) || self.scalar_type() == c10::kBool || !(p > 0 && p < 1)) return false;
  return fill_of_uniform(call, "geometric_", "m_max(m_ceil(m_log((C)1 - @) * f0), (C)1)", {1 / std::log1p(-p)}, 2);
}

// p as a threshold for numbers of 32 bits: p * 2^32.
uint64_t threshold(double p) { return static_cast<uint64_t>(std::ldexp(p, 32)); }

bool bernoulli(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const double p = call[1].toDouble();
  if (!is_writable(self) || !(p >= 0 && p <= 1)) return false;
  Recipe recipe{"bernoulli_", 4, 1,
                "const i32 e0 = (u64)n0 < w0 ? 1 : 0; const i32 e1 = (u64)n1 < w0 ? 1 : 0; "
                "const i32 e2 = (u64)n2 < w0 ? 1 : 0; const i32 e3 = (u64)n3 < w0 ? 1 : 0;",
                c10::kFloat};
  recipe.words.push_back(threshold(p));
  return fill(call, recipe, 2);
}

bool bernoulli_tensor(Call& call) {
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& p = call.tensor(1);
  if (!is_writable(self) || !is_usable(p) || !c10::isFloatingType(p.scalar_type()) || p.device() != self.device()) return false;
  const at::Tensor numbers = empty(self.sizes(), c10::kFloat, self.device().index()).uniform_(0, 1, call.generator(2));
  self.copy_(numbers.lt(p));
  call.give(self);
  return true;
}
bool bernoulli_out(Call& call) {
  const at::Tensor& p = call.tensor(0);
  const at::Tensor& given = *call.given();
  if (!is_usable(p) || !c10::isFloatingType(p.scalar_type()) || !is_usable(given) || given.device() != p.device()) return false;
  at::Tensor out = given.resize_(p.sizes());
  out.copy_(empty(p.sizes(), c10::kFloat, p.device().index()).uniform_(0, 1, call.generator(1)).lt(p));
  call.give(std::move(out));
  return true;
}

// --- integers ---

// from ... from + range - 1. From 32 bits if the range has fewer than 2^28 values or is all of them; otherwise from 64 bits, since with 32
// some values would occur up to twice as often as others. The CPU and CUDA have the same limit.
bool fill_whole(Call& call, int64_t from, uint64_t range, size_t generator) {
  const bool is_narrow = range < (uint64_t{1} << 28) || range == (uint64_t{1} << 32);
  Recipe recipe{"random_", is_narrow ? 4 : 2, is_narrow ? 1 : 2,
                is_narrow ? Literal("const i64 e0 = (i64)(w0 + (u64)n0 % w1); const i64 e1 = (i64)(w0 + (u64)n1 % w1); "
                                    "const i64 e2 = (i64)(w0 + (u64)n2 % w1); const i64 e3 = (i64)(w0 + (u64)n3 % w1);")
                          : Literal("const i64 e0 = (i64)(w0 + ((u64)n0 << 32 | (u64)n1) % w1); "
                                    "const i64 e1 = (i64)(w0 + ((u64)n2 << 32 | (u64)n3) % w1);"),
                c10::kFloat};
  recipe.words.push_back(static_cast<uint64_t>(from));
  recipe.words.push_back(range);
  return fill(call, recipe, generator);
}

// The largest integer up to which a dtype represents all integers.
int64_t largest(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBool:
      return 1;
    case c10::kByte:
      return 255;
    case c10::kChar:
      return 127;
    case c10::kShort:
      return 32767;
    case c10::kInt:
      return std::numeric_limits<int32_t>::max();
    case c10::kHalf:
      return 1 << 11;
    case c10::kBFloat16:
      return 1 << 8;
    case c10::kFloat:
      return 1 << 24;
    case c10::kDouble:
      return int64_t{1} << 53;
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

bool random(Call& call) {
  const at::Tensor& self = call.tensor(0);
  return is_writable(self) && fill_whole(call, 0, static_cast<uint64_t>(largest(self.scalar_type())) + 1, 1);
}

bool fill_between(Call& call, int64_t from, int64_t to, size_t generator) {  // `to` is excluded
  const at::Tensor& self = call.tensor(0);
  if (!is_writable(self)) return false;
  const int64_t most = largest(self.scalar_type());
  const int64_t least = c10::isFloatingType(self.scalar_type())                                ? -most
                        : self.scalar_type() == c10::kByte || self.scalar_type() == c10::kBool ? 0
                                                                                               : -most - 1;
  if (from >= to || from < least || to - 1 > most) return false;
  return fill_whole(call, from, static_cast<uint64_t>(to) - static_cast<uint64_t>(from), generator);
}
bool random_to(Call& call) { return fill_between(call, 0, call[1].toInt(), 2); }
bool random_from(Call& call) { return call.has(2) && fill_between(call, call[1].toInt(), call[2].toInt(), 3); }

bool randperm(Call& call) {
  const int64_t n = call[0].toInt();
  const at::Tensor& given = *call.given();
  if (n < 0 || n > std::numeric_limits<int32_t>::max() || !is_usable(given) ||
      (given.scalar_type() != c10::kLong && given.scalar_type() != c10::kInt)) {
    return false;
  }
  const c10::DeviceIndex device = given.device().index();
  const auto find = [&](bool in_graph) {
    Unit unit(device, "shuffle.bpc", "permute", "randperm");
    define_generator(unit, in_graph);
    return unit.element("0", given.scalar_type()).write("out", given.scalar_type()).file("philox.bpc").find(1, 3);
  };
  if (find(false) == nullptr) return false;
  at::Tensor out = call.output({n}, given.scalar_type(), given.device());
  if (n != 0) {
    const at::Tensor dense = out.is_contiguous() ? out : empty(out.sizes(), out.scalar_type(), device);
    const PhiloxState state = philox_state(call.generator(1), device, static_cast<uint64_t>(n));
    const Function* function = find(state.in_graph());
    TORCH_CHECK(function != nullptr, "the kernel randperm for a graph is not there");
    Arguments arguments;
    add_generator(arguments, state);
    arguments.write(dense).words(n);
    add_numbers(arguments, state);
    launch_function(device, *function, 1, arguments);
    if (!dense.is_same(out)) out.copy_(dense);
  }
  call.give(std::move(out));
  return true;
}

// --- dropout ---

bool dropout(Call& call) {
  const at::Tensor& input = call.tensor(0);
  const double p = call[1].toDouble();
  if ((call.has(2) && !call[2].toBool()) || !takes_floats(input) || input.numel() == 0 || !(p >= 0 && p <= 1)) return false;
  const c10::DeviceIndex device = input.device().index();
  const at::Tensor x = input.contiguous();
  at::Tensor mask = empty(input.sizes(), c10::kBool, device);
  at::Tensor out = empty(input.sizes(), input.scalar_type(), device);
  Recipe recipe{"native_dropout",
                4,
                1,
                "const i32 e0 = (u64)n0 < w0 ? 1 : 0; const i32 e1 = (u64)n1 < w0 ? 1 : 0; "
                "const i32 e2 = (u64)n2 < w0 ? 1 : 0; const i32 e3 = (u64)n3 < w0 ? 1 : 0;",
                computed_for(input.scalar_type()),
                {p == 1 ? 0 : 1 / (1 - p)}};
  recipe.words.push_back(threshold(1 - p));
  if (!launch_random(recipe, {{"out", "0", out, true}, {"mask", "1", mask, true}, {"in", "2", x, false}},
                     "{ mask[i] = (u8)(x); STORE0(out, i, LOAD2(in, i) * ((x) != 0 ? f0 : (C)0)); }", input.numel(), std::nullopt)) {
    return false;
  }
  if (!input.is_contiguous()) {
    const auto as_input = [&](const at::Tensor& dense) { return at::empty_like(input, dense.options()).copy_(dense); };
    out = as_input(out);
    mask = as_input(mask);
  }
  call.give(std::move(out));
  call.give(std::move(mask));
  return true;
}

#undef UNIFORM_FLOATS
#undef UNIFORM_DOUBLES

const Defaults registered([](DefaultKernels& kernels) {
  add_operator(kernels, {"uniform_"}, &uniform);
  add_operator(kernels, {"normal_"}, &normal);
  add_operator(kernels, {"log_normal_"}, &log_normal);
  add_operator(kernels, {"exponential_"}, &exponential);
  add_operator(kernels, {"cauchy_"}, &cauchy);
  add_operator(kernels, {"geometric_"}, &geometric);
  add_operator(kernels, {"bernoulli_.float"}, &bernoulli);
  add_operator(kernels, {"bernoulli_.Tensor"}, &bernoulli_tensor);
  add_operator(kernels, {"bernoulli.out"}, &bernoulli_out);
  add_operator(kernels, {"random_"}, &random);
  add_operator(kernels, {"random_.to"}, &random_to);
  add_operator(kernels, {"random_.from"}, &random_from);
  add_operator(kernels, {"randperm.generator_out"}, &randperm);
  add_operator(kernels, {"native_dropout"}, &dropout);
});

}  // namespace
}  // namespace random_impl
}  // namespace backplane::portable
