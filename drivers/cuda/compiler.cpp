// drivers/cuda/compiler.cpp: targets, NVRTC's options, and the distinction of a wrong source from a compiler that failed.
#include "compiler.h"

#include <algorithm>
#include <sstream>

#include "prelude.h"

namespace backplane::driver::cuda {
namespace {

// Of a machine without NVRTC, whose targets have names all the same.
constexpr int kKnownArchs[] = {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};

// -fmad is NVRTC's default: docs/dialect.md lets a compiler contract.
constexpr const char* kFlags = "--std=c++17";
constexpr const char* kFastMath = "--prec-div=false";
constexpr const char* kLight = "--ptxas-options=-O1";
constexpr const char* kDebug = "-DBP_DEBUG=1 --generate-line-info";

bp_target_properties target_named(const std::string& name) {
  auto out = sized<bp_target_properties>();
  std::snprintf(out.target, sizeof out.target, "%s", name.c_str());
  out.dtypes = out.fast_dtypes = BP_DTYPE_INT8 | BP_DTYPE_UINT8 | BP_DTYPE_INT16 | BP_DTYPE_INT32 | BP_DTYPE_INT64 | BP_DTYPE_BOOL |
                                 BP_DTYPE_FLOAT32 | BP_DTYPE_FLOAT64;
  out.group_size = 256;
  out.max_group_size = 1024;
  out.subgroup_size = 32;
  out.vector_bytes = 16;
  out.local_bytes = 48 << 10;
  out.registers = 128;  // two groups of 256 on a multiprocessor of 65536
  out.max_grid[0] = 0x7fffffff;
  out.max_grid[1] = out.max_grid[2] = 65535;
  out.parameter_bytes = 4096;
  out.atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32 | BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  return out;
}

void add_words(std::vector<std::string>& list, const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;) list.push_back(word);
}

}  // namespace

const Nvrtc& Compiler::nvrtc() const {
  std::call_once(found_, [this] { nvrtc_ = std::make_unique<Nvrtc>(path_); });
  return *nvrtc_;
}

std::vector<int> Compiler::archs() const {
  return nvrtc().present ? nvrtc().archs : std::vector<int>(std::begin(kKnownArchs), std::end(kKnownArchs));
}

std::string Compiler::id() const {
  static const uint64_t rest = checksum(std::string(kPrelude) + kFlags + kFastMath + kLight + kDebug);
  return format("cuda %016llx ", wide(rest)) + (nvrtc().present ? "NVRTC " + nvrtc().version : "without a compiler");
}

std::vector<bp_target_properties> Compiler::targets() const {
  std::vector<bp_target_properties> out;
  for (const char* kind : {"sm_", "compute_"}) {
    for (const int arch : archs()) out.push_back(target_named(kind + std::to_string(arch)));
  }
  return out;
}

bp_target_properties Compiler::target(int32_t of) const {
  const Device& device = gpus_.at(of).device;
  const int own =
      device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 + device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const std::vector<int> all = archs();
  if (std::find(all.begin(), all.end(), own) != all.end()) return target_named("sm_" + std::to_string(own));
  const auto above = std::upper_bound(all.begin(), all.end(), own);
  if (above == all.begin()) {
    throw Error(BP_UNSUPPORTED, "compiler.target: this GPU is sm_" + std::to_string(own) + ", and NVRTC " + nvrtc().version +
                                    " makes code from sm_" + std::to_string(all.front()) + " on; install an older one");
  }
  return target_named("compute_" + std::to_string(*std::prev(above)));
}

const char* Compiler::prelude(const char*) const { return kPrelude; }

Compiled Compiler::compile(const bp_compile_request& request) const {
  const Nvrtc& compiler = nvrtc();
  if (!compiler.present) {
    throw Error(BP_UNSUPPORTED,
                "compiler.compile: no NVRTC on this machine: pip install nvidia-cuda-nvrtc-cu12, or name it by the option "
                "nvrtc=; looked for " +
                    compiler.looked_for);
  }
  const bool ptx = request.target[0] == 'c';
  std::vector<std::string> words;
  add_words(words, kFlags);
  words.push_back(std::string("--gpu-architecture=") + request.target);
  if (request.flags & BP_COMPILE_DEBUG) add_words(words, kDebug);
  if (request.flags & BP_COMPILE_FAST_MATH) add_words(words, kFastMath);
  if ((request.flags & BP_COMPILE_LIGHT) && !ptx) add_words(words, kLight);
  add_words(words, request.options);
  std::vector<const char*> options;
  for (const std::string& word : words) options.push_back(word.c_str());

  const auto broke = [&](nvrtcResult result, const char* call) {
    if (result == NVRTC_SUCCESS) return;
    throw Error(result == NVRTC_ERROR_OUT_OF_MEMORY ? BP_OUT_OF_MEMORY : BP_INTERNAL,
                "compiler.compile: " + std::string(request.name) + ": " + call + " gave " + std::to_string(result));
  };
  struct Program {
    const Nvrtc& nvrtc;
    nvrtcProgram program = nullptr;
    ~Program() { nvrtc.nvrtcDestroyProgram(&program); }
  } made{compiler};
  broke(compiler.nvrtcCreateProgram(&made.program, request.source, request.name, 0, nullptr, nullptr), "nvrtcCreateProgram");
  const nvrtcResult result = compiler.nvrtcCompileProgram(made.program, static_cast<int>(options.size()), options.data());
  Compiled out;
  size_t bytes = 0;
  if (compiler.nvrtcGetProgramLogSize(made.program, &bytes) == NVRTC_SUCCESS && bytes > 1) {
    out.log.resize(bytes);
    broke(compiler.nvrtcGetProgramLog(made.program, out.log.data()), "nvrtcGetProgramLog");
    out.log.resize(bytes - 1);
  }
  if (result == NVRTC_ERROR_COMPILATION) return out;
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    throw Error(BP_INVALID_ARGUMENT,
                "compiler.compile: NVRTC does not know an option of \"" + std::string(request.options) + "\": " + out.log);
  }
  broke(result, "nvrtcCompileProgram");
  std::string image;
  broke(ptx ? compiler.nvrtcGetPTXSize(made.program, &bytes) : compiler.nvrtcGetCUBINSize(made.program, &bytes), "the size of the code");
  image.resize(bytes);
  broke(ptx ? compiler.nvrtcGetPTX(made.program, image.data()) : compiler.nvrtcGetCUBIN(made.program, image.data()), "the code");
  out.code = pack_code("cuda", request.target, checksum(id()), image);
  return out;
}

}  // namespace backplane::driver::cuda
