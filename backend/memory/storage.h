// memory/storage.h: creates and resizes the device's storages, and lets a vendor use its own StorageImpl.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "runtime/overrides.h"

namespace backplane {

// A vendor's StorageImpl subclass: storage_factory().vendor = my_create. `data` may be null: then the factory allocates.
Override<c10::StorageImplCreateHelper>& storage_factory();

// A resizable storage of `bytes` on the current device, created by the factory.
c10::Storage new_storage(size_t bytes);
// As above, over memory of that allocator.
c10::Storage new_storage(size_t bytes, c10::DataPtr data);

// Grows or shrinks to `bytes` on the current stream of the storage's device; keeps the old bytes, new ones are undefined.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace backplane
