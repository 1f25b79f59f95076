// kernels/host/random.cpp: uniform_, normal_, bernoulli_ (by a number) and native_dropout for float32, float64, bfloat16 and float16
// (the last two rounded from float), bernoulli_ for bool, too; randperm for int64 and int32. Other calls are left to the CPU fallback,
// which draws from the same generator.
//
// Element i of a launch, counted row by row whatever the strides, is made of fixed numbers of the generator's sequence: for float and the
// half types of number i (normal_: of the pair of numbers to which i belongs), for double of numbers 2i and 2i + 1 (normal_: of the four of
// its pair). So results depend neither on threads nor on memory layout, and the generator moves on by exactly what was used, rounded up
// to 4.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <backplane/host/elementwise.h>
#include <backplane/host/vector_math.h>
#include <backplane/random.h>
#include <backplane/structured.h>

#include <cmath>
#include <numeric>

#include "vectors.h"

namespace {

using backplane::device_ptr;
using backplane::DeviceMemory;
using backplane::Floats;
using backplane::PhiloxRange;
using backplane::PhiloxState;
using Generator = std::optional<at::Generator>;

constexpr int kChunk = 512;  // numbers that are made at a time, for the first cache

// At least `count` numbers from `position`, a multiple of 4, on: philox.h's algorithm for eight blocks of the sequence at a time.
VECTOR_VERSIONS void make_numbers(uint64_t seed, uint64_t position, int64_t count, uint32_t* out) {
  constexpr int kLanes = 8;
  for (int64_t chunk = 0; chunk < count; chunk += 4 * kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes] = {}, c3[kLanes] = {};
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t block = (position + chunk) / 4 + lane;
      c0[lane] = static_cast<uint32_t>(block);
      c1[lane] = static_cast<uint32_t>(block >> 32);
    }
    auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t product0 = uint64_t{0xD2511F53} * c0[lane];
        const uint64_t product1 = uint64_t{0xCD9E8D57} * c2[lane];
        c0[lane] = static_cast<uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
        c1[lane] = static_cast<uint32_t>(product1);
        c2[lane] = static_cast<uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
        c3[lane] = static_cast<uint32_t>(product0);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t* const to = out + chunk + 4 * lane;
      to[0] = c0[lane];
      to[1] = c1[lane];
      to[2] = c2[lane];
      to[3] = c3[lane];
    }
  }
}

// A graph's replay reads the range from device memory.
PhiloxRange range_of(const PhiloxState& state, const DeviceMemory& memory) {
  PhiloxState mapped = state;
  mapped.seed_address = static_cast<const uint64_t*>(memory.at(reinterpret_cast<uint64_t>(state.seed_address)));
  mapped.offset_address = static_cast<const uint64_t*>(memory.at(reinterpret_cast<uint64_t>(state.offset_address)));
  return backplane::philox_range(mapped);
}

// Calls chunk(i, n, numbers) for elements i ... i + n - 1, with `each` numbers an element.
template <typename Chunk>
void each_chunk(const PhiloxRange& range, int64_t count, int each, const Chunk& chunk) {
  alignas(32) uint32_t numbers[kChunk + 32];
  const int64_t step = kChunk / each;
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    make_numbers(range.seed, range.offset + i * each, (n + n % 2) * each, numbers);  // an odd last element may have a partner
    chunk(i, n, numbers);
  }
}

// A uniform number in [0, 1): 24 bits of one number for float, 53 bits of two for double.
template <typename C>
constexpr int kNumbers = sizeof(C) / sizeof(float);
inline float uniform_of(const uint32_t* numbers, float) { return backplane::philox_uniform(numbers[0]); }
inline double uniform_of(const uint32_t* numbers, double) {
  return static_cast<double>((uint64_t{numbers[0]} << 32 | numbers[1]) >> 11) * 0x1p-53;
}

template <typename C>
struct Uniform {
  double from;
  double to;

  // out[i] for i < count.
  template <typename T>
  void operator()(int64_t count, const uint32_t* numbers, T* out) const {
    const C low = static_cast<C>(from), width = static_cast<C>(to - from);
    const T end = static_cast<T>(to);
    for (int64_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(uniform_of(numbers + i * kNumbers<C>, C()) * width + low);
      out[i] = value < end || from == to ? value : static_cast<T>(low);  // rounding may reach `to`, which is not in the range
    }
  }
};

