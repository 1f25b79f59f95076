/* backplane/driver/ipc.h: group "bp.ipc" version 1: memory and events of one process, used by another on the same machine.
 *
 * A handle is bytes that name an allocation or an event to any process of the same user; the core sends them, together with the properties'
 * uuid, by which the other process finds the device. The core keeps exported memory allocated, and exported events alive, until the other
 * processes have closed them, and opens a handle at most once at a time in a process. */
#pragma once

#include "../driver.h"

#define BP_IPC_ID "bp.ipc"
#define BP_IPC_VERSION 1u

/* flags of bp_driver.alloc: memory that other processes will open */
#define BP_ALLOC_SHARED (1u << 0)

/* head.flags
 *   EVENTS      event_export and event_open work; without it they return UNSUPPORTED, and the core waits on the host.
 *   ANY_MEMORY  All memory of alloc can be exported; without it, what was allocated with BP_ALLOC_SHARED, to which the core moves a tensor
 *               when it is sent for the first time. */
#define BP_IPC_EVENTS (1u << 0)
#define BP_IPC_ANY_MEMORY (1u << 1)

/* Opaque: the driver's own. Plain bytes, so that they can be sent. */
typedef struct bp_ipc_handle {
  uint8_t bytes[128];
} bp_ipc_handle;

typedef struct bp_ipc {
  bp_ext head;

  /* Names an allocation of alloc by its base address. Repeating gives a handle that names the same memory. The memory stays the exporter's.
   * errors: INVALID_ARGUMENT for an address that alloc did not return, UNSUPPORTED for memory that cannot be shared. */
  int32_t (*memory_export)(void* self, int32_t device, uint64_t address, bp_ipc_handle* out);

  /* The address of a handle's memory in this process: like one of alloc, valid for copies and kernels on that device until memory_close.
   * The exporting process may end meanwhile: the memory lives as long as it is open. errors: INVALID_ARGUMENT for bytes that are not a
   * handle, or for one whose process has ended or whose memory is gone, as far as the driver can detect. */
  int32_t (*memory_open)(void* self, int32_t device, const bp_ipc_handle* handle, uint64_t* out);

  /* Closes what memory_open returned; no work uses it any more. The exporter's memory is not affected. errors: INVALID_ARGUMENT for an
   * address that memory_open did not return. */
  int32_t (*memory_close)(void* self, int32_t device, uint64_t address);

  /* Names an event that was made with BP_EVENT_IPC. errors: INVALID_ARGUMENT for another event. */
  int32_t (*event_export)(void* self, int32_t device, bp_event* event, bp_ipc_handle* out);

  /* The event of a handle, for every entry that takes an event except event_elapsed. Both processes see the latest record, whichever made
   * it. owner: the caller, until event_destroy. errors: INVALID_ARGUMENT as for memory_open. */
  int32_t (*event_open)(void* self, int32_t device, const bp_ipc_handle* handle, bp_event** out);
} bp_ipc;

#define BP_IPC_SLOTS(X) X(memory_export) X(memory_open) X(memory_close) X(event_export) X(event_open)
