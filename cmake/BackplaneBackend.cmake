# cmake/BackplaneBackend.cmake: backplane_add_backend(), all that a vendor's CMakeLists.txt needs.

# backplane_add_backend(<device>
#   DRIVER <name of an SDK driver> | <source>...   the driver that the package embeds, for example `sim`
#   [PACKAGE <python package>]                     default: the device's name
#   [KERNELS [portable] <source>...]               the vendor's operators, compiled one by one; portable: the SDK's for every chip whose driver
#                                                  compiles (backend/kernels/portable), and with the driver cuda those that call NVIDIA's
#                                                  libraries (backend/kernels/cuda)
#   [EXTENSIONS <source>...]                       what replaces parts of the core (backplane/extend.h)
#
# Builds, in ${CMAKE_CURRENT_BINARY_DIR}/<package> and laid out as in the installed package:
#   lib/lib<device>_driver.so  lib/libbackplane_<shim>.so  lib/lib<device>.so  _C.*.so  _distributed.*.so  bin/backplane-check-driver  _build_info.py
# and installs them into <package>/ together with the headers and a CMake package of the backend.
# Targets to add to: <device> (the core and the kernels), <device>_driver.
function(backplane_add_backend device)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE" "DRIVER;KERNELS;EXTENSIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_add_backend(${device}): unknown argument ${arg_UNPARSED_ARGUMENTS}. "
                        "It takes DRIVER, PACKAGE, KERNELS and EXTENSIONS.")
  endif()
  if(NOT device MATCHES "^[a-z_]+$")
    message(FATAL_ERROR "backplane_add_backend(${device}): torch parses only device names of lower-case letters and underscores.")
  endif()
  if(NOT arg_PACKAGE)
    set(arg_PACKAGE "${device}")
  endif()
  string(TOUPPER "${device}" prefix)
  set(package_dir "${CMAKE_CURRENT_BINARY_DIR}/${arg_PACKAGE}")
  _backplane_find_torch()

  set(has_portable OFF)
  if(portable IN_LIST arg_KERNELS)
    set(has_portable ON)
    list(REMOVE_ITEM arg_KERNELS portable)
    if(arg_DRIVER STREQUAL "cuda")
      _backplane_glob(library_kernels "backend/kernels/cuda/*.cpp")
      list(PREPEND arg_KERNELS ${library_kernels})
    endif()
  endif()

  _backplane_require_files(KERNELS "neither a file nor the word portable" ${arg_KERNELS})
  _backplane_require_files(EXTENSIONS "not a file" ${arg_EXTENSIONS})

  # The longest compilations first: ninja starts what is ready in this order.
  _backplane_add_core(${device} ${arg_KERNELS} ${arg_EXTENSIONS})
  _backplane_add_bindings(${device})
  _backplane_add_distributed(${device})
  _backplane_add_embedded_driver(${device} driver_name ${arg_DRIVER})
  _backplane_add_shims()
  _backplane_add_check_driver()
  _backplane_write_build_info()
  _backplane_install(${device})
endfunction()

set(BACKPLANE_SHIMS emulate fault trace)  # of the SDK, always installed

# The functions below share the variables of backplane_add_backend: device, prefix, package_dir, has_portable, arg_*.

# Reports a source of the vendor's that does not exist and that no command of the build generates.
function(_backplane_require_files word otherwise)
  foreach(source IN LISTS ARGN)
    get_filename_component(path "${source}" ABSOLUTE)
    get_source_file_property(is_generated "${source}" GENERATED)
    if(NOT EXISTS "${path}" AND NOT is_generated AND NOT source MATCHES "\\$<")
      message(FATAL_ERROR "backplane_add_backend(${device}): ${word} ${source} is ${otherwise}.")
    endif()
  endforeach()
endfunction()