// cos and sin of 2 pi u for u in [0, 1], without branches: an octant's polynomials, exchanged and negated by quadrant.
VECTOR_INLINE void cos_sin_of_turns(float u, float& cosine, float& sine) {
  const auto quadrant = static_cast<int32_t>(u * 4.0f + 0.5f);
  const float x = (u - static_cast<float>(quadrant) * 0.25f) * 6.28318531f;  // |x| <= pi / 4
  const float z = x * x;
  const float s = x + x * z * (-1.66666667e-1f + z * (8.33333310e-3f + z * (-1.98408743e-4f + z * 2.75258653e-6f)));
  const float c = 1.0f + z * (-0.5f + z * (4.16666646e-2f + z * (-1.38887316e-3f + z * 2.44331571e-5f)));
  const int32_t odd = -(quadrant & 1);  // all bits or none
  const int32_t cos_bits = (std::bit_cast<int32_t>(c) & ~odd) | (std::bit_cast<int32_t>(s) & odd);
  const int32_t sin_bits = (std::bit_cast<int32_t>(s) & ~odd) | (std::bit_cast<int32_t>(c) & odd);
  cosine = std::bit_cast<float>(cos_bits ^ (((quadrant + 1) & 2) << 30));
  sine = std::bit_cast<float>(sin_bits ^ ((quadrant & 2) << 30));
}
inline void cos_sin_of_turns(double u, double& cosine, double& sine) {
  constexpr double kTwoPi = 6.283185307179586;
  cosine = std::cos(kTwoPi * u);
  sine = std::sin(kTwoPi * u);
}

// Pairs of normal numbers of pairs of uniform ones, after Box and Muller.
template <typename C>
VECTOR_VERSIONS void make_normal(int64_t pairs, const uint32_t* numbers, C mean, C deviation, C* out) {
  vectors::each(pairs, [=](int64_t i) {
    const uint32_t* const pair = numbers + i * 2 * kNumbers<C>;
    const C radius = deviation * std::sqrt(C(-2) * backplane::vector_log(C(1) - uniform_of(pair, C())));
    C cosine, sine;
    cos_sin_of_turns(uniform_of(pair + kNumbers<C>, C()), cosine, sine);
    out[2 * i] = radius * cosine + mean;
    out[2 * i + 1] = radius * sine + mean;
  });
}

template <typename C>
struct Normal {
  double mean;
  double std;

  // An odd last element has a partner that nobody sees.
  template <typename T>
  void operator()(int64_t count, const uint32_t* numbers, T* out) const {
    alignas(32) C values[kChunk];
    make_normal((count + 1) / 2, numbers, static_cast<C>(mean), static_cast<C>(std), values);
    vectors::convert(count, values, out);
  }
};

// One with probability p: of 2^32 numbers, p * 2^32.
struct Bernoulli {
  explicit Bernoulli(double p) : threshold(static_cast<uint64_t>(std::ldexp(p, 32))) {}
  uint64_t threshold;

  bool of(uint32_t number) const { return number < threshold; }
  template <typename T>
  void operator()(int64_t count, const uint32_t* numbers, T* out) const {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(of(numbers[i]));
  }
};

// Queues make(count, numbers, out) over all elements of `self`; `each` numbers an element.
template <typename T, typename Make>
void launch_fill(at::Tensor& self, const Generator& generator, int each, const Make& make) {
  const at::Tensor dense = self.is_contiguous() ? self : backplane::empty(self.sizes(), self.scalar_type(), self.device().index());
  const int64_t count = self.numel();
  const PhiloxState state = backplane::philox_state(generator, self.device().index(), (count + count % 2) * each);
  backplane::launch(self.device().index(), [make, count, each, state, to = device_ptr<T>(dense)](const DeviceMemory& memory) {
    T* const out = memory(to);
    each_chunk(range_of(state, memory), count, each, [&](int64_t i, int64_t n, const uint32_t* numbers) { make(n, numbers, out + i); });
  });
  if (!dense.is_same(self)) self.copy_(dense);
}

template <template <typename> class Make>
at::Tensor& fill_floats(at::Tensor& self, double first, double second, const Generator& generator) {
  if (self.numel() == 0) return self;
  Floats::dispatch(self.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using C = backplane::ComputeType<T>;
    launch_fill<T>(self, generator, kNumbers<C>, Make<C>{first, second});
  });
  return self;
}

// The CPU raises the errors of wrong parameters, and of tensors with elements that share memory.
bool is_writable(const at::Tensor& self) { return at::has_internal_overlap(self) != at::MemOverlap::Yes; }

struct UniformFill : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& self, double from, double to, const Generator&) {
    const double limit = self.scalar_type() == c10::kHalf ? 65504 : self.scalar_type() == c10::kDouble ? 1.7e308 : 3.3e38;
    return is_writable(self) && from <= to && std::abs(from) <= limit && std::abs(to) <= limit && to - from <= limit;
  }
  static at::Tensor& run(at::Tensor& self, double from, double to, Generator generator) {
    return fill_floats<Uniform>(self, from, to, generator);
  }
};

struct NormalFill : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& self, double, double std, const Generator&) { return is_writable(self) && std >= 0; }
  static at::Tensor& run(at::Tensor& self, double mean, double std, Generator generator) {
    return fill_floats<Normal>(self, mean, std, generator);
  }
};

struct BernoulliFill : backplane::HostKernel {
  using Takes = backplane::Dtypes<float, double, at::BFloat16, at::Half, bool>;
  static bool takes(const at::Tensor& self, double p, const Generator&) { return is_writable(self) && p >= 0 && p <= 1; }
  static at::Tensor& run(at::Tensor& self, double p, Generator generator) {
    if (self.numel() == 0) return self;
    Takes::dispatch(self.scalar_type(), [&](auto zero) { launch_fill<decltype(zero)>(self, generator, 1, Bernoulli(p)); });
    return self;
  }
};

