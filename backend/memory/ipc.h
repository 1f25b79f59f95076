// memory/ipc.h: storages that other processes use too, through the driver's bp.ipc, with a reference count as for CUDA.
//
// Note [Sharing]: a message in transit, and every process that has opened it, holds a reference in a counter of the sender
// (reference_counter.h); a process that ends, even if it is killed, holds none. A storage that was sent has a DataPtr that wraps the old
// one: when the sender's last tensor is destroyed, the memory is freed if nobody has a reference, else it waits in a list that
// ipc_collect() and later sends check. The receiver waits for the sender's event on its stream, and synchronizes the device before it drops
// its reference. If a driver shares only memory that was allocated for it (no BP_IPC_ANY_MEMORY), the first send moves the storage's bytes
// into such memory, as torch moves CPU storages into shared memory: its address changes.
//
// Threads: any. Errors: c10::Error; NotImplementedError without bp.ipc, with the alternative.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <string>

#include "runtime/event.h"

namespace backplane {

// What is sent: plain bytes.
struct SharedStorage {
  std::string memory;  // the driver's handle; empty for a storage without bytes
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string event;  // empty: nothing to wait for
  std::string counter;
};

// For the sender: takes a reference for the message. Records an event on the current stream of the storage's device.
SharedStorage share_storage(const c10::Storage& storage);

// For the receiver: takes over the message's reference. The current stream of the device waits for the sender's event.
c10::Storage open_shared_storage(c10::DeviceIndex device, const SharedStorage& shared);

// For a receiver that has the storage already: drops the message's reference.
void release_shared_storage(const SharedStorage& shared);

// Frees storages that were sent, released here, and that no other process uses any more.
void ipc_collect();

// The storage's pointer before it was sent.
const c10::DataPtr& unshared(const c10::DataPtr& pointer);

// Events between processes. Throw NotImplementedError without BP_IPC_EVENTS.
Event make_shared_event();
std::string export_event(Event& event, c10::DeviceIndex device);  // an event that was never recorded is created on that device
Event open_shared_event(c10::DeviceIndex device, const std::string& handle);

}  // namespace backplane
