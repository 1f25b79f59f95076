/* tests/driver/layout.c: the driver ABI as C11 sees it. It only has to compile: gcc -std=c11 -pedantic -Werror -fsyntax-only. */
#define CHECK(condition, text) _Static_assert(condition, text);
#include "layout.h"
