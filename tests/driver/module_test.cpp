// tests/driver/module_test.cpp: kernels on the simulated device: what compile() makes of a source, load() takes, and launch() runs.
//
// Every case of kKernelCases runs with one item in a group and with many, in both orders. Prints one line a case; the exit status is the
// number of failures.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <backplane/driver/compiler.h>
#include <backplane/driver/module.h>
#include <backplane/driver/peer.h>

#include "instance.h"
#include "report.h"

extern "C" {
int32_t bp_sim_get(const bp_host* host, const bp_driver** out);
}

namespace {

/// An instance with its two groups, and shorter names.
struct Kernels : Instance {
  explicit Kernels(const std::string& options)
      : Instance(get(bp_sim_get, ("memory=64MiB," + options).c_str())),
        asynchronous(options.find("inline") == std::string::npos),
        compiler(*find_group<bp_compiler>(*d)),
        module(*find_group<bp_module>(*d)) {
    target.struct_size = sizeof target;
    OK(compiler.target(compiler.head.self, 0, &target));
    OK(compiler.prelude(compiler.head.self, target.target, &prelude));
  }

  /// A whole unit of these kernels, for groups of `items`; 0: as many as the target prefers.
  std::string unit(const std::string& kernels, uint32_t items = 0) const {
    return "#define BP_GROUP " + std::to_string(items ? items : target.group_size) + "\n" + prelude + "\n" + kernels;
  }
  int32_t compile(const std::string& source, bp_compile_result& out, uint32_t flags = 0, const char* options = "") {
    const bp_compile_request request{sizeof request, target.target, source.c_str(), "test/unit", options, flags, 0};
    out = {};
    out.struct_size = sizeof out;
    return compiler.compile(compiler.head.self, &request, &out);
  }
  std::vector<char> code_of(const std::string& source, uint32_t flags = 0) {
    bp_compile_result result;
    if (compile(source, result, flags) != BP_OK) throw std::runtime_error(result.log ? result.log : error());
    const auto* bytes = static_cast<const char*>(result.code);
    std::vector<char> code(bytes, bytes + result.bytes);
    OK(compiler.release(compiler.head.self, &result));
    return code;
  }
  int32_t load_status(const std::vector<char>& code, bp_module_code** out, int32_t device = 0) {
    return module.load(module.head.self, device, code.data(), code.size(), out);
  }
  bp_module_code* load(const std::vector<char>& code, int32_t device = 0) {
    bp_module_code* out = nullptr;
    OK(load_status(code, &out, device));
    return out;
  }
  bp_module_code* load(const std::string& kernels, uint32_t flags = 0) { return load(code_of(unit(kernels), flags)); }
  void unload(bp_module_code* code, int32_t device = 0) { OK(module.unload(module.head.self, device, code)); }
  int32_t function_status(bp_module_code* code, const char* name, uint32_t pointers, uint32_t value_bytes, bp_function** out) {
    const bp_signature signature{sizeof signature, pointers, value_bytes, 1};
    return module.function(module.head.self, 0, code, name, &signature, out, nullptr);
  }

  template <class Args>
  bp_launch launch_of(bp_function* function, const Args& args, uint32_t groups, uint32_t items = 0) const {
    return {sizeof(bp_launch), function, {groups, 1, 1}, {items ? items : target.group_size, 1, 1}, 0, 0, &args, sizeof args};
  }
  int32_t launch(const bp_launch& launch, bp_stream* stream = nullptr, int32_t device = 0) {
    return module.launch(module.head.self, device, stream, &launch);
  }
  /// Runs the kernel `name` of a module to its end. Args: the pointers, then the value.
  template <class Args>
  void run(bp_module_code* code, const char* name, uint32_t pointers, const Args& args, uint32_t groups, uint32_t items = 0) {
    bp_function* function = nullptr;
    OK(function_status(code, name, pointers, sizeof args - 8 * pointers, &function));
    OK(launch(launch_of(function, args, groups, items)));
    OK(synchronize());
  }
  int32_t synchronize(int32_t device = 0) { return d->synchronize(self, device, BP_NO_TIMEOUT); }

  template <class T>
  uint64_t on_device(const std::vector<T>& values, int32_t device = 0) {
    const uint64_t address = alloc(values.size() * sizeof(T), device);
    put(address, values.data(), values.size() * sizeof(T), device);
    return address;
  }
  template <class T>
  std::vector<T> values(uint64_t address, size_t count, int32_t device = 0) {
    const std::vector<unsigned char> bytes = take(address, count * sizeof(T), device);
    std::vector<T> out(count);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  bool says(const char* text) { return error().find(text) != std::string::npos; }

  const bool asynchronous;
  bp_compiler compiler;
  bp_module module;
  bp_target_properties target{};
  const char* prelude = nullptr;
};

/// Holds a stream up until it is opened.
class Held {
 public:
  Held(Kernels& k, bp_stream* stream) {
    k.call(stream, [this](int32_t) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return open_; });
    });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct One {
  uint64_t out;
  int64_t n;
};

// ---- on every kind of group

// Tiles, tails, ids and parameters, in a grid of three dimensions.
void kernels_know_where_they_are(Kernels& k) {
  const auto code = k.load(R"(
    typedef struct { i64 width; i32 add; i32 unused; } Params;
    BP_KERNEL(places, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) {
      const i64 group = ((i64)BP_GROUP_ID(2) * BP_GROUPS(1) + BP_GROUP_ID(1)) * BP_GROUPS(0) + BP_GROUP_ID(0);
      const i64 i = group * BP_GROUP + BP_ITEM;
      out[i] += (i32)i + bp_arg.add + BP_GROUP_ID(0) * 1000 + BP_GROUP_ID(1) * 10000 + BP_GROUP_ID(2) * 100000;
      out[i] += bp_arg.width == BP_GROUPS(0) ? 0 : 1;
    })");
  const uint32_t items = k.target.group_size, count = 2 * 3 * 5 * items;
  struct {
    uint64_t out;
    int64_t width;
    int32_t add, unused;
  } args{k.on_device(std::vector<int32_t>(count)), 2, 7, 0};
  bp_function* function = nullptr;
  OK(k.function_status(code, "places", 1, 16, &function));
  bp_launch launch = k.launch_of(function, args, 2);
  launch.grid[1] = 3;
  launch.grid[2] = 5;
  OK(k.launch(launch));
  const auto out = k.values<int32_t>(args.out, count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t group = i / items, x = group % 2, y = group / 2 % 3, z = group / 6;
    CHECK(out[i] == static_cast<int32_t>(i + 7 + x * 1000 + y * 10000 + z * 100000));
  }
  k.unload(code);
}

const char* const kReduce = R"(
  typedef struct { i64 n; } Params;
  BP_KERNEL(total, 2, Params, BP_GLOBAL f32* BP_RESTRICT out, BP_GLOBAL const f32* BP_RESTRICT in) {
    BP_LOCAL_ARRAY(f32, partial, BP_GROUP);
    BP_LOCAL_ARRAY(u8, odd, 3);
    const i32 row = BP_GROUP_ID(0);
    f32 sum = 0.0f;
    for (i64 i = BP_ITEM; i < bp_arg.n; i += BP_GROUP) sum += in[row * bp_arg.n + i];
    partial[BP_ITEM] = sum;
    if (BP_ITEM == 0) odd[2] = (u8)row;
    BP_BARRIER();
    for (i32 half = BP_GROUP / 2; half > 0; half /= 2) {
      if (BP_ITEM < half) partial[BP_ITEM] += partial[BP_ITEM + half];
      HERE
    }
    if (BP_ITEM == BP_GROUP - 1) out[row] = partial[0] + (f32)(odd[2] - (u8)row);
  })";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  CHECK(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

