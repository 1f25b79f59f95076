// aten/registration.h: what failed while kernels were registered.
#pragma once

#include <string>
#include <vector>

namespace backplane {

// "file:line: reason", one a BACKPLANE_KERNELS block. Empty: every kernel was registered. Static initialisers have run once it can be
// called.
std::vector<std::string> registration_errors();

}  // namespace backplane
