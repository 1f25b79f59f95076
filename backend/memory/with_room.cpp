// memory/with_room.cpp: what both caches hold goes back.
#include "memory/with_room.h"

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"

namespace backplane {

void memory::give_caches_back() {
  caching_allocator().emptyCache();
  pinned_allocator().empty_cache();
}

}  // namespace backplane