std::vector<float> row_sums(Kernels& k, const std::string& kernels) {
  const auto code = k.load(kernels);
  constexpr int64_t rows = 40, n = 300;
  std::vector<float> in(rows * n);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 17);
  struct {
    uint64_t out, in;
    int64_t n;
  } args{k.alloc(rows * 4), k.on_device(in), n};
  k.run(code, "total", 2, args, rows);
  k.unload(code);
  return k.values<float>(args.out, rows);
}

bool right_row_sums(const std::vector<float>& sums) {
  for (size_t row = 0; row < sums.size(); ++row) {
    float sum = 0;
    for (size_t i = 0; i < 300; ++i) sum += static_cast<float>((row * 300 + i) % 17);
    if (sums[row] != sum) return false;
  }
  return true;
}

void a_group_shares_memory(Kernels& k) { CHECK(right_row_sums(row_sums(k, replaced(kReduce, "HERE", "BP_BARRIER();")))); }

void words_compute_what_they_say(Kernels& k) {
  const auto code = k.load(R"(
    typedef struct { i64 unused; } Params;
    BP_FN f32 twice(f32 x) { return x + x; }
    BP_FN i32 sum_of(BP_GLOBAL const i8* p, i32 n) { i32 s = 0; BP_UNROLL for (i32 i = 0; i < n; ++i) s += p[i]; return s; }
    BP_KERNEL(words, 5, Params, BP_GLOBAL f32* BP_RESTRICT f, BP_GLOBAL f64* BP_RESTRICT d, BP_GLOBAL i64* BP_RESTRICT n,
              BP_GLOBAL const f64* BP_RESTRICT x, BP_GLOBAL i8* BP_RESTRICT bytes) {
      if (BP_ITEM == 0) {
        const f32 a = (f32)x[0], b = (f32)x[1];
        i32 i = 0;
        f[i++] = bp_sqrt(a); f[i++] = bp_fabs(-a); f[i++] = bp_floor(-a); f[i++] = bp_ceil(a); f[i++] = bp_trunc(-a);
        f[i++] = bp_rint(2.5f); f[i++] = bp_fma(a, b, -a * b); f[i++] = bp_copysign(a, -b); f[i++] = BP_INFINITY; f[i++] = BP_NAN;
        f[i++] = bp_as_f32(0x40490fdbu); f[i++] = twice(a);
        i = 0;
        d[i++] = bp_sqrt64(x[0]); d[i++] = bp_fabs64(-x[0]); d[i++] = bp_floor64(-x[0]); d[i++] = bp_ceil64(x[0]);
        d[i++] = bp_trunc64(-x[0]); d[i++] = bp_rint64(3.5); d[i++] = bp_fma64(x[0], x[1], 1.0); d[i++] = bp_copysign64(x[0], -1.0);
        d[i++] = bp_exp64(x[1]); d[i++] = bp_exp2_64(x[1]); d[i++] = bp_expm1_64(x[1]); d[i++] = bp_log64(x[0]);
        d[i++] = bp_log2_64(x[0]); d[i++] = bp_log10_64(x[0]); d[i++] = bp_log1p64(x[1]); d[i++] = bp_sin64(x[0]);
        d[i++] = bp_cos64(x[0]); d[i++] = bp_tan64(x[1]); d[i++] = bp_asin64(x[1]); d[i++] = bp_acos64(x[1]); d[i++] = bp_atan64(x[0]);
        d[i++] = bp_atan2_64(x[0], x[1]); d[i++] = bp_sinh64(x[1]); d[i++] = bp_cosh64(x[1]); d[i++] = bp_tanh64(x[1]);
        d[i++] = bp_asinh64(x[0]); d[i++] = bp_acosh64(x[0]); d[i++] = bp_atanh64(x[1]); d[i++] = bp_pow64(x[0], x[1]);
        d[i++] = bp_fmod64(x[0], x[1]); d[i++] = bp_hypot64(x[0], x[1]); d[i++] = bp_erf64(x[1]); d[i++] = bp_erfc64(x[1]);
        d[i++] = bp_lgamma64(x[0]); d[i++] = bp_as_f64(0x400921fb54442d18ull);
        i = 0;
        n[i++] = bp_as_u32(1.0f); n[i++] = (i64)bp_as_u64(1.0); n[i++] = sizeof(i8) * sizeof(u8) + sizeof(i16) * sizeof(u16) * 10;
        n[i++] = sizeof(i32) * 1000 + sizeof(u32) * 100 + sizeof(i64) * 10 + sizeof(u64);
        n[i++] = (i64)(i32)((i32)0x7fffffff + (i32)bytes[1]); n[i++] = sum_of(bytes, 8); n[i++] = (u8)bytes[0] >> 1;
      }
    })");
  constexpr double x = 2.75, y = 0.375;
  std::vector<int8_t> bytes = {-1, 1, 2, 3, 4, 5, 6, 7};
  struct {
    uint64_t f, d, n, x, bytes;
    int64_t unused;
  } args{k.alloc(4 * 12), k.alloc(8 * 35), k.alloc(8 * 7), k.on_device(std::vector{x, y}), k.on_device(bytes), 0};
  k.run(code, "words", 5, args, 1);
  const auto f = k.values<float>(args.f, 12);
  const std::vector<float> f_expected = {std::sqrt(2.75f), 2.75f, -3, 3, -2, 2, 0, -2.75f, INFINITY, NAN, 3.14159274f, 5.5f};
  for (size_t i = 0; i < f.size(); ++i) CHECK(f[i] == f_expected[i] || (i == 9 && std::isnan(f[i])));
  const auto d = k.values<double>(args.d, 35);
  const std::vector<double> d_expected = {std::sqrt(x),
                                          x,
                                          -3,
                                          3,
                                          -2,
                                          4,
                                          x * y + 1,
                                          -x,
                                          std::exp(y),
                                          std::exp2(y),
                                          std::expm1(y),
                                          std::log(x),
                                          std::log2(x),
                                          std::log10(x),
                                          std::log1p(y),
                                          std::sin(x),
                                          std::cos(x),
                                          std::tan(y),
                                          std::asin(y),
                                          std::acos(y),
                                          std::atan(x),
                                          std::atan2(x, y),
                                          std::sinh(y),
                                          std::cosh(y),
                                          std::tanh(y),
                                          std::asinh(x),
                                          std::acosh(x),
                                          std::atanh(y),
                                          std::pow(x, y),
                                          std::fmod(x, y),
                                          std::hypot(x, y),
                                          std::erf(y),
                                          std::erfc(y),
                                          std::lgamma(x),
                                          M_PI};
  for (size_t i = 0; i < d.size(); ++i) CHECK(std::fabs(d[i] - d_expected[i]) <= 1e-14 * std::fabs(d_expected[i]));
  CHECK((k.values<int64_t>(args.n, 7) == std::vector<int64_t>{0x3f800000, 0x3ff0000000000000, 41, 4488, INT32_MIN, 27, 127}));
  k.unload(code);
}

