// tests/driver/module_test/kernels.h: cases of module_test.cpp that hold for groups of one item and of many: what kernels compute, and how
// they are launched.
#pragma once

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace {

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

}  // namespace
