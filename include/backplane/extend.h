// backplane/extend.h: how a vendor replaces a part of the core: derive from its class, and register the derived class with one line in a
// source that EXTENSIONS of backplane_add_backend() names.
//
//   static const backplane::extend::Allocator<MyAllocator> allocator;   // of backplane::CachingAllocator   memory/caching_allocator.h
//   static const backplane::extend::Generator<MyGenerator> generator;   // of backplane::PhiloxGenerator    random/generator.h
//   static const backplane::extend::Hooks<MyHooks> hooks;               // of backplane::Hooks              runtime/hooks.h
//   static const backplane::extend::Storage<MyStorage> storage;         // of c10::StorageImpl
//   static const backplane::extend::Metadata<MyMeta> metadata;          // of backplane::TensorMeta         serialization/metadata.h
//   static const backplane::extend::Copy<MyCopy> copy;                  // of backplane::CopyPath           tensor/copy.h
//   static const backplane::extend::CaptureState<&my_question> capture; // of bool (*)(const c10::Stream&)
//
// The SDK's examples/extend has an example of each. This header is for the sources of lib<device>.so itself, which are compiled together
// with the core and can include its headers; other programs use the other headers in this folder. The lines run when lib<device>.so is
// loaded, before and after those of the core in undefined order, so the constructor of a replacing class must not use the device. If a part
// is registered twice, the last one applies.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <type_traits>
#include <utility>

#include "memory/caching_allocator.h"
#include "memory/storage.h"
#include "random/generator.h"
#include "runtime/device.h"
#include "runtime/hooks.h"
#include "runtime/overrides.h"
#include "serialization/metadata.h"
#include "tensor/copy.h"

namespace backplane::extend {

// One object per class, default constructed, never destroyed: torch keeps pointers to it until the process ends.
template <typename Class>
Class& immortal() {
  static auto* const object = new Class();
  return *object;
}

template <typename Class>
struct Allocator {
  static_assert(std::is_base_of_v<CachingAllocator, Class>, "derive the allocator from backplane::CachingAllocator");
  Allocator() { c10::SetAllocator(kDevice, &immortal<Class>(), /*priority=*/1); }
};

// The class is constructed with its device's index.
template <typename Class>
struct Generator {
  static_assert(std::is_base_of_v<PhiloxGenerator, Class>, "derive the generator from backplane::PhiloxGenerator");
  Generator() {
    overrides().make_generator.vendor = [](c10::DeviceIndex device) { return at::make_generator<Class>(resolve_device(device)); };
  }
};

template <typename Class>
struct Hooks {
  static_assert(std::is_base_of_v<backplane::Hooks, Class>, "derive the hooks from backplane::Hooks");
  Hooks() { overrides().hooks = &immortal<Class>(); }
};

// The class has StorageImpl's constructor (use_byte_size_t, SymInt bytes, DataPtr data, Allocator*, bool resizable); data is never null.
template <typename Class>
struct Storage {
  static_assert(std::is_base_of_v<c10::StorageImpl, Class>, "derive the storage from c10::StorageImpl");
  Storage() { storage_factory().vendor = make; }

 private:
  static c10::intrusive_ptr<c10::StorageImpl> make(c10::StorageImpl::use_byte_size_t use_bytes, c10::SymInt bytes, c10::DataPtr data,
                                                   c10::Allocator* allocator, bool resizable) {
    if (data == nullptr && allocator != nullptr) data = allocator->allocate(bytes.expect_int());
    return c10::make_intrusive<Class>(use_bytes, std::move(bytes), std::move(data), allocator, resizable);
  }
};

template <typename Class>
struct Metadata {
  static_assert(std::is_base_of_v<TensorMeta, Class>, "derive the metadata from backplane::TensorMeta");
  Metadata() {
    register_metadata(Class().kind(), []() -> c10::intrusive_ptr<TensorMeta> { return c10::make_intrusive<Class>(); });
  }
};

template <typename Class>
struct Copy {
  static_assert(std::is_base_of_v<CopyPath, Class>, "derive the copy path from backplane::CopyPath");
  Copy() { copy_path().vendor = &immortal<Class>(); }
};

// Whether an existing stream records its work into a graph of the vendor's own runtime. Called by each wait, each copy that waits, each
// call of the fallback (all refuse while it returns true) and by torch, on any thread: it must be fast and not throw.
template <bool (*is_capturing)(const c10::Stream&)>
struct CaptureState {
  CaptureState() { overrides().is_capturing.vendor = is_capturing; }
};

}  // namespace backplane::extend
