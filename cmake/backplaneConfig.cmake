# cmake/backplaneConfig.cmake: what find_package(backplane CONFIG) gives: backplane_add_backend() and backplane_add_driver().
#
# A project with a persistent build folder writes `unset(backplane_DIR CACHE)` before find_package(backplane): CMake caches that path, and
# would go on compiling the old SDK after the installed one has moved (editable -> wheel, new virtual environment).
include("${CMAKE_CURRENT_LIST_DIR}/BackplaneVersion.cmake")
message(STATUS "Backplane SDK ${BACKPLANE_VERSION} (core protocol ${BACKPLANE_CORE_PROTOCOL}): ${BACKPLANE_ROOT}")

option(BACKPLANE_DEV "for work on the SDK: compile every source by itself, and show its warnings" OFF)
option(BACKPLANE_CCACHE "compile through ccache if it is installed" ON)

# The build type decides speed, and CMake's default is none at all.
get_property(_backplane_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT _backplane_multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

include("${CMAKE_CURRENT_LIST_DIR}/BackplaneCommon.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/BackplaneTorch.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/BackplaneDriver.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/EmbedSources.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/BackplaneBackend.cmake")