void atomics_count_everything(Kernels& k) {
  const auto code = k.load(R"(
    typedef struct { i64 unused; } Params;
    BP_KERNEL(count, 5, Params, BP_GLOBAL i32* BP_RESTRICT a, BP_GLOBAL i64* BP_RESTRICT b, BP_GLOBAL f32* BP_RESTRICT c,
              BP_GLOBAL u32* BP_RESTRICT d, BP_GLOBAL u64* BP_RESTRICT e) {
      BP_ATOMIC_ADD_I32(a, 2);
      BP_ATOMIC_ADD_I64(b, 3);
      BP_ATOMIC_ADD_F32(c, 1.0f);
      for (u32 seen = 0, before = *d; (before = BP_ATOMIC_CAS_32(d, seen, seen + 1u)) != seen;) seen = before;
      for (u64 seen = 0, before = *e; (before = BP_ATOMIC_CAS_64(e, seen, seen + 1u)) != seen;) seen = before;
    })");
  struct {
    uint64_t a, b, c, d, e;
    int64_t unused;
  } args{};
  for (uint64_t* one : {&args.a, &args.b, &args.c, &args.d, &args.e}) *one = k.on_device(std::vector<int64_t>{0});
  bp_function* function = nullptr;
  OK(k.function_status(code, "count", 5, 8, &function));
  const uint32_t groups = 100000 / k.target.group_size;  // so many that the two streams meet
  std::vector<std::thread> threads;
  for (int n = 0; n < 2; ++n) {
    threads.emplace_back([&] {
      bp_stream* stream = k.stream();
      for (int times = 0; times < 3; ++times) OK(k.launch(k.launch_of(function, args, groups), stream));
      OK(k.d->stream_synchronize(k.self, 0, stream, BP_NO_TIMEOUT));
      OK(k.d->stream_destroy(k.self, 0, stream));
    });
  }
  for (auto& thread : threads) thread.join();
  const int64_t count = 6 * int64_t{groups} * k.target.group_size;
  CHECK(k.values<int32_t>(args.a, 1)[0] == 2 * count && k.values<int64_t>(args.b, 1)[0] == 3 * count);
  CHECK(k.values<float>(args.c, 1)[0] == static_cast<float>(count));
  CHECK(k.values<uint32_t>(args.d, 1)[0] == count && k.values<uint64_t>(args.e, 1)[0] == static_cast<uint64_t>(count));
  k.unload(code);
}

void an_assertion_makes_the_device_fault(Kernels& k) {
  const std::string kernels = "typedef struct { i64 n; } Params;\n" + std::string(
                                                                          "BP_KERNEL(check, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) {\n"
                                                                          "  out[0] = 1;\n  BP_ASSERT(bp_arg.n < 4);\n  out[0] = 2;\n}");
  const auto plain = k.load(kernels), checked = k.load(kernels, BP_COMPILE_DEBUG);
  const One good{k.on_device(std::vector<int32_t>{0}), 3};
  const One bad{good.out, 4};
  k.run(plain, "check", 1, bad, 1);
  CHECK(k.values<int32_t>(good.out, 1)[0] == 2);
  for (int n = 0; n < 3; ++n) k.run(checked, "check", 1, good, 2);
  bp_function* function = nullptr;
  OK(k.function_status(checked, "check", 1, 8, &function));
  CHECK(k.launch(k.launch_of(function, bad, 3)) == BP_OK);
  CHECK(k.synchronize() == BP_FAULT && k.says("BP_ASSERT(bp_arg.n < 4) in line ") && k.says("does not hold"));
  const std::string unit = k.unit(kernels);
  const auto line = 1 + std::count(unit.begin(), unit.begin() + static_cast<std::ptrdiff_t>(unit.find("BP_ASSERT(bp_arg")), '\n');
  CHECK(k.says(("in line " + std::to_string(line) + " ").c_str()));
  CHECK(k.launch(k.launch_of(function, good, 1)) == BP_FAULT && k.function_status(plain, "check", 1, 8, &function) == BP_FAULT);
  k.unload(checked);
  k.unload(plain);
  bp_module_code* more = nullptr;
  CHECK(k.load_status(k.code_of(k.unit(kernels)), &more) == BP_FAULT);  // and compiles
}

