// memory/retry.cpp: releases the memory that both caches hold.
#include "memory/retry.h"

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"

namespace backplane {

void memory::release_caches() {
  caching_allocator().emptyCache();
  pinned_allocator().empty_cache();
}

}  // namespace backplane