# A driver or a shim of the SDK (drivers/<folder>) as a shared object. Its driver.cmake names its `sources`, patterns below the SDK, and the
# `standard` of C++ if it is not that of code without torch.
function(_backplane_sdk_driver target folder)
  set(standard "")
  include("${BACKPLANE_ROOT}/drivers/${folder}/driver.cmake")
  _backplane_glob(files ${sources})
  _backplane_shared(${target} "${package_dir}/lib" ${files})
  _backplane_sdk_code(${target} ${ARGN})
  _backplane_torch_free(${target})
  if(standard)
    set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard})
  endif()
endfunction()

# lib<device>_driver.so. Sets <name_out> to the SDK driver's name, or to the device's where the sources are the vendor's.
function(_backplane_add_embedded_driver device name_out)
  file(GLOB known RELATIVE "${BACKPLANE_ROOT}/drivers" CONFIGURE_DEPENDS "${BACKPLANE_ROOT}/drivers/*/driver.cmake")
  list(TRANSFORM known REPLACE "/driver.cmake$" "")
  list(JOIN known ", " names)
  list(LENGTH ARGN count)
  if(count EQUAL 0)
    message(FATAL_ERROR "backplane_add_backend(${device}): DRIVER is missing. Give a driver of the SDK (${names}) or source files.")
  endif()
  set(first "${ARGV2}")
  if(count EQUAL 1 AND first IN_LIST known)
    _backplane_sdk_driver(${device}_driver ${first})
    set(${name_out} "${first}" PARENT_SCOPE)
    return()
  endif()
  _backplane_require_files(DRIVER "neither a file nor a driver of the SDK (${names})" ${ARGN})
  backplane_add_driver(${device} ${ARGN} OUTPUT_DIRECTORY "${package_dir}/lib")
  set(${name_out} "${device}" PARENT_SCOPE)
endfunction()

# libbackplane_<shim>.so
function(_backplane_add_shims)
  foreach(shim IN LISTS BACKPLANE_SHIMS)
    _backplane_sdk_driver(${device}_${shim} shims/${shim} -Og)
    set_target_properties(${device}_${shim} PROPERTIES OUTPUT_NAME "backplane_${shim}")
  endforeach()
endfunction()