const char* const kStore = R"(
  typedef struct { i64 n; } Params;
  BP_KERNEL(store, 1, Params, BP_GLOBAL i64* BP_RESTRICT out) { if (BP_ITEM == 0 && bp_arg.n) out[0] = bp_arg.n; })";

void work_is_in_the_order_of_the_stream(Kernels& k) {
  const auto code = k.load(std::string(kStore) + R"(
    BP_KERNEL(add, 1, Params, BP_GLOBAL i64* BP_RESTRICT out) { if (BP_ITEM == 0) out[0] = out[0] * 3 + bp_arg.n; })");
  bp_function *store = nullptr, *add = nullptr;
  OK(k.function_status(code, "store", 1, 8, &store));
  OK(k.function_status(code, "add", 1, 8, &add));
  bp_stream *first = k.stream(), *second = k.stream();
  bp_event* event = k.event();
  One args{k.alloc(8), 0};
  // The block is read at once: the same one serves all, also where the stream stands still.
  Held* held = k.asynchronous ? new Held(k, first) : nullptr;
  const int64_t seed = 5;
  OK(k.d->fill(k.self, 0, first, args.out, &seed, 8, 1, 0));
  for (args.n = 1; args.n < 20; ++args.n) OK(k.launch(k.launch_of(add, args, 1), first));
  OK(k.d->event_record(k.self, 0, first, event, 0));
  OK(k.d->stream_wait(k.self, 0, second, event));
  for (args.n = 20; args.n < 25; ++args.n) OK(k.launch(k.launch_of(add, args, 1), second));
  args.n = 77;
  if (held) held->open();
  OK(k.synchronize());
  delete held;
  int64_t expected = seed;
  for (int64_t n = 1; n < 25; ++n) expected = expected * 3 + n;
  CHECK(k.values<int64_t>(args.out, 1)[0] == expected);
  k.unload(code);
}

void pointers_and_values_of_every_number(Kernels& k) {
  const auto many = [](int pointers) {
    std::string head, body;
    for (int i = 0; i < pointers; ++i) {
      head += ", BP_GLOBAL i64* BP_RESTRICT p" + std::to_string(i);
      body += "if (p" + std::to_string(i) + ") *p" + std::to_string(i) + " = bp_arg.v[" + std::to_string(i % 4) + "] + " +
              std::to_string(i) + ";";
    }
    const std::string number = std::to_string(pointers);
    return "BP_KERNEL(take" + number + ", " + number + ", Params" + head + ") { if (BP_ITEM == 0) {" + body + "} }\n";
  };
  std::string kernels = "typedef struct { i64 v[4]; } Params;\n";
  for (int pointers : {1, 2, 9, 63, 64}) kernels += many(pointers);
  const auto code = k.load(kernels);
  for (int pointers : {1, 2, 9, 63, 64}) {
    std::vector<uint64_t> args;
    for (int i = 0; i < pointers; ++i) args.push_back(i % 5 == 4 ? 0 : k.alloc(8));
    for (uint64_t v : {100u, 200u, 300u, 400u}) args.push_back(v);
    bp_function* function = nullptr;
    OK(k.function_status(code, ("take" + std::to_string(pointers)).c_str(), static_cast<uint32_t>(pointers), 32, &function));
    bp_launch launch = k.launch_of(function, args, 1);
    launch.args = args.data();
    launch.args_bytes = args.size() * 8;
    OK(k.launch(launch));
    for (int i = 0; i < pointers; ++i) {
      if (args[static_cast<size_t>(i)]) CHECK(k.values<int64_t>(args[static_cast<size_t>(i)], 1)[0] == 100 * (i % 4 + 1) + i);
    }
  }
  k.unload(code);
  // As large as it may be.
  const uint32_t words = k.target.parameter_bytes / 8 - 1;
  const auto large =
      k.load("typedef struct { i64 v[" + std::to_string(words) + "]; } Params;\n" +
             "BP_KERNEL(last, 1, Params, BP_GLOBAL i64* BP_RESTRICT out) { out[BP_ITEM] = bp_arg.v[" + std::to_string(words - 1) + "]; }");
  std::vector<uint64_t> args(words + 1, 1);
  args[0] = k.alloc(8 * k.target.group_size);
  args.back() = 42;
  bp_function* function = nullptr;
  OK(k.function_status(large, "last", 1, words * 8, &function));
  bp_launch launch = k.launch_of(function, args, 1);
  launch.args = args.data();
  launch.args_bytes = args.size() * 8;
  OK(k.launch(launch));
  CHECK(k.values<int64_t>(args[0], k.target.group_size).back() == 42);
  k.unload(large);
}

void local_memory_is_as_large_as_said(Kernels& k) {
  const uint32_t floats = k.target.local_bytes / 4;
  const auto code = k.load(
      "typedef struct { i64 n; } Params;\n"
      "BP_KERNEL(fill, 1, Params, BP_GLOBAL f32* BP_RESTRICT out) {\n  BP_LOCAL_ARRAY(f32, all, " +
      std::to_string(floats) + ");\n  for (i32 i = BP_ITEM; i < " + std::to_string(floats) +
      "; i += BP_GROUP) all[i] = (f32)(i & 1023);\n  BP_BARRIER();\n"
      "  for (i32 i = BP_ITEM; i < " +
      std::to_string(floats) + "; i += BP_GROUP) out[i] = all[" + std::to_string(floats - 1) + " - i];\n}");
  const One args{k.alloc(floats * 4), 0};
  k.run(code, "fill", 1, args, 3);
  const auto out = k.values<float>(args.out, floats);
  for (uint32_t i = 0; i < floats; ++i) CHECK(out[i] == static_cast<float>((floats - 1 - i) & 1023));
  k.unload(code);
}

