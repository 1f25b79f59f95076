// drivers/opencl/compiler.cpp: what kernels may rely on, the options of a build, and its log.
#include "compiler.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../engine/surveyed.h"
#include "../spirv/spirv.h"
#include "prelude.h"

namespace backplane::driver::opencl {
namespace {

pthread_mutex_t build_mutex = PTHREAD_MUTEX_INITIALIZER;
thread_local bool is_building = false;

// No flag of fast arithmetic. 1.2, which each later runtime takes.
constexpr const char* kOptions = "-cl-std=CL1.2";
constexpr const char* kExactDivision = " -cl-fp32-correctly-rounded-divide-sqrt";
// What docs/dialect.md allows.
constexpr const char* kFastMath = " -cl-mad-enable -cl-no-signed-zeros";

/// SPIR-V has shuffles from 1.3 on.
bool shuffles(const DeviceInfo& info) { return info.has_shuffle && (!info.spirv || info.spirv >= 0x00010300); }

/// LIGHT and DEBUG change nothing: below full optimisation OpenCL has only -cl-opt-disable, with which kernels with barriers are slow or do
/// not build on some runtimes, and BP_ASSERT has no trap to use.
std::string build_options(const DeviceInfo& info, const bp_compile_request& request) {
  std::string out = info.spirv ? "" : kOptions;
  if (info.exact_division) out += kExactDivision;
  if (info.memory_kind == MemoryKind::buffers) out += " -DBP_BUFFERS=1";
  if (info.has_shuffle && !info.spirv) out += " -DBP_SUBGROUP=" + std::to_string(info.warp);
  if (request.flags & BP_COMPILE_FAST_MATH) out += kFastMath;
  if (request.options[0]) out += " " + std::string(request.options);
  return out;
}

spirv::Facts facts_of(const DeviceInfo& info) {
  spirv::Facts out;
  out.flavour = spirv::Flavour::kernel;
  out.version = info.spirv;
  out.max_group = info.max_group;
  out.local_bytes = static_cast<uint32_t>(std::min<uint64_t>(info.local_memory, UINT32_MAX));
  out.subgroup_size = shuffles(info) ? info.warp : 0;
  out.memory_8 = out.memory_16 = out.int8 = out.int16 = true;  // of every device
  out.float64 = info.has_f64;
  out.atomic_i64 = info.has_atomics_64;
  out.exact_division = out.exact_sqrt = info.exact_division;
  out.exact_fma = info.exact_fma;
  out.exact_fma64 = info.exact_fma64;
  return out;
}

/// PoCL before 3.1 makes wrong code of the local arrays of a kernel that another one calls, as kernels over buffers do.
bool loses_local_arrays(const DeviceInfo& info) {
  int major = 0, minor = 0;
  return info.memory_kind == MemoryKind::buffers && std::strcmp(info.platform, "Portable Computing Language") == 0 &&
         std::sscanf(info.driver_version, "%d.%d", &major, &minor) == 2 && (major < 3 || (major == 3 && minor < 1));
}

}  // namespace

BuildLock::BuildLock() {
  // The thread that builds may fork itself: some runtimes start a linker.
  static const int registered = ::pthread_atfork(
      [] {
        if (!is_building) ::pthread_mutex_lock(&build_mutex);
      },
      [] {
        if (!is_building) ::pthread_mutex_unlock(&build_mutex);
      },
      [] {
        if (!is_building) ::pthread_mutex_unlock(&build_mutex);
      });
  if (registered != 0) throw Error(BP_OUT_OF_MEMORY, "pthread_atfork: no memory");
  ::pthread_mutex_lock(&build_mutex);
  is_building = true;
}
BuildLock::~BuildLock() {
  is_building = false;
  ::pthread_mutex_unlock(&build_mutex);
}

std::string build_log(const Api& api, cl_program program, cl_device_id device) {
  return info_text([&](size_t bytes, void* out, size_t* needed) {
    return api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, out, needed);
  });
}

uint32_t preferred_items(const DeviceInfo& info, const Settings& settings) {
  // On a CPU an item is a core: the compiler of kernels vectorises the loop of one item better than the runtime does a group of them.
  uint32_t items = settings.items ? settings.items : info.cpu() ? 1 : 256;
  while (items > info.max_group) items /= 2;
  return items;
}

struct Compiler::Workplace {
  std::string target;
  pid_t process;
  const Api* api;
  cl_context context;
  cl_device_id device;
};

Compiler::Compiler(const Survey& survey, const Settings& settings)
    : survey_(survey), settings_(settings), prelude_(settings.language == Language::spirv ? spirv::prelude() : make_prelude()) {
  const uint64_t sum = checksum(prelude_ + kOptions + kExactDivision + kFastMath);
  id_ = format("opencl %u %016llx", spirv::kVersion, wide(sum));  // the runtime's version is in each target
}

Compiler::~Compiler() {
  for (const auto& one : workplaces_) {
    if (one->process == ::getpid()) one->api->clReleaseContext(one->context);
  }
}

std::vector<bp_target_properties> Compiler::targets() const {
  return targets_of(survey_, [&](const DeviceInfo& info) { return target(info); });
}

bp_target_properties Compiler::target(int32_t device) const {
  if (static_cast<size_t>(device) >= survey_.devices.size()) throw Error(BP_INVALID_DEVICE, format("no device %d", device));
  return target(survey_.devices[static_cast<size_t>(device)]);
}

