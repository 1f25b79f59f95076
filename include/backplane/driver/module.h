/* backplane/driver/module.h: group "bp.module" version 1: loads code of "bp.compiler" and runs its kernels in stream order. */
#pragma once

#include "../driver.h"

#define BP_MODULE_ID "bp.module"
#define BP_MODULE_VERSION 1u

typedef struct bp_module_code bp_module_code; /* a loaded module of one device */
typedef struct bp_function bp_function;       /* a kernel in it; lives as long as the module */

/* The arguments of a kernel: one block of bytes, laid out as a C struct of these members: the pointers first, uint64_t each, then one
 * struct by value, aligned to 8 bytes. */
typedef struct bp_signature {
  uint64_t struct_size;
  uint32_t pointers;    /* device addresses, 1 to 64; an address of 0 is allowed and is never accessed */
  uint32_t value_bytes; /* a multiple of 8, at least 8 */
  uint64_t written;     /* bit i: the kernel writes through pointer i; the others it only reads */
} bp_signature;

/* What a kernel requires. 0: unknown. */
typedef struct bp_function_properties {
  uint64_t struct_size;
  uint32_t max_group_size; /* as compiled; 0: the target's */
  uint32_t local_bytes;    /* of its own, without what a launch adds */
  uint32_t registers;
  uint32_t spill_bytes;
} bp_function_properties;

typedef struct bp_launch {
  uint64_t struct_size;
  bp_function* function;
  uint32_t grid[3];     /* groups, none 0, within the target's max_grid */
  uint32_t group[3];    /* items: what the source was compiled for, (BP_GROUP, 1, 1) */
  uint32_t local_bytes; /* of work-group memory beyond the kernel's own; the kernel library passes 0 */
  uint32_t flags;       /* 0 */
  const void* args;     /* pointers * 8 + value_bytes, as bp_signature says; read before the call returns */
  uint64_t args_bytes;
} bp_launch;

typedef struct bp_module {
  bp_ext head;

  /* Loads code, which compile() of a driver with the same id() made, for this device's target. The bytes may be freed when the call
   * returns. owner: the caller, until unload. blocks: may wait for the device. errors: INVALID_ARGUMENT: bytes that are not such code,
   * truncated or modified as far as the driver can detect, or for another target (the core compiles again); OUT_OF_MEMORY; sticky ones. */
  int32_t (*load)(void* self, int32_t device, const void* code, uint64_t bytes, bp_module_code** out);

  /* Destroys a module and its functions. The caller has waited for their work. Works after a FAULT, BP_OK after DEVICE_LOST. The core of
   * this version does not call it: its modules live as long as the process. */
  int32_t (*unload)(void* self, int32_t device, bp_module_code* module);

  /* Returns a kernel by its name in the source. The signature lets the driver prepare its own table of arguments once. properties
   * (struct_size set by the caller) may be NULL. Repeating returns the same function or another one of the same kernel. errors:
   * INVALID_ARGUMENT: no kernel of that name, a signature out of range, or one that is not the kernel's, as far as the driver can
   * detect. */
  int32_t (*function)(void* self, int32_t device, bp_module_code* module, const char* name, const bp_signature* signature,
                      bp_function** out, bp_function_properties* properties);

  /* Queues a kernel on the stream; returns when args is read and never waits for the kernel. order: the stream's. The function is of
   * this device. A kernel that fails (an invalid address, BP_ASSERT) makes the device FAULT. errors: INVALID_ARGUMENT: sizes, grid,
   * group or flags (the driver need not detect that group[0] is smaller than what the code was compiled for); OUT_OF_MEMORY; sticky
   * ones. */
  int32_t (*launch)(void* self, int32_t device, bp_stream* stream, const bp_launch* launch);
} bp_module;

#define BP_MODULE_SLOTS(X) X(load) X(unload) X(function) X(launch)