void wrong_launches_are_named(Kernels& k) {
  const auto code = k.load(kStore);
  const One args{k.alloc(8), 1};
  bp_function* function = nullptr;
  OK(k.function_status(code, "store", 1, 8, &function));
  const bp_launch good = k.launch_of(function, args, 1);
  OK(k.launch(good));
  const auto refused = [&](auto&& change, const char* text) {
    bp_launch bad = good;
    change(bad);
    return k.launch(bad) == BP_INVALID_ARGUMENT && k.says(text);
  };
  for (int d = 0; d < 3; ++d) {
    CHECK(refused([&](bp_launch& l) { l.grid[d] = 0; }, "groups"));
    CHECK(refused([&](bp_launch& l) { l.grid[d] = static_cast<uint32_t>(k.target.max_grid[d]) + 1; }, "groups"));
    CHECK(refused([&](bp_launch& l) { l.group[d] += 1; }, "items; the kernel was compiled for"));
  }
  CHECK(refused([](bp_launch& l) { l.flags = 1; }, "flags"));
  CHECK(refused([](bp_launch& l) { l.args_bytes -= 8; }, "8 bytes of arguments; the kernel takes 16"));
  CHECK(refused([](bp_launch& l) { l.args_bytes += 8; }, "24 bytes"));
  CHECK(refused([](bp_launch& l) { l.args = nullptr; }, "arguments"));
  CHECK(refused([](bp_launch& l) { l.function = nullptr; }, "function"));
  CHECK(refused([](bp_launch& l) { l.struct_size -= 8; }, "struct_size"));
  CHECK(refused([&](bp_launch& l) { l.local_bytes = k.target.local_bytes + 1; }, "work-group memory"));
  CHECK(k.module.launch(k.module.head.self, 0, nullptr, nullptr) == BP_INVALID_ARGUMENT);
  CHECK(k.launch(good, nullptr, 1) == BP_INVALID_ARGUMENT && k.says("of device 0"));
  CHECK(k.launch(good, nullptr, 9) == BP_INVALID_DEVICE);
  OK(k.synchronize());
  k.unload(code);
}

// ---- one kind of group

