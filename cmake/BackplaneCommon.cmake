# cmake/BackplaneCommon.cmake: settings that every target of a backend shares: standard, optimisation, warnings, ccache, reproducible paths.

# -O3 gains nothing in this code and costs build time; -g0 because Python distributions often put -g into CFLAGS.
function(_backplane_settings target)
  find_package(Threads REQUIRED)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-O2> $<$<CONFIG:Release>:-g0>
    "-ffile-prefix-map=${BACKPLANE_ROOT}=backplane" "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  _backplane_compile_pool(${target})
  if(BACKPLANE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(BACKPLANE_CCACHE_PROGRAM ccache)
    if(BACKPLANE_CCACHE_PROGRAM)
      # The two that ccache's manual asks for with precompiled headers.
      set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${BACKPLANE_CCACHE_PROGRAM}")
      set_target_properties(${target} PROPERTIES C_COMPILER_LAUNCHER "${launcher}" CXX_COMPILER_LAUNCHER "${launcher}")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>")
    endif()
  endif()
endfunction()

# For the vendor's code. More is the vendor's to ask for: -Wextra warns of each `VkFoo x{TYPE}`, as runtimes with such structs are called.
function(_backplane_vendor_code target)
  target_compile_options(${target} PRIVATE -Wall $<IF:$<BOOL:${BACKPLANE_DEV}>,-Wextra,>)
endfunction()

# For the SDK's own code. Its warnings are for who works on it (BACKPLANE_DEV), not for a vendor with another compiler or -Werror; looking for
# them is a thirtieth of its build time. Of what GCC's -O2 does, the inlining and the vectoriser make its speed (benchmarks/); the rest is a
# fifth. What no operator runs through gives a level of its own, such as -Og, a fifth less again; the core's `empty` would be a quarter slower.
function(_backplane_sdk_code target)
  target_compile_options(${target} PRIVATE $<IF:$<BOOL:${BACKPLANE_DEV}>,-Wall;-Wextra,-w>)
  if(ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${ARGN}>)
  else()
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:
      -O1 -finline-small-functions -findirect-inlining -fpartial-inlining -foptimize-sibling-calls -fstrict-aliasing -ftree-vectorize>)
  endif()
endfunction()

# For the SDK's code that calls torch and the driver and has no loops of its own: of GCC's optimiser the inlining alone. The passes over a
# function's statements are a fifth of its build time; a small operator of the portable kernels is a tenth slower without them, and
# `empty` and views are as fast.
function(_backplane_inlined_only target)
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Og;-finline-functions-called-once;-ftree-sra>")
endfunction()

# For a unit that is as large as the core and includes torch. GCC collects its garbage so often by default that it takes a tenth of the
# time. And c10's approximate clock includes <x86intrin.h> for one instruction, `rdtsc`; the rest of it, all vector instructions, takes
# GCC 0.7 s to read. It gets the small header which has that one, and the large one's include guard.
function(_backplane_large_unit target)
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-expand=200 --param ggc-min-heapsize=400000>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 11 AND
     CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    target_compile_options(${target} PRIVATE "SHELL:-include x86gprintrin.h" -D_X86INTRIN_H_INCLUDED)
  endif()
endfunction()

# A missing function is an error of the build, not of the import. Sanitizers leave theirs to the program.
function(_backplane_no_undefined target)
  if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}" MATCHES "-fsanitize|-z,undefs")
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# The linker resolves references to the library's own functions. Most of them are instances of torch's templates, whose visibility is the
# default: without this the loader looks up 4,500 of them in each import. Static variables of inline functions stay one of the process.
function(_backplane_binds_own_functions target)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
endfunction()

# Sets <out> to the sources below BACKPLANE_ROOT that match; files that come or go are noticed by the next build.
function(_backplane_glob out)
  list(TRANSFORM ARGN PREPEND "${BACKPLANE_ROOT}/")
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${ARGN})
  list(SORT files)
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

# Compiles a target of the SDK's own as one unit, where the headers cost more than the code.
function(_backplane_one_unit target)
  if(NOT BACKPLANE_DEV)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# For the SDK's own code on the driver's side of the line, which needs neither torch nor, with it, C++20: the standard headers take twice
# the time there.
function(_backplane_torch_free target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17)
  target_include_directories(${target} PRIVATE "${BACKPLANE_ROOT}/include")
  _backplane_one_unit(${target})
endfunction()

# Sets <out> to the number of compilations at a time: CMAKE_BUILD_PARALLEL_LEVEL of the environment, else that of the processors (for
# nproc, and so for CMake's ProcessorCount, OMP_NUM_THREADS is that number).
function(_backplane_jobs out)
  set(jobs "$ENV{CMAKE_BUILD_PARALLEL_LEVEL}")
  if(NOT jobs MATCHES "^[1-9][0-9]*$")
    execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=OMP_NUM_THREADS --unset=OMP_THREAD_LIMIT nproc
                    OUTPUT_VARIABLE jobs OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(NOT jobs MATCHES "^[1-9][0-9]*$")
    cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)
  endif()
  set(${out} "${jobs}" PARENT_SCOPE)
endfunction()

# By itself ninja starts one or two compilations more than there are processors. These take a gigabyte each and the more time the more
# of them share a cache. A project that has set CMAKE_JOB_POOL_COMPILE keeps its own pool.
function(_backplane_compile_pool target)
  if(CMAKE_JOB_POOL_COMPILE)
    return()
  endif()
  get_property(pools GLOBAL PROPERTY JOB_POOLS)
  if(NOT pools MATCHES "backplane_compile=")
    _backplane_jobs(jobs)
    set_property(GLOBAL APPEND PROPERTY JOB_POOLS "backplane_compile=${jobs}")
  endif()
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE backplane_compile)
endfunction()

# Puts `sources` into as many unity files as there are processors to spare (one is busy with the bindings). Dealt round: the groups stay as
# they are when a file is edited.
function(_backplane_unity target)
  if(BACKPLANE_DEV)
    return()
  endif()
  _backplane_jobs(jobs)
  math(EXPR groups "${jobs} - 1")
  if(groups LESS 1)
    set(groups 1)
  endif()
  set(i 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${i} % ${groups}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "core${group}")
    math(EXPR i "${i} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