# lib<device>.so: the core in unity groups, the vendor's sources one by one. Torch is found where the process has it: no RUNPATH.
function(_backplane_add_core device)
  # Two parts by their headers: the runtime includes none of torch's largest (tests/host/test_includes.py). What finds a kernel at each call is
  # compiled with it, for speed.
  _backplane_glob(runtime "backend/runtime/*.cpp" "backend/memory/*.cpp" "backend/random/*.cpp" "backend/graph/*.cpp"
                  "backend/host/*.cpp" "backend/modules/key.cpp")
  _backplane_glob(aten "backend/tensor/*.cpp" "backend/fallback/*.cpp" "backend/dispatch/*.cpp" "backend/aten/*.cpp"
                       "backend/autocast/*.cpp" "backend/serialization/*.cpp" "backend/modules/*.cpp" "backend/inductor/*.cpp")
  if(has_portable)
    _backplane_glob(portable "backend/kernels/portable/*/*.cpp")
    list(APPEND aten ${portable})
  endif()
  set(last "${BACKPLANE_ROOT}/backend/dispatch/registered_last.cpp")  # its initialiser runs after the vendor's and the core's: dispatch/defaults.h
  list(REMOVE_ITEM aten "${last}" "${BACKPLANE_ROOT}/backend/modules/key.cpp")
  set(texts "${CMAKE_CURRENT_BINARY_DIR}/generated/kernel_sources.cpp")
  _backplane_embed_sources("${texts}" "${CMAKE_CURRENT_SOURCE_DIR}/backend/kernels")
  list(APPEND aten "${texts}")
  add_library(${device}_core_aten OBJECT ${aten})
  _backplane_unity(${device}_core_aten ${aten})
  add_library(${device}_core_runtime OBJECT ${runtime})
  _backplane_one_unit(${device}_core_runtime)
  _backplane_write_autocast_lists("${CMAKE_CURRENT_BINARY_DIR}/generated")
  target_include_directories(${device}_core_aten PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/generated")

  # The plug of torch.profiler by itself: it is compiled with Kineto's headers and switch, which change others of torch.
  _backplane_glob(profiler "backend/profiler/*.cpp")
  add_library(${device}_core_profiler OBJECT ${profiler})
  _backplane_one_unit(${device}_core_profiler)
  target_include_directories(${device}_core_profiler SYSTEM PRIVATE "${BACKPLANE_TORCH_DIR}/include/kineto")
  target_compile_definitions(${device}_core_profiler PRIVATE USE_KINETO FMT_HEADER_ONLY=1)

  # The objects come first, then the sources in this order.
  add_library(${device} SHARED $<TARGET_OBJECTS:${device}_core_aten> $<TARGET_OBJECTS:${device}_core_runtime>
              $<TARGET_OBJECTS:${device}_core_profiler> ${ARGN} "${last}")
  set_target_properties(${device} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package_dir}/lib" LINKER_LANGUAGE CXX)
  if(IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/include")
    target_include_directories(${device} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/include")
  endif()
  _backplane_vendor_code(${device})
  _backplane_no_undefined(${device})
  _backplane_binds_own_functions(${device})
  add_dependencies(${device} ${device}_driver)

  foreach(target ${device}_core_aten ${device}_core_runtime ${device}_core_profiler ${device})
    _backplane_settings(${target})
    target_compile_options(${target} PRIVATE -fno-math-errno -fno-trapping-math)  # as torch: else square roots and choices are not vectorised
    target_include_directories(${target} PRIVATE "${BACKPLANE_ROOT}/include" "${BACKPLANE_ROOT}/backend")
    target_link_libraries(${target} PRIVATE backplane::torch)
    _backplane_definitions(${target})
  endforeach()
  foreach(target ${device}_core_aten ${device}_core_runtime ${device}_core_profiler)
    _backplane_sdk_code(${target})
    _backplane_large_unit(${target})
    target_compile_definitions(${target} PRIVATE TORCH_ASSERT_ONLY_METHOD_OPERATORS)  # torch's headers of all operators are an error
  endforeach()
  _backplane_inlined_only(${device}_core_aten)  # behind the level of _backplane_sdk_code

  # What most kernels include, compiled once: half of a kernel's build time. It pays from the fourth kernel on.
  list(LENGTH arg_KERNELS kernels)
  if(kernels GREATER 3)
    target_precompile_headers(${device} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${BACKPLANE_ROOT}/include/backplane/structured.h>")
    set_source_files_properties("${last}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    # It holds the paths of the headers in it, which ccache does not compare: one of another checkout would define everything twice.
    get_target_property(launcher ${device} CXX_COMPILER_LAUNCHER)
    if(launcher)
      list(PREPEND launcher "${CMAKE_COMMAND}" -E env "CCACHE_NAMESPACE=${BACKPLANE_ROOT}")  # before ours, or the user's own
      set_target_properties(${device} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    endif()
  endif()
endfunction()

# _<name>: a Python module of the package, thin pybind11 code in backend/<folder>.
function(_backplane_add_module device name folder)
  set(module ${device}_${name})
  _backplane_glob(sources "backend/${folder}/*.cpp")
  Python_add_library(${module} MODULE WITH_SOABI ${sources})
  _backplane_settings(${module})
  set_target_properties(${module} PROPERTIES
    OUTPUT_NAME _${name} LIBRARY_OUTPUT_DIRECTORY "${package_dir}"
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON INSTALL_RPATH "$ORIGIN/lib")
  _backplane_sdk_code(${module} -Og)
  _backplane_large_unit(${module})
  _backplane_one_unit(${module})
  target_include_directories(${module} PRIVATE "${BACKPLANE_ROOT}/include" "${BACKPLANE_ROOT}/backend")
  target_link_libraries(${module} PRIVATE ${device} backplane::torch_python)
  _backplane_definitions(${module})
endfunction()

function(_backplane_add_bindings device)
  _backplane_add_module(${device} C bindings)
  # The bindings have functions and no classes. By this pybind11's locks are Python's own, and leave out its registry of classes.
  target_compile_definitions(${device}_C PRIVATE PYBIND11_SIMPLE_GIL_MANAGEMENT)
endfunction()

# The process group, which Python loads with the first one. By itself, because c10d's headers include all of ATen.
function(_backplane_add_distributed device)
  _backplane_add_module(${device} distributed distributed)
  target_include_directories(${device}_distributed BEFORE PRIVATE "${BACKPLANE_ROOT}/backend/torch/c10d_only")
endfunction()

# bin/backplane-check-driver: the contract checker, torch-free.
function(_backplane_add_check_driver)
  _backplane_glob(sources "check_driver/*.cpp")
  add_executable(${device}_check_driver ${sources})
  _backplane_settings(${device}_check_driver)
  _backplane_sdk_code(${device}_check_driver -O0)  # its time is the driver's
  _backplane_torch_free(${device}_check_driver)
  set_target_properties(${device}_check_driver PROPERTIES OUTPUT_NAME backplane-check-driver RUNTIME_OUTPUT_DIRECTORY "${package_dir}/bin")
endfunction()

function(_backplane_definitions target)
  target_compile_definitions(${target} PRIVATE
    BACKPLANE_DEVICE_NAME="${device}" BACKPLANE_ENV_PREFIX="${prefix}"
    BACKPLANE_VERSION="${BACKPLANE_VERSION}" BACKPLANE_CORE_PROTOCOL=${BACKPLANE_CORE_PROTOCOL})
endfunction()

# _build_info.py: read by the Python runtime before any native code loads.
function(_backplane_write_build_info)
  string(STRIP "${CMAKE_CXX_FLAGS}" flags)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    string(STRIP "${flags} -O2 -g0" flags)
  else()
    string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
    string(STRIP "${flags} ${CMAKE_CXX_FLAGS_${type}}" flags)
  endif()
  string(REPLACE "\\" "\\\\" flags "${flags}")
  string(REPLACE "\"" "\\\"" flags "${flags}")
  # An editable install, or a build of one file a compilation: its imports look over what is registered.
  set(development False)
  if(BACKPLANE_DEV OR "${SKBUILD_STATE}" STREQUAL "editable")
    set(development True)
  endif()
  configure_file("${BACKPLANE_ROOT}/cmake/_build_info.py.in" "${package_dir}/_build_info.py" @ONLY)
endfunction()

function(_backplane_install device)
  install(FILES "${package_dir}/_build_info.py" DESTINATION "${arg_PACKAGE}")
  list(TRANSFORM BACKPLANE_SHIMS PREPEND "${device}_" OUTPUT_VARIABLE shims)
  install(TARGETS ${device} ${device}_driver ${shims} LIBRARY DESTINATION "${arg_PACKAGE}/lib")
  install(TARGETS ${device}_C ${device}_distributed LIBRARY DESTINATION "${arg_PACKAGE}")
  install(TARGETS ${device}_check_driver RUNTIME DESTINATION "${arg_PACKAGE}/bin")
  # The headers travel with the libraries that were compiled from them, whatever SDK is installed later. What extend.h replaces is
  # compiled into lib<device>.so itself.
  install(DIRECTORY "${BACKPLANE_ROOT}/include/backplane" DESTINATION "${arg_PACKAGE}/include" PATTERN extend.h EXCLUDE)
  if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL BACKPLANE_ROOT AND IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/include")
    install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/include/" DESTINATION "${arg_PACKAGE}/include" FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  endif()
  configure_file("${BACKPLANE_ROOT}/cmake/deviceConfig.cmake.in" "${package_dir}/lib/cmake/${device}/${device}Config.cmake" @ONLY)
  install(FILES "${package_dir}/lib/cmake/${device}/${device}Config.cmake" DESTINATION "${arg_PACKAGE}/lib/cmake/${device}")
endfunction()
