// runtime/overrides.h: where the parts above the runtime plug themselves in, and where a vendor's extension replaces them.
//
// Read at use, so the order of static initialisers does not matter: what a vendor sets wins over what the core sets.
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
  Override<bool (*)(const c10::Stream&)> is_capturing;                     // of a stream that exists: runtime/stream.h
  void (*driver_opened)() = nullptr;                                       // aten/: by the thread that has opened the driver
  void (*give_back_staging)() = nullptr;  // fallback/: what it keeps of pinned memory goes back to the allocator
};

Overrides& overrides();

}  // namespace backplane
