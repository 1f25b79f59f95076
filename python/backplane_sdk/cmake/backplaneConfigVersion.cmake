# backplane_sdk/cmake/backplaneConfigVersion.cmake: see backplaneConfig.cmake.
if(IS_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/../source/cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/../source/cmake/backplaneConfigVersion.cmake")  # a wheel
else()
  include("${CMAKE_CURRENT_LIST_DIR}/../../../cmake/backplaneConfigVersion.cmake")  # the source tree
endif()