bp_target_properties Compiler::target(const DeviceInfo& info) const {
  const uint32_t items = preferred_items(info, settings_);
  auto out = sized<bp_target_properties>();
  std::memcpy(out.target, info.target, sizeof out.target);
  out.dtypes = BP_DTYPE_INT8 | BP_DTYPE_UINT8 | BP_DTYPE_INT16 | BP_DTYPE_INT32 | BP_DTYPE_INT64 | BP_DTYPE_BOOL | BP_DTYPE_FLOAT32 |
               (info.has_f64 ? BP_DTYPE_FLOAT64 : 0);
  out.fast_dtypes = out.dtypes;
  out.group_size = items;
  out.max_group_size = std::min(info.max_group, 1024u);
  out.subgroup_size = shuffles(info) ? info.warp : 0;
  out.vector_bytes = items == 1 ? std::max(info.vector_bytes, 16u) : 16;
  out.local_bytes = static_cast<uint32_t>(std::min<uint64_t>(info.local_memory, uint64_t{1} << 20));
  out.registers = items == 1 ? (out.vector_bytes >= 64 ? 32 : 16) * out.vector_bytes / 4 : 64;
  for (uint64_t& groups : out.max_grid) groups = 0x7fffffff;  // numbers of groups are i32
  out.parameter_bytes = static_cast<uint32_t>(std::min<uint64_t>(info.max_parameter_bytes, 4096));
  out.atomics = BP_ATOMIC_ADD_I32 | BP_ATOMIC_ADD_F32 | BP_ATOMIC_CAS_32;
  if (info.has_atomics_64) out.atomics |= BP_ATOMIC_ADD_I64 | BP_ATOMIC_CAS_64;
  return out;
}

Compiler::Workplace& Compiler::workplace(const DeviceInfo& info) {
  for (const auto& one : workplaces_) {
    if (one->target == info.target && one->process == ::getpid()) return *one;
  }
  const Api& api = open_library(survey_.library);
  cl_platform_id platform = nullptr;
  const cl_device_id device = find_device(api, info, &platform);
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<intptr_t>(platform), 0};
  cl_int code = CL_SUCCESS;
  const cl_context context = api.clCreateContext(properties, 1, &device, nullptr, nullptr, &code);
  check(code, "compiler.compile: clCreateContext");
  workplaces_.push_back(std::make_unique<Workplace>(Workplace{info.target, ::getpid(), &api, context, device}));
  return *workplaces_.back();
}

Compiled Compiler::compile(const bp_compile_request& request) {
  const DeviceInfo& info = *std::find_if(survey_.devices.begin(), survey_.devices.end(),
                                         [&](const DeviceInfo& one) { return std::strcmp(one.target, request.target) == 0; });
  if (!info.has_compiler) {
    throw Error(BP_UNSUPPORTED, std::string("compiler.compile: the OpenCL runtime has no compiler for ") + info.name);
  }
  if (loses_local_arrays(info)) {
    throw Error(BP_UNSUPPORTED, std::string("compiler.compile: PoCL ") + info.driver_version +
                                    " makes wrong code of local arrays with memory=buffers; take memory=fine, or PoCL 3.1 or newer");
  }
  spirv::Module module;
  if (info.spirv) {
    spirv::Options options;
    options.name = named_unit(request);
    options.fast_math = request.flags & BP_COMPILE_FAST_MATH;
    try {
      module = spirv::compile(request.source, facts_of(info), options);
    } catch (const spirv::Error& error) {
      return {"", error.what()};
    }
  }
  const BuildLock lock;
  const Workplace& at = workplace(info);
  const Api& api = *at.api;
  const std::string unit = std::string(request.name) + ": ";
  cl_int code = CL_SUCCESS;
  std::unique_ptr<_cl_program, cl_int (*)(cl_program)> program(nullptr, api.clReleaseProgram);
  if (info.spirv) {
    program.reset(api.clCreateProgramWithIL(at.context, module.words.data(), module.words.size() * sizeof(uint32_t), &code));
    check(code, "compiler.compile: clCreateProgramWithIL");
  } else {
    const std::string source = named_source(request);
    const char* text = source.c_str();
    program.reset(api.clCreateProgramWithSource(at.context, 1, &text, nullptr, &code));
    check(code, "compiler.compile: clCreateProgramWithSource");
  }
  code = api.clBuildProgram(program.get(), 1, &at.device, build_options(info, request).c_str(), nullptr, nullptr);
  Compiled out{"", build_log(api, program.get(), at.device)};
  if (code == CL_BUILD_PROGRAM_FAILURE) {
    if (out.log.empty()) out.log = unit + "clBuildProgram failed and has no log";
    return out;
  }
  if (code == CL_INVALID_BUILD_OPTIONS)
    throw Error(BP_INVALID_ARGUMENT, "compiler.compile: the runtime refuses the options '" + std::string(request.options) + "'");
  check(code, ("compiler.compile: " + unit + "clBuildProgram").c_str());
  size_t bytes = 0;
  check(api.clGetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr),
        "compiler.compile: CL_PROGRAM_BINARY_SIZES");
  if (bytes == 0) throw Error(BP_INTERNAL, "compiler.compile: " + unit + "the runtime gives no binary");
  std::string binary(bytes, '\0');
  auto* place = reinterpret_cast<unsigned char*>(binary.data());
  check(api.clGetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof place, &place, nullptr), "compiler.compile: CL_PROGRAM_BINARIES");
  out.code = pack_code("ocl", info.target, checksum(id_), binary);
  return out;
}

}  // namespace backplane::driver::opencl
