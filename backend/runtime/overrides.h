// runtime/overrides.h: where the layers above the runtime register themselves, and where a vendor's extension replaces them.
//
// Read at use, so the order of static initializers does not matter: a vendor's value takes precedence over the core's.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

namespace backplane {

template <typename T>
struct Override {
  T core{};
  T vendor{};
  const T& get() const { return vendor ? vendor : core; }
};

class Hooks;

struct Overrides {
  Hooks* hooks = nullptr;                                                  // the vendor's: runtime/hooks.h
  Override<c10::Allocator* (*)()> pinned_allocator;                        // memory/
  Override<bool (*)(const void*)> is_pinned;                               // memory/
  Override<void (*)(const c10::Storage&, size_t)> resize_storage;          // memory/: keeps the old bytes; new bytes are undefined
  Override<at::Generator (*)(c10::DeviceIndex)> make_generator;            // random/: a new generator
  Override<const at::Generator& (*)(c10::DeviceIndex)> default_generator;  // random/: one per device index
  Override<bool (*)(const c10::Stream&)> is_capturing;                     // for an existing stream: runtime/stream.h
  void (*driver_opened)() = nullptr;                                       // aten/: called by the thread that has opened the driver
  void (*release_staging)() = nullptr;  // fallback/: returns the pinned memory that it keeps to the allocator
};

Overrides& overrides();

}  // namespace backplane
