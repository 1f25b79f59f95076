// tests/driver/module_test/support.h: what the cases of module_test.cpp share: an instance with kernels, and sources.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <backplane/driver/compiler.h>
#include <backplane/driver/module.h>

#include "../instance.h"

namespace {

/// An instance with its two groups, and shorter names.
struct Kernels : Instance {
  explicit Kernels(const std::string& options)
      : Instance(get(bp_sim_get, ("memory=64MiB," + options).c_str())),
        compiler(*find_group<bp_compiler>(*d)),
        module(*find_group<bp_module>(*d)) {
    target.struct_size = sizeof target;
    OK(compiler.target(compiler.head.self, 0, &target));
    OK(compiler.prelude(compiler.head.self, target.target, &prelude));
  }

  /// A whole unit of these kernels, for groups of `items`; 0: as many as the target prefers.
  std::string unit(const std::string& kernels, uint32_t items = 0) const {
    const char* const has_f64 = target.dtypes & BP_DTYPE_FLOAT64 ? "1" : "0";
    return "#define BP_GROUP " + std::to_string(items ? items : target.group_size) + "\n#define BP_HAS_F64 " + has_f64 + "\n" + prelude +
           "\n" + kernels;
  }
  int32_t compile(const std::string& source, bp_compile_result& out, uint32_t flags = 0, const char* options = "") {
    const bp_compile_request request{sizeof request, target.target, source.c_str(), "test/unit", options, flags, 0, nullptr, 0, 0};
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

  bp_compiler compiler;
  bp_module module;
  bp_target_properties target{};
  const char* prelude = nullptr;
};

struct One {
  uint64_t out;
  int64_t n;
};

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

const char* const kStore = R"(
  typedef struct { i64 n; } Params;
  BP_KERNEL(store, 1, Params, BP_GLOBAL i64* BP_RESTRICT out) { if (BP_ITEM == 0 && bp_arg.n) out[0] = bp_arg.n; })";

}  // namespace
