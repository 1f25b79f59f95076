/* minimal_driver.c: the smallest whole driver: nine functions over malloc and memcpy. Start your own from this file.
 *
 * Put your runtime's calls in place of the bodies, one function at a time, and run `torch-backplane check-driver` after each. What is not
 * here (streams, events, pinned memory, fill) comes from the emulate shim until you add it, and nothing above this file changes then.
 */
#include <backplane/driver.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An allocation: this header, and from BP_MIN_ALIGNMENT bytes behind it on, the memory. */
typedef struct block {
  struct block* next;
  int32_t device;
  uint64_t bytes;
} block;

/* An instance. Nothing is global, so one process can hold several. */
enum { MAX_DEVICES = 16 };
typedef struct minimal {
  bp_driver table;
  int32_t devices;
  uint64_t limit, used[MAX_DEVICES]; /* bytes of each device */
  block* blocks;
} minimal;

/* Every failure leaves its reason for last_error, which answers for the calling thread. */
static _Thread_local char reason[128];

static int32_t fail(int32_t status, const char* why) {
  snprintf(reason, sizeof reason, "%s", why);
  return status;
}

static int32_t last_error(void* self, char* buf, uint64_t size) {
  (void)self;
  if (size) snprintf(buf, size, "%s", reason);
  return BP_OK;
}

/* ---- devices: answered before open, without a context and without a thread ---------------------------------------------------------- */

static int32_t device_count(void* self, int32_t* out) {
  *out = ((minimal*)self)->devices;
  return BP_OK;
}

static int32_t check_device(const minimal* me, int32_t device) {
  return device >= 0 && device < me->devices ? BP_OK : fail(BP_INVALID_DEVICE, "no device of that index");
}

static int32_t device_properties(void* self, int32_t device, bp_device_properties* out) {
  const minimal* me = self;
  if (check_device(me, device)) return BP_INVALID_DEVICE;
  bp_device_properties p = {.struct_size = out->struct_size, .name = "Minimal device", .vendor = "Backplane", .driver_version = "0.1.0"};
  p.total_memory = p.max_allocation = me->limit;
  p.alignment = BP_MIN_ALIGNMENT;
  p.copy_alignment = 1;
  memcpy(out, &p, out->struct_size < sizeof p ? out->struct_size : sizeof p); /* the caller's struct may be an older, shorter one */
  return BP_OK;
}

/* ---- life: start your runtime in open; in close end it and release everything, the table too ---------------------------------------- */

static int32_t open_driver(void* self) {
  (void)self;
  return BP_OK;
}

static int32_t close_driver(void* self) {
  minimal* me = self;
  for (block *b = me->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(me);
  return BP_OK;
}

/* ---- memory: 0 bytes is a size too, and gets an address of its own ------------------------------------------------------------------ */

static uint64_t address_of(const block* b) { return (uint64_t)(uintptr_t)b + BP_MIN_ALIGNMENT; }

static int32_t alloc_memory(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out) {
  minimal* me = self;
  if (check_device(me, device)) return BP_INVALID_DEVICE;
  if (flags != 0) return fail(BP_INVALID_ARGUMENT, "alloc: flags must be 0");
  if (bytes > me->limit - me->used[device]) return fail(BP_OUT_OF_MEMORY, "alloc: the device has not so much memory left");
  block* b = aligned_alloc(BP_MIN_ALIGNMENT, (bytes / BP_MIN_ALIGNMENT + 2) * BP_MIN_ALIGNMENT);
  if (!b) return fail(BP_OUT_OF_MEMORY, "alloc: the host has no memory left");
  *b = (block){me->blocks, device, bytes};
  me->blocks = b;
  me->used[device] += bytes;
  *out = address_of(b);
  return BP_OK;
}

static int32_t free_memory(void* self, int32_t device, uint64_t address) {
  minimal* me = self;
  for (block** at = &me->blocks; *at; at = &(*at)->next) {
    block* b = *at;
    if (b->device != device || address_of(b) != address) continue;
    *at = b->next;
    me->used[device] -= b->bytes;
    free(b);
    return BP_OK;
  }
  return check_device(me, device) ? BP_INVALID_DEVICE : fail(BP_INVALID_ARGUMENT, "free: not an address of alloc");
}

/* ---- work: done when the call returns, so there is no queue to keep in order and nothing to wait for -------------------------------- */

static int32_t copy(void* self, int32_t device, bp_stream* stream, int32_t kind, uint64_t dst, int32_t dst_device, uint64_t src,
                    int32_t src_device, uint64_t bytes) {
  const minimal* me = self;
  if (stream || kind < BP_COPY_HOST_TO_DEVICE || kind > BP_COPY_DEVICE_TO_DEVICE) return fail(BP_INVALID_ARGUMENT, "copy: bad arguments");
  if (check_device(me, device) || (kind != BP_COPY_DEVICE_TO_HOST && check_device(me, dst_device)) ||
      (kind != BP_COPY_HOST_TO_DEVICE && check_device(me, src_device))) {
    return BP_INVALID_DEVICE;
  }
  if (bytes) memcpy((void*)(uintptr_t)dst, (const void*)(uintptr_t)src, bytes);
  return BP_OK;
}

static int32_t synchronize(void* self, int32_t device, uint64_t timeout_ns) {
  (void)timeout_ns;
  return check_device(self, device);
}

/* ---- options "devices=<1..16>,memory=<bytes>[MiB|GiB]", and the one exported symbol -------------------------------------------------- */

static int read_options(minimal* me, const char* text) {
  for (int length = 0; *text; text += length, text += *text == ',') {
    unsigned long long number = 0;
    if (sscanf(text, "devices=%llu%n", &number, &length) == 1 && number >= 1 && number <= MAX_DEVICES) {
      me->devices = (int32_t)number;
    } else if (sscanf(text, "memory=%llu%n", &number, &length) == 1 && number >= 1 && number < 1ull << 34) {
      const int shift = !strncmp(text + length, "MiB", 3) ? 20 : !strncmp(text + length, "GiB", 3) ? 30 : 0;
      me->limit = (uint64_t)number << shift;
      length += shift ? 3 : 0;
    } else {
      return 0;
    }
    if (text[length] && text[length] != ',') return 0;
  }
  return 1;
}

BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out) {
  if (host->abi_major != BP_ABI_MAJOR || host->abi_minor != BP_ABI_MINOR) {
    host->set_error(host->ctx, "built for another driver ABI: rebuild the driver with the headers of the installed torch-backplane");
    return BP_UNSUPPORTED;
  }
  minimal* me = calloc(1, sizeof *me);
  if (!me) return BP_UNSUPPORTED;
  me->devices = 1;
  me->limit = (uint64_t)4 << 30;
  if (!read_options(me, host->config)) {
    host->set_error(host->ctx, "options: known are devices=<1..16> and memory=<bytes>[MiB|GiB], separated by commas");
    free(me);
    return BP_INVALID_ARGUMENT;
  }
  me->table = (bp_driver){
      .struct_size = sizeof(bp_driver),
      .abi_major = BP_ABI_MAJOR,
      .abi_minor = BP_ABI_MINOR,
      .self = me,
      .flags = BP_DRIVER_SERIALIZE, /* no locks in this file: the shim makes one call at a time */
      .device_count = device_count,
      .device_properties = device_properties,
      .open = open_driver,
      .close = close_driver,
      .alloc = alloc_memory,
      .free = free_memory,
      .copy = copy,
      .synchronize = synchronize,
      .last_error = last_error,
  };
  *out = &me->table;
  return BP_OK;
}