struct NativeDropout : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& input, double p, std::optional<bool> train) {
    return train.value_or(true) && p >= 0 && p <= 1 && input.numel() > 0;
  }
  static std::tuple<at::Tensor, at::Tensor> run(const at::Tensor& input, double p, std::optional<bool>) {
    const c10::DeviceIndex device = input.device().index();
    const int64_t count = input.numel();
    const at::Tensor x = input.contiguous();
    at::Tensor mask = backplane::empty(input.sizes(), c10::kBool, device);
    at::Tensor out = backplane::empty(input.sizes(), input.scalar_type(), device);
    const PhiloxState state = backplane::philox_state(std::nullopt, device, count);
    Floats::dispatch(input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      using C = backplane::ComputeType<T>;
      backplane::launch(device, [count, keep = Bernoulli(1 - p), scale = static_cast<C>(p == 1 ? 0 : 1 / (1 - p)), state,
                                 px = backplane::const_device_ptr<T>(x), pmask = device_ptr<bool>(mask),
                                 pout = device_ptr<T>(out)](const DeviceMemory& memory) {
        const T* const from = memory(px);
        bool* const kept = memory(pmask);
        T* const to = memory(pout);
        each_chunk(range_of(state, memory), count, 1, [&](int64_t begin, int64_t n, const uint32_t* numbers) {
          for (int64_t i = 0; i < n; ++i) {
            const bool stays = keep.of(numbers[i]);
            kept[begin + i] = stays;
            to[begin + i] = static_cast<T>(static_cast<C>(from[begin + i]) * (stays ? scale : C(0)));
          }
        });
      });
    });
    if (input.is_contiguous()) return {out, mask};
    const auto as_input = [&](const at::Tensor& dense) { return at::empty_like(input, dense.options()).copy_(dense); };
    return {as_input(out), as_input(mask)};
  }
};

struct NativeDropoutBackward : backplane::HostKernel {
  using Takes = Floats;
  static bool takes(const at::Tensor& grad, const at::Tensor& mask, double) {
    return mask.scalar_type() == c10::kBool && mask.sizes() == grad.sizes() && grad.dim() <= backplane::Elements::kMostDims;
  }
  static at::Tensor run(const at::Tensor& grad, const at::Tensor& mask, double scale) {
    at::Tensor result;
    const auto iter = at::TensorIteratorConfig()
                          .check_all_same_dtype(false)
                          .declare_static_dtype_and_device(grad.scalar_type(), grad.device())
                          .add_output(result)
                          .add_const_input(grad)
                          .add_const_input(mask)
                          .build();
    Floats::dispatch_compute(grad.scalar_type(), [&](auto zero) {
      using C = decltype(zero);
      backplane::elementwise<C, C, bool>(
          iter, [scale = static_cast<C>(scale)](C from, bool kept) { return from * (static_cast<C>(kept) * scale); });
    });
    return iter.output();
  }
};

// Fisher and Yates' shuffle, from the last place down; place i is exchanged by number i.
struct Randperm : backplane::HostKernel {
  static bool takes(int64_t n, const Generator&, const at::Tensor& out) {
    return n >= 0 && n <= std::numeric_limits<int32_t>::max() && (out.scalar_type() == c10::kLong || out.scalar_type() == c10::kInt);
  }
  static at::Tensor& run(int64_t n, Generator generator, at::Tensor& out) {
    out.resize_({n});
    if (n == 0) return out;
    const at::Tensor dense = out.is_contiguous() ? out : backplane::empty(out.sizes(), out.scalar_type(), out.device().index());
    const PhiloxState state = backplane::philox_state(generator, out.device().index(), n);
    backplane::Dtypes<int64_t, int32_t>::dispatch(out.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      backplane::launch(out.device().index(), [n, state, to = device_ptr<T>(dense)](const DeviceMemory& memory) {
        T* const places = memory(to);
        std::iota(places, places + n, T(0));
        each_chunk(range_of(state, memory), n, 1, [&](int64_t begin, int64_t count, const uint32_t* numbers) {
          for (int64_t i = begin; i < begin + count; ++i) {
            const auto left = static_cast<uint64_t>(n - i);  // the number as a fraction of 2^32, times the places that are left
            std::swap(places[left - 1], places[(numbers[i - begin] * left) >> 32]);
          }
        });
      });
    });
    if (!dense.is_same(out)) out.copy_(dense);
    return out;
  }
};

}  // namespace

BACKPLANE_KERNELS(aten, m) {
  backplane::function<UniformFill>(m, "uniform_");
  backplane::function<NormalFill>(m, "normal_");
  backplane::function<BernoulliFill>(m, "bernoulli_.float");
  backplane::function<NativeDropout>(m, "native_dropout");
  backplane::function<NativeDropoutBackward>(m, "native_dropout_backward");
  backplane::function<Randperm>(m, "randperm.generator_out");
}
