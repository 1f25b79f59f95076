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
  // garbage_collection_threshold: above this part of the memory limit, long unused segments go back before a new one is taken; 0: never.
  double garbage_collection_threshold = 0;
  // roundup_power2_divisions: steps between two powers of two that a request is rounded up to, by power of two from 1 MiB to 64 GiB; empty:
  // none.
  std::vector<size_t> divisions;
  // expandable_segments: segments grow in place (bp.vmm).
  bool expandable_segments = false;
  // per_process_memory_fraction: the limit that every device starts with.
  double memory_fraction = 1;
  // pinned_max_round_threshold_mb, pinned_max_cached_size_mb: larger pinned memory is not rounded to a power of two, not cached.
  size_t pinned_max_round = std::numeric_limits<size_t>::max();
  size_t pinned_max_cached = std::numeric_limits<size_t>::max();
  // pinned_reserve_segment_size_mb: the segment that pinned memory is cut from while it lasts; 0: none.
  size_t pinned_segment = 0;
  // pinned_use_cuda_host_register, pinned_num_register_threads: pinned memory is the host's, touched by so many threads and registered.
  bool pinned_register = false;
  size_t pinned_register_threads = 1;
  std::string text;

  size_t round(size_t bytes) const;                          // to what a block really takes; 0 if that overflows
  size_t shared_limit() const { return large_segment / 2; }  // a larger request gets a segment of its own
};

// Throws ValueError if pinned_use_cuda_host_register is not for this driver.
void check_host_register(const Driver& driver);

// The current settings; a reference stays valid for ever. At first they are what PYTORCH_ALLOC_CONF says and then, setting by setting,
// <PREFIX>_ALLOC_CONF; ValueError names the setting that is unknown, wrong, or cannot be kept here.
const AllocConfig& alloc_config();
void set_alloc_config(const std::string& text);  // what it does not name has its default again

}  // namespace backplane::memory
