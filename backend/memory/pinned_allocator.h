// memory/pinned_allocator.h: page-locked host memory, which the driver copies asynchronously; cached, reused when its copies are complete.
//
// The allocator is PyTorch's own host cache over the driver's host_alloc, registered for the device: at::getHostAllocator(kDevice) provides
// record_event, empty_cache and statistics, and torch.accelerator's host memory functions work. Opens the driver at the first allocation.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>

namespace backplane {

at::HostAllocator& pinned_allocator();

// Whether the address is in pinned memory: of this allocator, or known to the driver (host_register). Never opens the driver.
bool is_pinned(const void* ptr);

}  // namespace backplane
