// tests/driver/layout.cpp: the driver ABI as C++17 and C++20 see it. It only has to compile.
#include <type_traits>

#define CHECK(condition, text) static_assert(condition, text);
#include "layout.h"

static_assert(std::is_standard_layout_v<bp_driver> && std::is_trivially_copyable_v<bp_driver>, "a table can be copied as bytes");
static_assert(std::is_same_v<decltype(&bp_driver_get), bp_driver_get_fn>, "the symbol has the type that loaders use");
