// memory/alloc_config.h: the allocator's settings, "key:value,key:value" as PyTorch writes them.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace backplane::memory {

struct AllocConfig {
  // max_split_size_mb: blocks of this size and above are not split, and serve only requests of about their size.
  size_t max_split_size = std::numeric_limits<size_t>::max();
  // garbage_collection_threshold: above this part of the memory limit, long unused segments go back before a new one is taken; 0: never.
  double garbage_collection_threshold = 0;
  // roundup_power2_divisions: steps between two powers of two that a request is rounded up to, by power of two from 1 MiB to 64 GiB; empty:
  // none.
  std::vector<size_t> divisions;
  std::string text;

  size_t round(size_t bytes) const;  // to what a block really takes; 0 if that overflows
};

// The current settings; a reference stays valid for ever. Raises ValueError if <PREFIX>_ALLOC_CONF is wrong.
const AllocConfig& alloc_config();
void set_alloc_config(const std::string& text);

}  // namespace backplane::memory
