# cmake/BackplaneVersion.cmake: where the SDK is, and its version, core protocol and versions of torch, read from their one home: backplane_sdk/__init__.py.
get_filename_component(BACKPLANE_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." REALPATH)
set(_init "${BACKPLANE_ROOT}/python/backplane_sdk/__init__.py")  # the source tree
if(NOT EXISTS "${_init}")
  set(_init "${BACKPLANE_ROOT}/../__init__.py")  # a wheel: this folder lies in backplane_sdk/source/cmake
endif()
file(STRINGS "${_init}" _lines REGEX "^(__version__|CORE_PROTOCOL|TORCH_MINORS) = ")
string(REGEX MATCH "__version__ = \"([0-9][0-9A-Za-z.+]*)\"" _ "${_lines}")
set(BACKPLANE_VERSION "${CMAKE_MATCH_1}")
string(REGEX MATCH "CORE_PROTOCOL = ([0-9]+)" _ "${_lines}")
set(BACKPLANE_CORE_PROTOCOL "${CMAKE_MATCH_1}")
string(REGEX MATCH "TORCH_MINORS = [^)]*" _minors "${_lines}")
string(REGEX MATCHALL "[0-9]+\\.[0-9]+" BACKPLANE_TORCH_MINORS "${_minors}")
list(GET BACKPLANE_TORCH_MINORS 0 BACKPLANE_OLDEST_TORCH)
list(GET BACKPLANE_TORCH_MINORS -1 BACKPLANE_NEWEST_TORCH)
