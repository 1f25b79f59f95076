# backplane_sdk/cmake/backplaneConfig.cmake: leads find_package(backplane) from the Python package to the SDK's CMake files.
if(IS_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/../source/cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/../source/cmake/backplaneConfig.cmake")  # a wheel
else()
  include("${CMAKE_CURRENT_LIST_DIR}/../../../cmake/backplaneConfig.cmake")  # the source tree
endif()