void code_that_is_not_whole_is_refused(Kernels& k) {
  const auto code = k.code_of(k.unit(kStore));
  const auto refused = [&](const std::vector<char>& bytes) {
    bp_module_code* out = nullptr;
    return k.load_status(bytes, &out) == BP_INVALID_ARGUMENT && !out;
  };
  for (size_t length : {size_t{0}, size_t{1}, size_t{50}, size_t{104}, code.size() / 2, code.size() - 1}) {
    CHECK(refused({code.begin(), code.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  for (size_t at = 0; at < code.size(); at += at < 120 ? 1 : 997) {
    auto changed = code;
    changed[at] ^= 4;
    CHECK(refused(changed));
  }
  auto longer = code;
  longer.push_back(0);
  CHECK(refused(longer) && refused(std::vector<char>(5000, 'x')));
  // Of the next target, which is another one on every machine that has two.
  bp_target_properties other{};
  other.struct_size = sizeof other;
  int32_t targets = 0;
  for (; k.compiler.target(k.compiler.head.self, -1 - targets, &other) == BP_OK; ++targets) {
    if (std::string(other.target) == k.target.target) continue;
    const std::string own = std::exchange(k.target, other).target;
    const auto foreign = k.code_of(k.unit(kStore));
    OK(k.compiler.target(k.compiler.head.self, 0, &k.target));
    CHECK(refused(foreign) && k.says(other.target) && k.says(own.c_str()));
  }
  CHECK(targets > 0 && k.compiler.target(k.compiler.head.self, -1 - targets, &other) == BP_INVALID_DEVICE);
  CHECK(k.compiler.target(k.compiler.head.self, 9, &other) == BP_INVALID_DEVICE);
  k.unload(k.load(code));
}

void kernels_are_found_by_name_and_signature(Kernels& k) {
  const auto code = k.load(kStore);
  bp_function *one = nullptr, *two = nullptr;
  OK(k.function_status(code, "store", 1, 8, &one));
  OK(k.function_status(code, "store", 1, 8, &two));
  bp_function* none = nullptr;
  for (const char* name : {"stor", "stores", "", "printf", "bp_device"}) {
    CHECK(k.function_status(code, name, 1, 8, &none) == BP_INVALID_ARGUMENT && k.says("no kernel of that name"));
  }
  CHECK(k.function_status(code, "store", 2, 8, &none) == BP_INVALID_ARGUMENT && k.says("2 pointers, the kernel 1"));
  CHECK(k.function_status(code, "store", 1, 16, &none) == BP_INVALID_ARGUMENT && k.says("16 bytes"));
  CHECK(!none);
  bp_function_properties properties{};
  properties.struct_size = sizeof properties;
  bp_signature signature{sizeof signature, 1, 8, 2};
  CHECK(k.module.function(k.module.head.self, 0, code, "store", &signature, &none, nullptr) == BP_INVALID_ARGUMENT && k.says("written"));
  signature.written = 1;
  OK(k.module.function(k.module.head.self, 0, code, "store", &signature, &none, &properties));
  CHECK(properties.struct_size == sizeof properties && properties.max_group_size == 1);
  k.unload(code);
  CHECK(k.module.unload(k.module.head.self, 0, code) == BP_INVALID_ARGUMENT);
  // A group of more items than this device's have.
  const auto large = k.load(k.code_of(k.unit(kStore, 2)));
  CHECK(k.function_status(large, "store", 1, 8, &none) == BP_INVALID_ARGUMENT && k.says("groups of 2 items"));
  k.unload(large);
}

// The system's loader knows a library by its name, and what is loaded here has the same few names of open files.
void modules_are_not_confused(Kernels& k) {
  std::vector<std::vector<char>> codes;
  for (const char* value : {"1", "2", "3"}) {
    codes.push_back(k.code_of(k.unit(replaced(replaced(kStore, "&& bp_arg.n", ""), "= bp_arg.n", std::string("= ") + value))));
  }
  std::vector<std::pair<bp_module_code*, int64_t>> loaded;
  const One args{k.alloc(8), 1};
  for (int round = 0; round < 60; ++round) {
    const size_t which = static_cast<size_t>(round * 7 % 3);
    loaded.emplace_back(k.load(codes[which]), static_cast<int64_t>(which + 1));
    for (const auto& [module, value] : loaded) {
      if (round % 10 != 0 && module != loaded.back().first) continue;
      k.run(module, "store", 1, args, 1);
      CHECK(k.values<int64_t>(args.out, 1)[0] == value);
    }
    if (round % 4 == 3) {
      k.unload(loaded[static_cast<size_t>(round) / 8].first);
      loaded.erase(loaded.begin() + round / 8);
    }
  }
  for (const auto& one : loaded) k.unload(one.first);
}

void wrong_sources_have_a_log(Kernels& k) {
  const std::vector<std::pair<const char*, const char*>> sources = {
      {"int f( { return 1; }", "test/unit:3:"},
      {"int f(void) { return not_declared; }", "test/unit:3:"},
      {"int f(void) { return not_there(1); }", "test/unit:3:"},
      {"extern int elsewhere(int); BP_FN int g(void); int h(void) { return elsewhere(2); }", "elsewhere"},
      {"typedef struct { i64 n; } Params; BP_KERNEL(none, 1, Params, BP_GLOBAL i32* a, BP_GLOBAL i32* b) { *a = *b; }", "test/unit:"},
  };
  for (const auto& [text, expected] : sources) {
    bp_compile_result result;
    // The prelude behind the text would count into the lines.
    const std::string source = std::string(k.prelude) + "#line 3\n" + text + "\n";
    CHECK(k.compile(source, result) == BP_INVALID_ARGUMENT);
    CHECK(!result.code && result.bytes == 0 && result.log && std::string(result.log).find(expected) != std::string::npos);
    CHECK(k.says("test/unit") || k.says("elsewhere"));
    OK(k.compiler.release(k.compiler.head.self, &result));
    CHECK(k.compiler.release(k.compiler.head.self, &result) == BP_INVALID_ARGUMENT);
  }
  // Lines are those of the source.
  bp_compile_result result;
  CHECK(k.compile("int a;\nint b;\nint c = d;\n", result) == BP_INVALID_ARGUMENT);
  CHECK(std::string(result.log).find("test/unit:3:9: error") != std::string::npos);
  OK(k.compiler.release(k.compiler.head.self, &result));
  // A warning is no error; options are the compiler's.
  const std::string warned = k.unit(kStore) + "\n#ifndef GIVEN\n#warning look here\n#endif\n";
  OK(k.compile(warned, result));
  CHECK(result.code && std::string(result.log).find("look here") != std::string::npos);
  OK(k.compiler.release(k.compiler.head.self, &result));
  OK(k.compile(warned, result, 0, " -DOTHER  -DGIVEN=1 "));
  CHECK(result.code && std::string(result.log).empty());
  OK(k.compiler.release(k.compiler.head.self, &result));
  const auto refused = [&](auto&& change) {
    bp_compile_request bad{sizeof bad, k.target.target, warned.c_str(), "test", "", 0, 0};
    change(bad);
    bp_compile_result untouched{};
    untouched.struct_size = sizeof untouched;
    return k.compiler.compile(k.compiler.head.self, &bad, &untouched) == BP_INVALID_ARGUMENT && !untouched.log;
  };
  CHECK(refused([](auto& r) { r.flags = 8; }) && refused([](auto& r) { r.target = "pdp-11"; }) &&
        refused([](auto& r) { r.name = nullptr; }));
  CHECK(refused([](auto& r) { r.struct_size = 8; }) && refused([](auto& r) { r.reserved = 1; }));
  const char* none = nullptr;
  CHECK(k.compiler.prelude(k.compiler.head.self, "pdp-11", &none) == BP_INVALID_ARGUMENT && !none && k.says("known: "));
}

void every_flag_gives_code_that_runs(Kernels& k) {
  for (uint32_t flags = 0; flags < 8; ++flags) {
    const auto code = k.load(kStore, flags);
    const One args{k.alloc(8), 5 + flags};
    k.run(code, "store", 1, args, 1);
    CHECK(k.values<int64_t>(args.out, 1)[0] == 5 + flags);
    k.unload(code);
  }
}

void pointers_are_the_devices(Kernels& k) {
  const auto code = k.load(
      "typedef struct { i64 n; } Params;\n"
      "BP_KERNEL(copy, 2, Params, BP_GLOBAL i64* BP_RESTRICT out, BP_GLOBAL const i64* BP_RESTRICT in) {\n"
      "  for (i64 i = 0; i < bp_arg.n; ++i) out[i] = in[i];\n}");
  struct {
    uint64_t out, in;
    int64_t n;
  } args{k.alloc(32), k.on_device(std::vector<int64_t>{1, 2, 3, 4}), 4};
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{1, 2, 3, 4}));
  args.in += 16;  // in the midst of an allocation
  args.n = 2;
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{3, 4, 3, 4}));
  args.in += 16;  // an empty part at the end of it
  args.n = 0;
  k.run(code, "copy", 2, args, 1);
  // A peer's memory, once there is access to it.
  const uint64_t there = k.on_device(std::vector<int64_t>{7, 8}, 1);
  const bp_peer peer = *find_group<bp_peer>(*k.d);
  OK(peer.enable(peer.head.self, 0, 1));
  args.in = there;
  args.n = 2;
  k.run(code, "copy", 2, args, 1);
  CHECK((k.values<int64_t>(args.out, 4) == std::vector<int64_t>{7, 8, 3, 4}));
  OK(peer.disable(peer.head.self, 0, 1));
  bp_function* function = nullptr;
  OK(k.function_status(code, "copy", 2, 8, &function));
  OK(k.launch(k.launch_of(function, args, 1)));
  CHECK(k.synchronize() == BP_FAULT && k.says("pointer 1 of a kernel, 0x") && k.says("not in an allocation of device 0"));
  k.unload(code);
}

