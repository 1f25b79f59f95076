// tests/driver/module_test/kernels.h: cases of module_test.cpp for groups of one item and of many: local memory, assertions, launches.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "support.h"

namespace {

void a_group_shares_memory(Kernels& k) { CHECK(right_row_sums(row_sums(k, replaced(kReduce, "HERE", "BP_BARRIER();")))); }

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
