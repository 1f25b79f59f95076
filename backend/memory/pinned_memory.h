// memory/pinned_memory.h: where the pinned cache's memory comes from: the driver's host_alloc, registered host memory, or one segment of
// either that is divided into small pieces, as the pinned_* settings say (alloc_config.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace backplane::memory {

// Any thread; no lock is held during a call of the driver. Settings may change between an allocation and its free.
class PinnedMemory {
 public:
  // Returns the driver's status; BP_OUT_OF_MEMORY also where the host has no memory. last_error_text() has the reason.
  int32_t alloc(size_t bytes, void** out);
  int32_t free(void* ptr);

 private:
  // The segment lives until the end of the process. Pieces are cut one after the other; when all are free it starts again from the
  // beginning.
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