void threads_and_children_compile(Kernels& k) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) threads.emplace_back([&] { right += k.code_of(k.unit(kStore)).size() > 1000; });
  for (auto& thread : threads) thread.join();
  CHECK(right == 4);
  Kernels fresh("devices=1");  // whose compiler nobody has looked for
  const pid_t child = fork();
  if (child == 0) {
    char text[256];
    const bool named = fresh.compiler.id(fresh.compiler.head.self, text, sizeof text) == BP_OK;
    _exit(named && fresh.code_of(fresh.unit(kStore)).size() > 1000 ? 42 : 43);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

void ids_are_cut_and_stable(Kernels& k) {
  char whole[512], cut[20], again[512];
  OK(k.compiler.id(k.compiler.head.self, whole, sizeof whole));
  OK(k.compiler.id(k.compiler.head.self, again, sizeof again));
  std::memset(cut, 'x', sizeof cut);
  OK(k.compiler.id(k.compiler.head.self, cut, 10));
  CHECK(std::strlen(whole) > 30 && std::strcmp(whole, again) == 0);
  CHECK(std::strlen(cut) == 9 && std::strncmp(cut, whole, 9) == 0 && cut[10] == 'x');
  Kernels same("devices=1"), more("items=4"), none("compiler=none");
  OK(same.compiler.id(same.compiler.head.self, again, sizeof again));
  CHECK(std::strcmp(whole, again) == 0);
  OK(more.compiler.id(more.compiler.head.self, again, sizeof again));
  CHECK(std::strcmp(whole, again) != 0);
  OK(none.compiler.id(none.compiler.head.self, again, sizeof again));
  CHECK(std::strstr(again, "without a compiler"));
  bp_compile_result result;
  CHECK(none.compile(none.unit(kStore), result) == BP_UNSUPPORTED && !result.log && none.says("compiler=none"));
}

void a_device_is_an_older_level_of_the_machine(Kernels& k) {
  bp_target_properties last{};
  for (int32_t device = -1;; --device) {
    bp_target_properties next{};
    next.struct_size = sizeof next;
    if (k.compiler.target(k.compiler.head.self, device, &next) != BP_OK) break;
    last = next;
  }
  Kernels oldest((std::string("target=") + last.target).c_str());
  CHECK(std::strcmp(oldest.target.target, last.target) == 0);
  const auto code = oldest.load(kStore);
  const One args{oldest.alloc(8), 3};
  oldest.run(code, "store", 1, args, 1);
  CHECK(oldest.values<int64_t>(args.out, 1)[0] == 3);
  bp_module_code* none = nullptr;
  const bool differ = std::strcmp(k.target.target, last.target) != 0;
  CHECK(!differ || (oldest.load_status(k.code_of(k.unit(kStore)), &none) != BP_OK && oldest.says(k.target.target)));
  oldest.unload(code);
}

void options_of_kernels_are_checked(Kernels&) {
  for (const char* wrong : {"items=0", "items=3", "items=512", "order=sideways", "target=pdp-11"}) CHECK(!get(bp_sim_get, wrong));
}

// ---- groups of many items

// What is wrong on a GPU is wrong here, in one order at least.
void a_missing_barrier_is_seen() {
  const std::string kernels = replaced(kReduce, "HERE", "");
  Kernels up("items=64,order=up"), down("items=64,order=down"), one("");
  CHECK(!right_row_sums(row_sums(up, kernels)) || !right_row_sums(row_sums(down, kernels)));
  CHECK(right_row_sums(row_sums(one, kernels)));  // which sees none
}

// Who writes last tells who came last, of the items and of the groups.
void items_come_in_the_order_that_is_asked() {
  for (const char* options : {"items=16,order=up", "items=16,order=down", "items=16"}) {
    Kernels k(options);
    const auto code = k.load(
        "typedef struct { i64 n; } Params;\n"
        "BP_KERNEL(last, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) { out[0] = BP_GROUP_ID(0) * 100 + BP_ITEM;\n"
        "BP_BARRIER(); out[1] = BP_GROUP_ID(0) * 100 + BP_ITEM; }");
    const One args{k.alloc(8), 0};
    k.run(code, "last", 1, args, 4);
    const int32_t expected = std::strstr(options, "down") ? 0 : 315;
    CHECK((k.values<int32_t>(args.out, 2) == std::vector<int32_t>{expected, expected}));
    k.unload(code);
  }
}

void memory_that_nobody_wrote_is_no_number(Kernels& k) {
  const auto code = k.load(R"(
    typedef struct { i64 n; } Params;
    BP_KERNEL(read, 1, Params, BP_GLOBAL f32* BP_RESTRICT out) {
      BP_LOCAL_ARRAY(f32, some, BP_GROUP);
      if (bp_arg.n == 1) some[BP_ITEM] = 1.0f;
      BP_BARRIER();
      out[(i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM] = some[BP_ITEM];
    })");
  One args{k.alloc(8 * 4 * k.target.group_size), 1};
  k.run(code, "read", 1, args, 8);
  for (float x : k.values<float>(args.out, 8 * k.target.group_size)) CHECK(x == 1);
  args.n = 0;
  k.run(code, "read", 1, args, 8);
  for (float x : k.values<float>(args.out, 8 * k.target.group_size)) CHECK(std::isnan(x));
  k.unload(code);
}

void faults(const char* body, uint32_t flags, const char* text) {
  Kernels k("items=8,stream=inline");
  const auto code =
      k.load("typedef struct { i64 n; } Params;\nBP_KERNEL(bad, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) {\n" + std::string(body) +
                 "\n}\n" + "BP_KERNEL(good, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) { BP_BARRIER(); out[BP_ITEM] = BP_ITEM; }",
             flags);
  const One args{k.alloc(4 * 64), 0};
  bp_function *bad = nullptr, *good = nullptr;
  OK(k.function_status(code, "bad", 1, 8, &bad));
  OK(k.function_status(code, "good", 1, 8, &good));
  OK(k.launch(k.launch_of(bad, args, 3)));
  CHECK(k.synchronize() == BP_FAULT);
  if (!k.says(text)) throw std::runtime_error(k.error());
  k.unload(code);
  // The thread's fibers are as new.
  Kernels other("items=8,stream=inline");
  const auto sound = other.load(
      "typedef struct { i64 n; } Params;\n"
      "BP_KERNEL(good, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) { BP_BARRIER(); out[BP_ITEM] = BP_ITEM; }");
  const One fresh{other.alloc(4 * 8), 0};
  other.run(sound, "good", 1, fresh, 5);
  CHECK((other.values<int32_t>(fresh.out, 8) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  other.unload(sound);
}

void items_that_part_make_the_device_fault() {
  faults("out[0] = 1; if (BP_ITEM < 3) BP_BARRIER();", 0, "was reached by 3 of the 8 items of group 0, 0, 0");
  faults("BP_BARRIER(); if (BP_GROUP_ID(0) == 2 && BP_ITEM != 5) BP_BARRIER();", 0, "was reached by 7 of the 8 items of group 2, 0, 0");
  faults("if (BP_ITEM < 3) {\nBP_BARRIER();\n} else {\nBP_BARRIER();\n}", 0, "items 0 and 3 of group 0, 0, 0 wait at different barriers");
  faults("BP_BARRIER(); BP_ASSERT(BP_ITEM != 6 || BP_GROUP_ID(0) != 1);", BP_COMPILE_DEBUG,
         "failed in item 6 of group 1, 0, 0: BP_ASSERT(");
  faults("BP_LOCAL_ARRAY(f32, a, 16000);\nBP_LOCAL_ARRAY(f32, b, 16000); a[0] = b[0] = 1.0f; out[0] = (i32)a[0];", 0,
         "local arrays of more than 65536 bytes");
}

// Barriers by the thousand, and threads that each have their own fibers.
void groups_run_on_many_threads() {
  Kernels k("items=32");
  const auto code = k.load(replaced(kReduce, "HERE", "BP_BARRIER();"));
  std::vector<float> in(100 * 64, 1);
  struct {
    uint64_t out, in;
    int64_t n;
  } args{0, k.on_device(in), 64};
  bp_function* function = nullptr;
  OK(k.function_status(code, "total", 2, 8, &function));
  std::vector<bp_stream*> streams;
  std::vector<uint64_t> outs;
  for (int n = 0; n < 3; ++n) {
    streams.push_back(k.stream());
    outs.push_back(args.out = k.alloc(400));
    for (int times = 0; times < 2; ++times) OK(k.launch(k.launch_of(function, args, 100), streams.back()));
  }
  OK(k.synchronize());
  for (uint64_t out : outs) CHECK(k.values<float>(out, 100) == std::vector<float>(100, 64));
  for (bp_stream* stream : streams) OK(k.d->stream_destroy(k.self, 0, stream));
  k.unload(code);
}

// Fewer items than the device would take, and one alone.
void smaller_groups_run_too(Kernels& k) {
  for (uint32_t items : {1u, 2u, 3u, 64u}) {
    const auto code = k.load(k.code_of(k.unit(R"(
      typedef struct { i64 n; } Params;
      BP_KERNEL(ids, 1, Params, BP_GLOBAL i32* BP_RESTRICT out) {
        BP_LOCAL_ARRAY(i32, turned, BP_GROUP);
        turned[BP_GROUP - 1 - BP_ITEM] = BP_ITEM;
        BP_BARRIER();
        out[BP_GROUP_ID(0) * BP_GROUP + BP_ITEM] = turned[BP_ITEM];
      })",
                                              items)));
    const One args{k.alloc(4 * 5 * items), 0};
    k.run(code, "ids", 1, args, 5, items);
    const auto out = k.values<int32_t>(args.out, 5 * items);
    for (uint32_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<int32_t>(items - 1 - i % items));
    k.unload(code);
  }
}

using Case = std::pair<const char*, void (*)(Kernels&)>;

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
#define CASE(name) \
  {                \
    #name, name    \
  }
  const std::vector<Case> everywhere = {
      CASE(kernels_know_where_they_are),
      CASE(a_group_shares_memory),
      CASE(words_compute_what_they_say),
      CASE(atomics_count_everything),
      CASE(an_assertion_makes_the_device_fault),
      CASE(work_is_in_the_order_of_the_stream),
      CASE(pointers_and_values_of_every_number),
      CASE(local_memory_is_as_large_as_said),
      CASE(wrong_launches_are_named),
  };
  const std::vector<Case> one_item = {
      CASE(code_that_is_not_whole_is_refused), CASE(kernels_are_found_by_name_and_signature),
      CASE(modules_are_not_confused),          CASE(wrong_sources_have_a_log),
      CASE(every_flag_gives_code_that_runs),   CASE(pointers_are_the_devices),
      CASE(threads_and_children_compile),      CASE(ids_are_cut_and_stable),
      CASE(options_of_kernels_are_checked),    CASE(a_device_is_an_older_level_of_the_machine),
  };
  const std::vector<Case> many_items = {CASE(memory_that_nobody_wrote_is_no_number), CASE(smaller_groups_run_too),
                                        CASE(pointers_are_the_devices)};
#undef CASE
  const auto all = [&](const std::string& options, const std::vector<Case>& cases) {
    for (const auto& [name, body] : cases) {
      const std::string title = options + ": " + name;
      if (title.find(only) == std::string::npos) continue;
      report(title, [&, run = body] {
        Kernels k(options);
        run(k);
      });
    }
  };
  for (const char* options : {"stream=async", "stream=inline,kind=discrete", "items=64,order=up", "items=8,order=down,kind=discrete"}) {
    all(options, everywhere);
  }
  all("kind=unified", one_item);
  all("kind=discrete", {{"pointers_are_the_devices", pointers_are_the_devices}});
  for (const char* options : {"items=64,order=up", "items=64,order=down"}) all(options, many_items);
  const std::vector<std::pair<const char*, void (*)()>> single = {
      {"a missing barrier is seen", a_missing_barrier_is_seen},
      {"items come in the order that is asked", items_come_in_the_order_that_is_asked},
      {"items that part make the device fault", items_that_part_make_the_device_fault},
      {"groups run on many threads", groups_run_on_many_threads},
  };
  for (const auto& [name, body] : single) {
    if (std::string(name).find(only) != std::string::npos) report(name, body);
  }
  return failures;
}
