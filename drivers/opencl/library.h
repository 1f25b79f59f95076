// drivers/opencl/library.h: finds and opens the OpenCL library, and turns its results into errors of the driver.
#pragma once

#include <string>
#include <vector>

#include <backplane/driver/cxx/error.hpp>

#include "cl.h"

namespace backplane::driver::opencl {

/// The functions of an OpenCL library, by their names. The library stays open for the life of the process.
struct Api {
#define BP_POINTER(result, name, parameters) result(*name) parameters = nullptr;
  BP_OPENCL_FUNCTIONS(BP_POINTER)
  BP_OPENCL_FUNCTIONS_2(BP_POINTER)
#undef BP_POINTER
};

/// The places where the library is looked for: `wanted` alone, if it is not ""; else libOpenCL.so.1 of the system, then the ICD loaders
/// that pip has installed beside this driver or another library of this process.
std::vector<std::string> library_places(const std::string& wanted);

/// Opens a library, or gives what was opened before. Throws Error(BP_UNSUPPORTED): there is none, or it is no OpenCL 1.2.
const Api& open_library(const std::string& place);

/// True if this process, and not a parent before a fork, has opened one: its threads and locks are then as they should be.
bool library_is_open();

/// "clBuildProgram: CL_OUT_OF_RESOURCES (-5)" as an error: OUT_OF_MEMORY, DEVICE_LOST or INTERNAL.
Error failure(cl_int code, const char* call);
std::string code_name(cl_int code);

inline void check(cl_int code, const char* call) {
  if (code != CL_SUCCESS) throw failure(code, call);
}

/// One of clGet...Info with all but the last three arguments bound: `ask(bytes, out, bytes_needed)`.
template <class Ask>
std::string info_text(Ask&& ask) {
  size_t bytes = 0;
  if (ask(size_t{0}, static_cast<void*>(nullptr), &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string text(bytes, '\0');
  if (ask(bytes, static_cast<void*>(text.data()), static_cast<size_t*>(nullptr)) != CL_SUCCESS) return "";
  return text.substr(0, text.find('\0'));
}

}  // namespace backplane::driver::opencl
