// memory/pinned_memory.h: where the pinned cache's memory comes from: the driver's host_alloc, the host's memory that is registered, or one
// segment of either that small pieces are cut from, as the pinned_* settings say (alloc_config.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace backplane::memory {

// Any thread; no lock is held over a call of the driver. Settings may change between an allocation and its free.
class PinnedMemory {
 public:
  // A status of the driver's; BP_OUT_OF_MEMORY also where the host has none. last_error_text() has the words.
  int32_t alloc(size_t bytes, void** out);
  int32_t free(void* ptr);

 private:
  // It stays to the end of the process. Pieces are cut one behind the other; when all are free it begins anew.
  struct Segment {
    char* begin;
    size_t size;
    size_t used = 0;
    size_t pieces = 0;
  };

  bool cut(size_t bytes, void** out);  // under the lock
  int32_t alloc_whole(size_t bytes, void** out);
  int32_t alloc_registered(size_t bytes, size_t threads, void** out);

  std::mutex mutex_;
  std::optional<Segment> segment_;
  std::unordered_set<void*> registered_;
};

}  // namespace backplane::memory
