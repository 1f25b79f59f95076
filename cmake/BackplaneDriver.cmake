# cmake/BackplaneDriver.cmake: backplane_add_driver(), for a driver by itself: no torch, no Python, nothing of the core.

# backplane_add_driver(<name> <source>... [OUTPUT_DIRECTORY <dir>])
#
# Builds lib<name>_driver.so from C or C++ sources against the driver headers alone, as the target <name>_driver: further include folders
# and the vendor's runtime are added by target_link_libraries(<name>_driver PRIVATE ...). Only what is marked BP_EXPORT leaves the library.
function(backplane_add_driver name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_DIRECTORY" "")
  if(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "backplane_add_driver(${name}): no source files were given. Name at least the file that defines bp_driver_get().")
  endif()
  _backplane_shared(${name}_driver "${arg_OUTPUT_DIRECTORY}" ${arg_UNPARSED_ARGUMENTS})
  _backplane_vendor_code(${name}_driver)
endfunction()

# backplane_use_spirv(<target>)
#
# Adds the SDK's compiler of the kernel dialect to SPIR-V, and its typed tree, to a driver: `#include <spirv/spirv.h>` (docs/targets.md).
function(backplane_use_spirv target)
  file(GLOB sources CONFIGURE_DEPENDS "${BACKPLANE_ROOT}/drivers/spirv/*.cpp")
  target_sources(${target} PRIVATE ${sources})
  target_include_directories(${target} PRIVATE "${BACKPLANE_ROOT}/drivers")
endfunction()

# A shared object on the driver side of the line.
function(_backplane_shared target output_directory)
  if(NOT output_directory)
    set(output_directory "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  add_library(${target} SHARED ${ARGN})
  _backplane_settings(${target})
  set_target_properties(${target} PROPERTIES
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY "${output_directory}")
  target_include_directories(${target} PRIVATE "${BACKPLANE_ROOT}/include")
  _backplane_no_undefined(${target})
endfunction()
