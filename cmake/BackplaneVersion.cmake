# cmake/BackplaneVersion.cmake: where the SDK is, and its version and core protocol, read from their one home: backplane_sdk/__init__.py.
get_filename_component(BACKPLANE_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." REALPATH)
set(_init "${BACKPLANE_ROOT}/python/backplane_sdk/__init__.py")  # the source tree
if(NOT EXISTS "${_init}")
  set(_init "${BACKPLANE_ROOT}/../__init__.py")  # a wheel: this folder lies in backplane_sdk/source/cmake
endif()
file(STRINGS "${_init}" _lines REGEX "^(__version__|CORE_PROTOCOL) = ")
string(REGEX MATCH "__version__ = \"([0-9][0-9A-Za-z.+]*)\"" _ "${_lines}")
set(BACKPLANE_VERSION "${CMAKE_MATCH_1}")
string(REGEX MATCH "CORE_PROTOCOL = ([0-9]+)" _ "${_lines}")
set(BACKPLANE_CORE_PROTOCOL "${CMAKE_MATCH_1}")
