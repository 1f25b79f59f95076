// drivers/spirv/print_c.h: a printer over the tree, as an example of one: it gives the dialect again, expanded and with every conversion
// written out. What it prints, behind another compiler's prelude, is a unit for that compiler.
#pragma once

#include <string>

#include "tree.h"

namespace backplane::driver::spirv {

/// What to parse for it: no word is composed of others, since the other prelude has them.
Facts facts_of_printed();

/// The text of all kernels and what they use, without definitions and prelude. Throws Error for what the dialect cannot say.
std::string print_c(const Unit& unit);

}  // namespace backplane::driver::spirv
