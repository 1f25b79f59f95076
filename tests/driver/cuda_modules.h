// tests/driver/cuda_modules.h: bp.compiler with NVRTC, and what bp.module hands to CUDA: images, signatures, launches byte by byte.
#pragma once

#include <cstdlib>

#include <backplane/driver/compiler.h>

#include "cuda_test.h"
#include "report.h"

namespace {

constexpr char kKernels[] = R"(
typedef struct { i64 n; i32 factor; i32 term; } Affine;
BP_KERNEL(affine, 2, Affine, BP_GLOBAL i32* BP_RESTRICT out, BP_GLOBAL const i32* BP_RESTRICT in) {
  const i64 i = (i64)BP_GROUP_ID(0) * BP_GROUP + BP_ITEM;
  if (i < bp_arg.n) out[i] = bp_arg.factor * in[i] + bp_arg.term;
}
typedef struct { i32 a, b, c; } Odd;
BP_KERNEL(odd, 1, Odd, BP_GLOBAL i32* BP_RESTRICT out) { out[0] = bp_arg.a + bp_arg.c; }
BP_KERNEL(trap, 1, Affine, BP_GLOBAL i32* BP_RESTRICT out) { out[0] = 1; }
)";

struct Affine {
  int64_t n;
  int32_t factor, term;
};

struct Kernels : Gpus {
  explicit Kernels(const std::string& more = "") : Gpus(more), compiler(*find_group<bp_compiler>(*d)), module(*find_group<bp_module>(*d)) {}

  std::string target(int32_t device) {
    bp_target_properties out{};
    out.struct_size = sizeof out;
    OK(compiler.target(compiler.head.self, device, &out));
    return out.target;
  }
  int32_t compile(const std::string& name, std::string* code, std::string* log = nullptr, uint32_t flags = 0, const char* options = "",
                  const char* kernels = kKernels) {
    const char* prelude = nullptr;
    OK(compiler.prelude(compiler.head.self, name.c_str(), &prelude));
    const std::string source =
        std::string("#define BP_GROUP 64\n#define BP_PER_ITEM 1\n#define BP_HAS_F64 1\n#define BP_VECTOR_BYTES 16\n") + prelude + kernels;
    const bp_compile_request request{sizeof request, name.c_str(), source.c_str(), "test/unit", options, flags, 0, nullptr, 0, 0};
    bp_compile_result result{};
    result.struct_size = sizeof result;
    const int32_t status = compiler.compile(compiler.head.self, &request, &result);
    if (result.log) {
      if (log) *log = result.log;
      if (result.code) code->assign(static_cast<const char*>(result.code), result.bytes);
      OK(compiler.release(compiler.head.self, &result));
    }
    return status;
  }
  std::string code_for(const std::string& name) {
    std::string code, log;
    if (compile(name, &code, &log) != BP_OK) throw std::runtime_error(error() + log);
    return code;
  }
  bp_module_code* load(const std::string& code, int32_t device = 0) {
    bp_module_code* out = nullptr;
    OK(module.load(module.head.self, device, code.data(), code.size(), &out));
    return out;
  }
  int32_t find(bp_module_code* from, const char* name, uint32_t pointers, uint32_t value_bytes, bp_function** out,
               bp_function_properties* properties = nullptr) {
    const bp_signature signature{sizeof signature, pointers, value_bytes, 1};
    return module.function(module.head.self, 0, from, name, &signature, out, properties);
  }
  int32_t run(bp_function* function, const std::vector<uint64_t>& block, uint32_t grid = 3, uint32_t group = 64, uint32_t local = 0,
              bp_stream* stream = nullptr) {
    const bp_launch launch{sizeof launch, function, {grid, 2, 1}, {group, 1, 1}, local, 0, block.data(), block.size() * 8};
    return module.launch(module.head.self, 0, stream, &launch);
  }

  bp_compiler compiler;
  bp_module module;
};

void targets() {
  Kernels k;
  setenv("FAKE_CUDA_CAPABILITY", "90", 1);
  CHECK(k.target(0) == "sm_90");
  setenv("FAKE_CUDA_CAPABILITY", "99", 1);  // newer than any cubin of its own: PTX of what came before
  CHECK(k.target(0) == "compute_90");
  setenv("FAKE_CUDA_CAPABILITY", "30", 1);
  bp_target_properties out{};
  out.struct_size = sizeof out;
  CHECK(k.compiler.target(k.compiler.head.self, 0, &out) == BP_UNSUPPORTED);
  HAS(k.error(), "this GPU is sm_30");
  setenv("FAKE_CUDA_CAPABILITY", "90", 1);
}

void compiled() {
  Kernels k;
  std::string code, log;
  CHECK(k.compile("sm_90", &code, &log, 0, "--no-such-option") == BP_INVALID_ARGUMENT && code.empty());
  HAS(k.error(), "no-such-option");
  CHECK(k.compile("sm_90", &code, &log, BP_COMPILE_DEBUG, "-DTWICE=2", "BP_FN i32 f(i32 x) { return x * TWICE + none; }\n") ==
        BP_INVALID_ARGUMENT);
  HAS(log, "test/unit(");
  HAS(log, "\"none\" is undefined");
  CHECK(!has(log, "\"TWICE\""));
  HAS(k.code_for("compute_80"), ".target sm_80");
  HAS(k.code_for("sm_80"),
      "\x7f"
      "ELF");
}

