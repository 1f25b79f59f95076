// tests/driver/module_test/groups.h: cases of module_test.cpp about groups of many items: barriers, the order of items, memory that they
// share.
#pragma once

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "support.h"

namespace {

// What is wrong on a GPU is wrong here, in one order at least.
void a_missing_barrier_is_seen() {
  const std::string kernels = replaced(kReduce, "HERE", "");
  Kernels up("items=64,order=up"), down("items=64,order=down"), one("");
  CHECK(!right_row_sums(row_sums(up, kernels)) || !right_row_sums(row_sums(down, kernels)));
  CHECK(right_row_sums(row_sums(one, kernels)));  // which sees none
}

// The last write is that of the last item and the last group.
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

}  // namespace
