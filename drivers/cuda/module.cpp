// drivers/cuda/module.cpp: what is checked before CUDA sees it, and the launch.
#include "module.h"

#include <cstdlib>

#include <backplane/driver/cxx/code.hpp>

namespace backplane::driver::cuda {
namespace {

constexpr uint32_t kMostBytes = 4096, kLocalWithoutAsking = 48 << 10;

void hold(bool holds, const std::string& what) {
  if (!holds) throw Error(BP_INVALID_ARGUMENT, what);
}

}  // namespace

Modules::Modules(const Library& cuda, Device& device)
    : cuda_(cuda), device_(device), live_([this](Module* module) {
        device_.note(cuda_.cuModuleUnload(module->native));
        delete module;
      }) {}

// A cubin runs on GPUs of its own major version and of the same minor or a later one, PTX on all later ones.
void Modules::check_target(const std::string& target) const {
  const int own = device_.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                  device_.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const bool ptx = target.rfind("compute_", 0) == 0;
  const int made_for = std::atoi(target.c_str() + (ptx ? 8 : 3));
  hold(made_for <= own && (ptx || made_for / 10 == own / 10),
       "module.load: the code is for " + target + ", and the device is sm_" + std::to_string(own) + "; compile the source again");
}

bp_module_code* Modules::load(std::string_view code, const std::string& id) {
  const Code found = unpack_code("cuda", code, checksum(id));
  check_target(found.target);
  const std::string image(found.image);  // with a NUL behind, as CUDA wants of PTX
  auto module = std::make_unique<Module>();
  device_.check(cuda_.cuModuleLoadData(&module->native, image.c_str()), "cuModuleLoadData");
  return reinterpret_cast<bp_module_code*>(live_.add(module.release()));
}

void Modules::unload(bp_module_code* module) { live_.destroy(reinterpret_cast<Module*>(module), "module.unload"); }

int Modules::attribute(CUfunction function, FunctionAttribute which) {
  int value = 0;
  device_.check(cuda_.cuFuncGetAttribute(&value, which, function), "cuFuncGetAttribute");
  return value;
}

// The block of a launch is the kernel's parameters as CUDA lays them out: pointers of 8 bytes, then a struct. What the kernel reads of it
// is reported by drivers from CUDA 12.4 on.
size_t Modules::check_parameters(CUfunction function, const char* name, const bp_signature& signature) {
  const size_t all = signature.pointers * size_t{8} + signature.value_bytes;
  if (!cuda_.cuFuncGetParamInfo) return all;
  size_t offset = 0, bytes = 0;
  const auto has = [&](size_t index) {
    const CUresult result = cuda_.cuFuncGetParamInfo(function, index, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) return false;
    device_.check(result, "cuFuncGetParamInfo");
    return true;
  };
  const std::string kernel = std::string("module.function: the kernel ") + name;
  for (uint32_t pointer = 0; pointer < signature.pointers; ++pointer) {
    hold(has(pointer) && bytes == 8 && offset == pointer * size_t{8},
         kernel + " does not begin with " + std::to_string(signature.pointers) + " pointers");
  }
  hold(has(signature.pointers) && offset == signature.pointers * size_t{8},
       kernel + " has no struct behind " + std::to_string(signature.pointers) + " pointers");
  const size_t read = offset + bytes;
  hold(read <= all && all - read < 8,
       kernel + " takes a struct of " + std::to_string(bytes) + " bytes, and the signature says " + std::to_string(signature.value_bytes));
  hold(!has(signature.pointers + size_t{1}), kernel + " has parameters behind its struct");
  return read;
}

bp_function* Modules::function(bp_module_code* handle, const char* name, const bp_signature* given, bp_function_properties& properties) {
  auto* module = reinterpret_cast<Module*>(handle);
  hold(live_.contains(module), "module.function: no live module of this device");
  need_signature(name, given, kMostBytes);
  const bp_signature& signature = *given;
  auto made = std::make_unique<Function>();
  device_.check(cuda_.cuModuleGetFunction(&made->native, module->native, name), "cuModuleGetFunction");
  made->native_bytes = check_parameters(made->native, name, signature);
  properties.max_group_size = static_cast<uint32_t>(attribute(made->native, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  properties.local_bytes = made->local_bytes = static_cast<uint32_t>(attribute(made->native, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  properties.registers = static_cast<uint32_t>(attribute(made->native, CU_FUNC_ATTRIBUTE_NUM_REGS));
  properties.spill_bytes = static_cast<uint32_t>(attribute(made->native, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  made->limits = {device_.ordinal(),
                  signature.pointers * uint64_t{8} + signature.value_bytes,
                  {0x7fffffff, 65535, 65535},
                  1,
                  properties.max_group_size};
  const std::lock_guard<std::mutex> lock(module->mutex);
  return reinterpret_cast<bp_function*>(module->functions.emplace_back(std::move(made)).get());
}

// More than 48 KiB of a block's memory must be asked for.
void Modules::allow_local(const Function& function, uint32_t bytes) {
  const auto most = static_cast<uint32_t>(device_.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  hold(bytes <= most && function.local_bytes <= most - bytes,
       "module.launch: " + std::to_string(bytes) + " bytes of work-group memory beside " + std::to_string(function.local_bytes) +
           " of the kernel's own; a group has " + std::to_string(most));
  device_.check(cuda_.cuFuncSetAttribute(function.native, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes)),
                "cuFuncSetAttribute");
}

void Modules::launch(int32_t device, const bp_launch* given, CUstream stream) {
  need_launch(given);
  const bp_launch& launch = *given;
  const auto& function = *reinterpret_cast<const Function*>(launch.function);
  function.limits.check(device, launch);
  const uint32_t *grid = launch.grid, *group = launch.group;
  if (launch.local_bytes > kLocalWithoutAsking - std::min(function.local_bytes, kLocalWithoutAsking))
    allow_local(function, launch.local_bytes);
  size_t bytes = function.native_bytes;
  void* extra[] = {kLaunchBufferPointer, const_cast<void*>(launch.args), kLaunchBufferSize, &bytes, nullptr};
  device_.check(cuda_.cuLaunchKernel(function.native, grid[0], grid[1], grid[2], group[0], group[1], group[2], launch.local_bytes, stream,
                                     nullptr, extra),
                "cuLaunchKernel");
}

}  // namespace backplane::driver::cuda