// The same for a cubin and for PTX.
void loaded(const std::string& target) {
  Kernels k;
  const std::string code = k.code_for(target);
  bp_module_code* module = k.load(code);
  bp_function *affine = nullptr, *odd = nullptr, *none = nullptr;
  bp_function_properties properties{};
  properties.struct_size = sizeof properties;
  OK(k.find(module, "affine", 2, 16, &affine, &properties));
  CHECK(properties.max_group_size == 256 && properties.registers == 32);
  OK(k.find(module, "odd", 1, 16, &odd));  // a struct of 12 bytes
  for (const auto& [name, pointers, bytes] : {std::tuple{"affine", 3u, 16u},
                                              {"affine", 1u, 16u},
                                              {"affine", 2u, 24u},
                                              {"affine", 2u, 8u},
                                              {"odd", 1u, 8u},
                                              {"affin", 2u, 16u},
                                              {"", 2u, 16u},
                                              {"affine", 0u, 16u},
                                              {"affine", 65u, 16u}}) {
    CHECK(k.find(module, name, pointers, bytes, &none) == BP_INVALID_ARGUMENT && !none);
    CHECK(!k.error().empty());
  }
  fake().record();
  OK(k.run(affine, {0x1122334455667788, 0, 5, uint64_t{7} << 32 | 6}, 3, 64, 0, k.stream()));
  HAS(fake().calls(),
      "cuLaunchKernel\n  affine grid 3 2 1 block 64 1 1 shared 0 stream 1 args "
      "8877665544332211"
      "0000000000000000"
      "0500000000000000"
      "0600000007000000\n");
  OK(k.run(odd, {0x10, uint64_t{2} << 32 | 1, 3}));
  HAS(fake().calls(),
      "odd grid 3 2 1 block 64 1 1 shared 0 stream 0 args 1000000000000000"
      "010000000200000003000000\n");
  fake().record();
  OK(k.run(affine, {0, 0, 0, 0}, 1, 256, 100 << 10));
  HAS(fake().calls(), "affine attribute 8 = 102400\ncuLaunchKernel\n  affine grid 1 2 1 block 256 1 1 shared 102400 ");
  fake().record();
  CHECK(k.run(affine, {0, 0, 0, 0}, 1, 64, 300 << 10) == BP_INVALID_ARGUMENT);  // a group has 227 KiB
  CHECK(k.run(affine, {0, 0, 0, 0}, 0) == BP_INVALID_ARGUMENT);
  CHECK(k.run(affine, {0, 0, 0, 0}, 0x80000000u) == BP_INVALID_ARGUMENT);
  CHECK(k.run(affine, {0, 0, 0, 0}, 1, 0) == BP_INVALID_ARGUMENT);
  CHECK(k.run(affine, {0, 0, 0, 0}, 1, 512) == BP_INVALID_ARGUMENT);  // the kernel takes 256
  CHECK(k.run(affine, {0, 0, 0}) == BP_INVALID_ARGUMENT);
  CHECK(!has(fake().calls(), "cuLaunchKernel"));
  OK(k.module.unload(k.module.head.self, 0, module));
  CHECK(k.module.unload(k.module.head.self, 0, module) == BP_INVALID_ARGUMENT);
  CHECK(k.find(module, "affine", 2, 16, &none) == BP_INVALID_ARGUMENT);
}

void refused() {
  Kernels k;
  const std::string code = k.code_for("sm_90");
  fake().record();
  const auto refuse = [&](const std::string& bytes, const char* why) {
    bp_module_code* out = nullptr;
    CHECK(k.module.load(k.module.head.self, 0, bytes.data(), bytes.size(), &out) == BP_INVALID_ARGUMENT && !out);
    HAS(k.error(), why);
  };
  refuse("", "cut off");
  refuse(code.substr(0, 50), "cut off");
  refuse(code.substr(0, code.size() - 1), "cut off");
  refuse(code + "x", "bytes behind");
  refuse(std::string(4096, 'x'), "no code of this driver");
  for (const size_t at : {size_t{9}, size_t{80}, code.size() / 2, code.size() - 1}) {
    std::string changed = code;
    changed[at] ^= 0x40;
    refuse(changed, "changed");
  }
  refuse(k.code_for("sm_80"), "the code is for sm_80, and the device is sm_90");
  refuse(k.code_for("sm_120"), "the code is for sm_120");
  refuse(k.code_for("compute_100"), "the code is for compute_100");
  CHECK(!has(fake().calls(), "cuModuleLoadData"));
  k.load(k.code_for("compute_80"));
  fake().fail("cuModuleLoadData", CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 0, 1);
  refuse(k.code_for("compute_80"), "(222)");
  fake().fail("cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  bp_module_code* out = nullptr;
  CHECK(k.module.load(k.module.head.self, 0, code.data(), code.size(), &out) == BP_OUT_OF_MEMORY);
}

void failing_kernel() {
  Kernels k;
  bp_module_code* module = k.load(k.code_for("sm_90"));
  bp_function* trap = nullptr;
  OK(k.find(module, "trap", 1, 16, &trap));
  OK(k.run(trap, {0, 0, 0}));
  CHECK(k.d->synchronize(k.self, 0, BP_NO_TIMEOUT) == BP_FAULT);
  CHECK(k.run(trap, {0, 0, 0}) == BP_FAULT);
  HAS(k.error(), "device 0 has failed");
  OK(k.module.unload(k.module.head.self, 0, module));
  OK(k.d->synchronize(k.self, 1, BP_NO_TIMEOUT));
}

void module_cases() {
  report("targets", targets);
  report("compiled", compiled);
  report("loaded from a cubin", [] { loaded("sm_90"); });
  report("loaded from PTX", [] { loaded("compute_80"); });
  report("refused", refused);
  report("failing kernel", failing_kernel);
}

}  // namespace
