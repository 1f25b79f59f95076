/* minimal_driver.c: the smallest whole driver: nine functions over malloc and memcpy. Start your own from this file.
 *
 * Put your runtime's calls in place of the bodies, one function at a time, and run `torch-backplane check-driver` after each. What is not
 * here (streams, events, pinned memory, fill) comes from the emulate shim until you add it, and nothing above this file changes then. */
#include <backplane/driver.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, AHEAD = BP_MIN_ALIGNMENT }; /* AHEAD: bytes from a block's header to its memory */
static const uint64_t MEMORY = (uint64_t)4 << 30;    /* bytes of each device */

typedef struct block {
  struct block* next;
  uint64_t bytes;
} block;

typedef struct minimal { /* an instance: nothing is global, so a process can hold several */
  bp_driver table;
  int32_t devices;
  uint64_t used[MAX_DEVICES];
  block* blocks[MAX_DEVICES];
} minimal;

static _Thread_local char reason[128]; /* last_error answers for the calling thread */

static int32_t fail(int32_t status, const char* why) { return snprintf(reason, sizeof reason, "%s", why), status; }
static int32_t last_error(void* self, char* buf, uint64_t size) { return (void)self, snprintf(buf, size, "%s", reason), BP_OK; }
static int32_t check_device(const minimal* me, int32_t device) {
  return device >= 0 && device < me->devices ? BP_OK : fail(BP_INVALID_DEVICE, "no device of that index");
}

/* These two answer before open, without a context and without a thread. */
static int32_t device_count(void* self, int32_t* out) { return *out = ((minimal*)self)->devices, BP_OK; }

static int32_t device_properties(void* self, int32_t device, bp_device_properties* out) {
  bp_device_properties p = {.struct_size = out->struct_size, .name = "Minimal device", .vendor = "Backplane", .driver_version = "0.1.0"};
  p.total_memory = p.max_allocation = MEMORY;
  p.alignment = BP_MIN_ALIGNMENT;
  if (check_device(self, device)) return BP_INVALID_DEVICE;
  memcpy(out, &p, out->struct_size < sizeof p ? out->struct_size : sizeof p); /* the caller's struct may be an older, shorter one */
  return BP_OK;
}

static int32_t alloc_memory(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) { /* 0 bytes is a size too */
  minimal* me = self;
  if (check_device(me, device)) return BP_INVALID_DEVICE;
  if (flags) return fail(BP_INVALID_ARGUMENT, "alloc: flags must be 0");
  block* b = bytes > MEMORY - me->used[device] ? NULL : aligned_alloc(BP_MIN_ALIGNMENT, (bytes / AHEAD + 2) * AHEAD);
  if (!b) return fail(BP_OUT_OF_MEMORY, "alloc: not so much memory left");
  *b = (block){me->blocks[device], bytes};
  me->blocks[device] = b;
  me->used[device] += bytes;
  *out = (uint64_t)(uintptr_t)b + AHEAD;
  return BP_OK;
}

static int32_t free_memory(void* self, int32_t device, uint64_t address) {
  minimal* me = self;
  if (check_device(me, device)) return BP_INVALID_DEVICE;
  block **at = &me->blocks[device], *b;
  while ((b = *at) && (uint64_t)(uintptr_t)b + AHEAD != address) at = &b->next;
  if (!b) return fail(BP_INVALID_ARGUMENT, "free: not an address of alloc");
  *at = b->next;
  me->used[device] -= b->bytes;
  free(b);
  return BP_OK;
}

/* Start your runtime in open; in close end it and release everything, the table too. */
static int32_t open_driver(void* self) { return (void)self, BP_OK; }
static int32_t close_driver(void* self) {
  minimal* me = self;
  for (int32_t i = 0; i < me->devices; ++i)
    while (me->blocks[i]) free_memory(me, i, (uint64_t)(uintptr_t)me->blocks[i] + AHEAD);
  free(me);
  return BP_OK;
}

/* Work is done when the call returns, so there is no queue to keep in order and nothing to wait for. */
static int32_t copy(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                    uint64_t bytes, uint32_t flags) {
  if (stream || flags || dst_device + src_device == 2 * BP_HOST_DEVICE) return fail(BP_INVALID_ARGUMENT, "copy: bad arguments");
  if (check_device(self, device) || (dst_device != BP_HOST_DEVICE && check_device(self, dst_device))) return BP_INVALID_DEVICE;
  if (src_device != BP_HOST_DEVICE && check_device(self, src_device)) return BP_INVALID_DEVICE;
  if (bytes) memcpy((void*)(uintptr_t)dst, (const void*)(uintptr_t)src, bytes);
  return BP_OK;
}

static int32_t synchronize(void* self, int32_t device, uint64_t timeout_ns) { return (void)timeout_ns, check_device(self, device); }

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) { /* the one symbol that a driver exports */
  int32_t devices = 1;
  if (*host->config && (sscanf(host->config, "devices=%d%c", &devices, &(char){0}) != 1 || devices < 1 || devices > MAX_DEVICES)) {
    host->set_error(host->ctx, "the only option is devices=<1..16>");
    return BP_INVALID_ARGUMENT;
  }
  minimal* me = calloc(1, sizeof *me);
  if (!me) return BP_UNSUPPORTED;
  me->devices = devices;
  me->table = (bp_driver){.struct_size = sizeof(bp_driver), .abi_major = BP_ABI_MAJOR, .abi_minor = BP_ABI_MINOR, .self = me};
  me->table.flags = BP_DRIVER_SERIALIZE; /* no locks in this file: the shim makes one call at a time */
  me->table.device_count = device_count, me->table.device_properties = device_properties;
  me->table.open = open_driver, me->table.close = close_driver;
  me->table.alloc = alloc_memory, me->table.free = free_memory;
  me->table.copy = copy, me->table.synchronize = synchronize;
  me->table.last_error = last_error;
  *out = &me->table;
  return BP_OK;
}
