// extend/allocator.cpp: an allocator of one's own: here one that counts what it takes from the driver, in a memory region for example.
//
// Derive from CachingAllocator. Two levels can be replaced: where its segments come from (segment_alloc, segment_free), with the caching,
// the streams and the statistics kept, as below; or allocate() and the rest, for a device with an allocator of its own.
#include <backplane/extend.h>
#include <torch/library.h>

#include <atomic>

namespace {

std::atomic<int64_t> segments{0};
std::atomic<int64_t> segment_bytes{0};

class CountingAllocator : public backplane::CachingAllocator {
 public:
  // NULL when the device is full (the caller frees its cache and asks again); throws for anything else.
  void* segment_alloc(c10::DeviceIndex device, size_t bytes) override {
    void* const memory = CachingAllocator::segment_alloc(device, bytes);
    if (memory != nullptr) {
      ++segments;
      segment_bytes += static_cast<int64_t>(bytes);
    }
    return memory;
  }

  // Never throws: it runs in destructors.
  void segment_free(c10::DeviceIndex device, void* memory, size_t bytes) noexcept override {
    --segments;
    segment_bytes -= static_cast<int64_t>(bytes);
    CachingAllocator::segment_free(device, memory, bytes);
  }
};

const backplane::extend::Allocator<CountingAllocator> allocator;

}  // namespace

// For the test.
TORCH_LIBRARY_FRAGMENT(extdevice, m) {
  m.def("segments", [] { return segments.load(); });
  m.def("segment_bytes", [] { return segment_bytes.load(); });
}
