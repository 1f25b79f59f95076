// drivers/opencl/library.cpp: where an OpenCL library may lie, its functions, and the names of its errors.
#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "../engine/packages.h"

namespace backplane::driver::opencl {
namespace {

std::atomic<pid_t> opened_by{0};

/// The ICD loader that pip's pyopencl brings finds runtimes by a variable that the package sets at its import, without which it ends the
/// process; and the PoCL beside it (pocl-binary-distribution) by a name without a folder, which is found when it is open already.
void prepare_for_pip(const std::string& place) {
  const size_t at = place.find("/pyopencl/.libs/");
  if (at == std::string::npos) return;
  const std::string package = place.substr(0, at) + "/pyopencl";
  ::setenv("PYOPENCL_HOME", package.c_str(), 0);
  for (const std::string& runtime : matches(package + "/.libs/libpocl*.so*")) {
    ::dlopen(runtime.c_str(), RTLD_NOW | RTLD_LOCAL);  // if it fails, the loader reports that there is none
  }
}

}  // namespace

std::vector<std::string> library_places(const std::string& wanted) {
  if (!wanted.empty()) return {wanted};
  std::vector<std::string> patterns;
  for (const std::string& folder : package_folders_in_use()) patterns.push_back(folder + "/pyopencl*/.libs/libOpenCL*.so*");
  if (const char* environment = std::getenv("VIRTUAL_ENV")) {
    patterns.push_back(std::string(environment) + "/lib/python3*/site-packages/pyopencl*/.libs/libOpenCL*.so*");
    patterns.push_back(std::string(environment) + "/lib/libOpenCL.so.1");
  }
  std::vector<std::string> out{"libOpenCL.so.1"};
  for (const std::string& pattern : patterns) {
    for (const std::string& file : matches(pattern)) {
      if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(file);
    }
  }
  return out;
}

const Api& open_library(const std::string& place) {
  static auto* const mutex = new std::mutex;
  static auto* const open = new std::map<std::string, std::unique_ptr<Api>>;
  std::lock_guard lock(*mutex);
  if (const auto known = open->find(place); known != open->end()) return *known->second;
  prepare_for_pip(place);
  void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    throw Error(BP_UNSUPPORTED, why ? why : place + ": cannot be opened");
  }
  auto api = std::make_unique<Api>();
#define BP_FIND(result, name, parameters) api->name = reinterpret_cast<decltype(api->name)>(::dlsym(library, #name));
#define BP_REQUIRE(result, name, parameters) \
  BP_FIND(result, name, parameters)          \
  if (!api->name) throw Error(BP_UNSUPPORTED, place + ": no library of OpenCL 1.2, it lacks " #name);
  BP_OPENCL_FUNCTIONS(BP_REQUIRE)
  BP_OPENCL_FUNCTIONS_2(BP_FIND)
#undef BP_REQUIRE
#undef BP_FIND
  opened_by = ::getpid();
  return *open->emplace(place, std::move(api)).first->second;
}

bool library_is_open() { return opened_by == ::getpid(); }

std::string code_name(cl_int code) {
  static constexpr struct {
    cl_int code;
    const char* name;
  } kNames[] = {
      {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
      {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
      {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
      {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
      {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
      {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
      {CL_PROFILING_INFO_NOT_AVAILABLE, "CL_PROFILING_INFO_NOT_AVAILABLE"},
      {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
      {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
      {CL_INVALID_BINARY, "CL_INVALID_BINARY"},
      {CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
      {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
      {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
      {CL_PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR"},
  };
  for (const auto& known : kNames) {
    if (known.code == code) return std::string(known.name) + " (" + std::to_string(code) + ")";
  }
  return "error " + std::to_string(code) + " of OpenCL";
}

Error failure(cl_int code, const char* call) {
  const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
  const bp_status status = memory ? BP_OUT_OF_MEMORY : code == CL_DEVICE_NOT_AVAILABLE ? BP_DEVICE_LOST : BP_INTERNAL;
  return {status, std::string(call) + ": " + code_name(code)};
}

}  // namespace backplane::driver::opencl
