# cmake/BackplaneTorch.cmake: finds torch through its Python and defines backplane::torch and backplane::torch_python.
#
# Not by find_package(Torch), which fails for a CUDA wheel on a machine without the CUDA toolkit, and not by importing torch (slow, and it
# would autoload the very backend that is being built): the package's folder and version.py say all that is needed.
# The versions of torch that the SDK is for stand in python/backplane_sdk/__init__.py (BackplaneVersion.cmake reads them).
# For another machine than this, BACKPLANE_TORCH_DIR is the folder torch of a wheel for that machine: this one's Python cannot import it.
# Sets BACKPLANE_TORCH_DIR, BACKPLANE_TORCH_VERSION (2.13.0+cpu) and BACKPLANE_TORCH_MINOR (2.13) in the caller.
macro(_backplane_find_torch)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
  if(CMAKE_CROSSCOMPILING)
    if(NOT BACKPLANE_TORCH_DIR)
      message(FATAL_ERROR
        "backplane: a build for ${CMAKE_SYSTEM_PROCESSOR} needs the torch of that machine: unpack torch's wheel for it, and give "
        "-DBACKPLANE_TORCH_DIR=<its folder torch>.")
    endif()
    # Python's modules have the processor in their names; the interpreter that is asked is this machine's.
    string(REPLACE "${CMAKE_HOST_SYSTEM_PROCESSOR}" "${CMAKE_SYSTEM_PROCESSOR}" Python_SOABI "${Python_SOABI}")
  else()
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE BACKPLANE_TORCH_DIR COMMAND_ERROR_IS_FATAL ANY)
  endif()
  if(NOT EXISTS "${BACKPLANE_TORCH_DIR}/version.py" OR NOT IS_DIRECTORY "${BACKPLANE_TORCH_DIR}/include")
    message(FATAL_ERROR
      "backplane: torch is not installed for ${Python_EXECUTABLE}. Install the torch that the backend is for into this Python (another "
      "Python: -DPython_EXECUTABLE=...), and build without isolation: pip install --no-build-isolation . (an isolated build would compile "
      "against another torch than the one in use).")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${BACKPLANE_TORCH_DIR}/version.py")
  file(STRINGS "${BACKPLANE_TORCH_DIR}/version.py" _version REGEX "^__version__ ")
  string(REGEX MATCH "['\"](([0-9]+\\.[0-9]+)[^'\"]*)['\"]" _ "${_version}")
  set(BACKPLANE_TORCH_VERSION "${CMAKE_MATCH_1}")
  set(BACKPLANE_TORCH_MINOR "${CMAKE_MATCH_2}")
  message(STATUS "torch ${BACKPLANE_TORCH_VERSION}: ${BACKPLANE_TORCH_DIR}")
  if(BACKPLANE_TORCH_MINOR VERSION_LESS BACKPLANE_OLDEST_TORCH)
    message(FATAL_ERROR "backplane: torch ${BACKPLANE_TORCH_VERSION} is too old; Backplane ${BACKPLANE_VERSION} needs torch ${BACKPLANE_OLDEST_TORCH} or newer.")
  elseif(BACKPLANE_TORCH_MINOR VERSION_GREATER BACKPLANE_NEWEST_TORCH)
    message(WARNING "backplane: torch ${BACKPLANE_TORCH_VERSION} is newer than ${BACKPLANE_NEWEST_TORCH}, the newest that Backplane ${BACKPLANE_VERSION} was written for.")
  endif()

  if(NOT TARGET backplane::torch)
    add_library(backplane::torch INTERFACE IMPORTED GLOBAL)  # imported: its include folders are SYSTEM
    target_include_directories(backplane::torch INTERFACE "${BACKPLANE_TORCH_DIR}/include"
                                                          "${BACKPLANE_TORCH_DIR}/include/torch/csrc/api/include")
    target_compile_definitions(backplane::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_DISTRIBUTED USE_C10D_GLOO
                                                          AT_PER_OPERATOR_HEADERS)  # torch's headers include those of single operators
    get_filename_component(_real "${BACKPLANE_TORCH_DIR}" REALPATH)
    target_compile_options(backplane::torch INTERFACE "-ffile-prefix-map=${BACKPLANE_TORCH_DIR}=torch" "-ffile-prefix-map=${_real}=torch")
    target_link_libraries(backplane::torch INTERFACE "${BACKPLANE_TORCH_DIR}/lib/libtorch_cpu.so" "${BACKPLANE_TORCH_DIR}/lib/libc10.so")
    # pybind11 is torch's own copy, which lies among torch's headers: its objects and exceptions pass between the two.
    add_library(backplane::torch_python INTERFACE IMPORTED GLOBAL)
    target_link_libraries(backplane::torch_python INTERFACE "${BACKPLANE_TORCH_DIR}/lib/libtorch_python.so" backplane::torch)
  endif()
endmacro()

# Writes torch_autocast_lists.h into <dir>: torch's lists of operators for autocast, without the header that holds them, which includes all of
# ATen. They are macros, AT_FORALL_<POLICY>(_).
function(_backplane_write_autocast_lists dir)
  set(header "${BACKPLANE_TORCH_DIR}/include/ATen/autocast_mode.h")
  file(READ "${header}" text)
  set(lists "// Taken from ATen/autocast_mode.h of torch ${BACKPLANE_TORCH_VERSION} at configure time.\n#pragma once\n")
  foreach(policy LOWER_PRECISION_FP FP32 FP32_SET_OPT_DTYPE DIFFERENT_REDISPATCH_SIGNATURE PROMOTE)
    string(REGEX MATCH "#define AT_FORALL_${policy}\\(_\\)([^\n]*\\\\\n)+[^\n]*" list "${text}")
    if(NOT list)
      message(FATAL_ERROR "backplane: ${header} has no list AT_FORALL_${policy}; Backplane ${BACKPLANE_VERSION} knows torch ${BACKPLANE_OLDEST_TORCH} to ${BACKPLANE_NEWEST_TORCH}.")
    endif()
    string(APPEND lists "${list}\n")
  endforeach()
  file(CONFIGURE OUTPUT "${dir}/torch_autocast_lists.h" CONTENT "${lists}" @ONLY)
endfunction()
