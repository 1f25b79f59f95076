// drivers/vulkan/one_entry.h: the part of a SPIR-V module that one of its entry points needs.
//
// A module of several entry points has a block of push constants for each. Vulkan allows it; the validation layers (1.3.239) crash on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace backplane::driver::vulkan {

/// Without the other entry points, their functions and their variables. Of SPIR-V 1.4 or newer, where an entry point lists its variables.
std::vector<uint32_t> one_entry(const std::vector<uint32_t>& words, const std::string& name);

}  // namespace backplane::driver::vulkan
