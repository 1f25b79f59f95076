// memory/alloc_config.h: the allocator's settings, "key:value,key:value" as PyTorch writes them.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace backplane {
struct Driver;
}

namespace backplane::memory {

struct AllocConfig {
  // max_split_size_mb: blocks of this size and above are not split, and serve only requests of about their size.
  size_t max_split_size = std::numeric_limits<size_t>::max();
  // max_non_split_rounding_mb: how much larger than the request such a block may be.
  size_t non_split_rounding = size_t{20} << 20;
  // large_segment_size_mb: the segment that requests from 1 MiB to half of it share.
  size_t large_segment = size_t{20} << 20;
  // garbage_collection_threshold: above this fraction of the memory limit, segments that are long unused are freed before a new one is
  // allocated; 0: never.
  double garbage_collection_threshold = 0;
  // roundup_power2_divisions: steps between two powers of two that a request is rounded up to, by power of two from 1 MiB to 64 GiB; empty:
  // none.
  std::vector<size_t> divisions;
  // expandable_segments: segments grow in place (bp.vmm).
  bool expandable_segments = false;
  // per_process_memory_fraction: the initial limit of every device.
  double memory_fraction = 1;
  // pinned_max_round_threshold_mb, pinned_max_cached_size_mb: larger pinned memory is not rounded to a power of two, not cached.
  size_t pinned_max_round = std::numeric_limits<size_t>::max();
  size_t pinned_max_cached = std::numeric_limits<size_t>::max();
  // pinned_reserve_segment_size_mb: the segment from which pinned memory is allocated while there is room; 0: none.
  size_t pinned_segment = 0;
  // pinned_use_cuda_host_register, pinned_num_register_threads: pinned memory is allocated from the host, touched by this many threads and
  // registered.
  bool pinned_register = false;
  size_t pinned_register_threads = 1;
  std::string text;

  size_t round(size_t bytes) const;                          // to the size of the block; 0 if that overflows
  size_t shared_limit() const { return large_segment / 2; }  // a larger request gets its own segment
};

// Throws ValueError if the driver does not support pinned_use_cuda_host_register.
void check_host_register(const Driver& driver);

// The current settings; a reference stays valid forever. Initially those of PYTORCH_ALLOC_CONF, overridden setting by setting by
// <PREFIX>_ALLOC_CONF; ValueError names the setting that is unknown, invalid, or not supported here.
const AllocConfig& alloc_config();
void set_alloc_config(const std::string& text);  // settings that it does not name return to their defaults

}  // namespace backplane::memory
