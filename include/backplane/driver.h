/* backplane/driver.h: the driver ABI, the only interface between Backplane and a chip. A vendor implements this table and nothing else.
 *
 * Pure C11 (also valid C++17/20), no torch, no other header of Backplane. A driver is a shared object that exports bp_driver_get() and
 * returns a table of function pointers. Nine entries are the minimum for a device; the groups below make it fast, and the emulate shim
 * supplies the entries that a driver leaves NULL. Optional features with a header of their own (driver/<group>.h) are found by query_ext.
 *
 * Rules that hold for every entry:
 *   errors     every entry returns a bp_status; on anything but BP_OK and BP_PENDING the outputs are untouched and last_error() on the same
 *              thread returns the reason. A device index out of range is BP_INVALID_DEVICE everywhere. OUT_OF_MEMORY may be returned by any
 *              entry that creates or queues something, and is never sticky: for alloc, host_alloc, copy, copy_async and fill the core
 *              releases its caches and calls again, then raises torch.OutOfMemoryError. No exception and no longjmp may leave an entry.
 *              FAULT and DEVICE_LOST are sticky for that device.
 *   threads    any entry from any thread, concurrently, unless the driver sets BP_DRIVER_SERIALIZE.
 *   units      sizes in bytes, times in nanoseconds, device addresses in uint64_t.
 *   owner      what the caller passes belongs to the caller; what an entry creates is the caller's until the matching free/destroy.
 *   fork       bp_driver_get, device_count and device_properties create no device context and no thread, and are safe before a fork.
 *              After a fork the child calls nothing of an instance that was opened.
 *   exit       a process, or a forked child, may end at any time with the instance open.
 *   structs    the caller sets struct_size of a struct that it passes; the callee writes no byte beyond it. reserved fields are 0.
 *   flags      a driver refuses flags that it does not know with INVALID_ARGUMENT. Where no flag is named, 0 is the only value.
 *
 * Compatibility: while abi_major is 0 the minor must be equal. From 1 on: same major, append only.
 * Sources: PJRT's struct_size versioning, TensorFlow StreamExecutor's call shape, ggml's extensions by name.
 */
#ifndef BACKPLANE_DRIVER_H
#define BACKPLANE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BP_ABI_MAJOR 0u
#define BP_ABI_MINOR 2u

#define BP_HOST_DEVICE (-1)      /* "device" of a host address */
#define BP_NO_TIMEOUT UINT64_MAX /* a wait without a timeout; 0 only queries */
#define BP_MIN_ALIGNMENT 512u    /* of every address that alloc returns */

#if defined(_WIN32)
#define BP_EXPORT __declspec(dllexport)
#else
#define BP_EXPORT __attribute__((visibility("default")))
#endif

/* What an entry returns. A value outside this list is read as BP_INTERNAL. */
typedef enum bp_status {
  BP_OK = 0,
  BP_PENDING = 1,       /* a query: the work has not completed */
  BP_OUT_OF_MEMORY = 2, /* not sticky */
  BP_INVALID_ARGUMENT = 3,
  BP_INVALID_DEVICE = 4, /* no device of that index */
  BP_UNSUPPORTED = 5,    /* not supported by this driver or device; the core uses another way */
  BP_FAULT = 6,          /* sticky: device work failed (bad address, failed kernel) */
  BP_DEVICE_LOST = 7,    /* sticky: the device is gone */
  BP_TIMEOUT = 8,        /* a wait's timeout expired; the work goes on */
  BP_INTERNAL = 9
} bp_status;

/* Opaque handles of the driver. A NULL stream is the device's default stream. */
typedef struct bp_stream bp_stream;
typedef struct bp_event bp_event;

/* Levels of bp_host.log. */
enum { BP_LOG_DEBUG = 0, BP_LOG_INFO = 1, BP_LOG_WARNING = 2, BP_LOG_ERROR = 3 };

/* bp_pointer_info.kind: what is at an address. */
enum {
  BP_MEMORY_UNKNOWN = 0,   /* nothing that the driver knows: pageable memory, or no memory at all */
  BP_MEMORY_DEVICE = 1,    /* of alloc, or of a group that returns device addresses */
  BP_MEMORY_PINNED = 2,    /* of host_alloc */
  BP_MEMORY_REGISTERED = 3 /* the caller's, pinned by host_register */
};

/* bp_driver.flags */
#define BP_DRIVER_SERIALIZE (1u << 0)   /* not thread safe: one call at a time; the emulate shim locks around it */
#define BP_DRIVER_COUNT_FORKS (1u << 1) /* device_count/device_properties create a context: the core counts in a child process */
#define BP_DRIVER_OWN_STREAMS (1u << 2) /* streams have no object of the vendor's runtime: a kernel that requests it is refused */

/* flags of event_create */
#define BP_EVENT_TIMING (1u << 0)   /* elapsed time will be queried */
#define BP_EVENT_BLOCKING (1u << 1) /* event_synchronize yields the processor instead of spinning */
#define BP_EVENT_IPC (1u << 2)      /* the event will be shared between processes */

/* bp_device_properties.dtypes: what the device computes in natively. Storage, copies and the CPU fallback work for every dtype. */
#define BP_DTYPE_INT8 (1ull << 0)
#define BP_DTYPE_UINT8 (1ull << 1)
#define BP_DTYPE_INT16 (1ull << 2)
#define BP_DTYPE_INT32 (1ull << 3)
#define BP_DTYPE_INT64 (1ull << 4)
#define BP_DTYPE_BOOL (1ull << 5)
#define BP_DTYPE_FLOAT16 (1ull << 6)
#define BP_DTYPE_BFLOAT16 (1ull << 7)
#define BP_DTYPE_FLOAT32 (1ull << 8)
#define BP_DTYPE_FLOAT64 (1ull << 9)
#define BP_DTYPE_COMPLEX64 (1ull << 10)
#define BP_DTYPE_COMPLEX128 (1ull << 11)
#define BP_DTYPE_FLOAT8_E4M3 (1ull << 12)
#define BP_DTYPE_FLOAT8_E5M2 (1ull << 13)

/* What the core knows of a device. Texts are NUL-terminated. 0 means unknown, or no limit. None of it changes while the process lives:
 * the core asks once, before open. memory_info reports what does change, such as memory that other processes may take. */
typedef struct bp_device_properties {
  uint64_t struct_size;
  char name[128];
  char vendor[64];
  char driver_version[64];
  char bus_id[32]; /* as the system prints it, "0000:01:00.0" */
  uint8_t uuid[16];
  uint64_t total_memory;   /* bytes */
  uint64_t max_allocation; /* largest single alloc, bytes */
  uint64_t dtypes;         /* BP_DTYPE_*, for information: no dtype is refused because of it, and autocast accepts both half types */
  uint32_t alignment;      /* of alloc, >= BP_MIN_ALIGNMENT, a power of two */
  uint32_t copy_alignment; /* address and size multiple that copies need, at most `alignment`, a power of two (0, 1: any) */
  int32_t stream_limit;    /* streams that may exist at once besides the default one; the pools share them */
  int32_t priority_least;  /* as CUDA: a smaller number is a higher priority; 0 is the default and in the range, of less than 2^31 */
  int32_t priority_greatest;
  int32_t capability_major;
  int32_t capability_minor;
  int32_t compute_units; /* heuristics of torch.compile read the next four */
  int32_t threads_per_unit;
  int32_t warp_size;
  uint32_t clock_khz;
  uint64_t reserved[8];
} bp_device_properties;

/* What pointer_info returns for an address. */
typedef struct bp_pointer_info {
  uint64_t struct_size;
  int32_t kind;   /* BP_MEMORY_* */
  int32_t device; /* BP_HOST_DEVICE unless kind is BP_MEMORY_DEVICE */
  uint64_t base;  /* of the allocation; 0 if unknown */
  uint64_t bytes; /* of the allocation; 0 if unknown */
} bp_pointer_info;

/* Start of every optional group that query_ext returns; the group's own slots follow. */
typedef struct bp_ext {
  uint64_t struct_size; /* of the whole group */
  const char* id;       /* "bp.host_exec" */
  uint32_t version;
  uint32_t flags; /* the group's own */
  void* self;     /* first argument of the group's entries */
} bp_ext;

struct bp_driver;

/* What the core passes to bp_driver_get. It and its strings live until close() returns. */
typedef struct bp_host {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  void* ctx;                                               /* first argument of log and set_error */
  void (*log)(void* ctx, int32_t level, const char* text); /* any thread; a NULL text is an empty one */
  void (*set_error)(void* ctx, const char* text);          /* within bp_driver_get only: why it refuses; NULL: no reason */
  const char* config;                                      /* option string "key=value,key=value", never NULL */
  const struct bp_driver* inner;                           /* shims: the inner driver, not yet opened; else NULL.
                                                              The core owns it; the shim opens and closes it. */
} bp_host;

/* Runs exactly once when the stream reaches it, on any thread (the caller's too, before the queueing entry returns), also after a fault
 * (`status` is then the fault's). It must not call the driver, must not block and must not take the GIL. */
typedef void (*bp_callback)(void* arg, int32_t status);

typedef struct bp_driver {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t flags; /* BP_DRIVER_* */
  uint32_t reserved;
  void* self; /* the instance; first argument of every entry */

  /* ---- the minimum: nine entries -------------------------------------------------------------------------------------------------- */

  /* Number of devices; 0 is a valid answer. Creates no context and no thread. Callable before open. */
  int32_t (*device_count)(void* self, int32_t* out);

  /* Fills *out (struct_size set by the caller). Creates no context. Callable before open. errors: INVALID_DEVICE. */
  int32_t (*device_properties)(void* self, int32_t device, bp_device_properties* out);

  /* First use in this process, once, before any entry below. Creates no device context: the first entry that names a device does. */
  int32_t (*open)(void* self);

  /* Explicit shutdown: ends the instance's threads and releases everything, including the table; nothing may be called afterwards. What
   * the runtime keeps for the process, such as a thread pool of the first open, may stay. Also releases an instance that was never
   * opened. Never called at interpreter exit. */
  int32_t (*close)(void* self);

  /* Allocates device memory. units: bytes, 0 is allowed and returns a unique non-zero address. owner: the caller, until free. The
   * address is aligned to properties.alignment, unique across the instance's devices, and arithmetic on it is valid inside the
   * allocation. flags: 0, or those of an optional group. blocks: may wait for the device. errors: OUT_OF_MEMORY (not sticky),
   * INVALID_DEVICE, sticky ones. */
  int32_t (*alloc)(void* self, int32_t device, uint64_t bytes, uint32_t flags, uint64_t* out);

  /* Frees memory of alloc. The core never frees memory that queued work uses. Works after a FAULT, and is BP_OK after DEVICE_LOST.
   * errors: INVALID_ARGUMENT for an address that alloc did not return. */
  int32_t (*free)(void* self, int32_t device, uint64_t address);

  /* Copies bytes; returns when the copy is complete. order: after all work queued on the stream. dst_device and src_device give the
   * direction: BP_HOST_DEVICE for host memory, which may be pageable, its address a pointer as an integer; one of the two is a device.
   * `device` is the stream's, and one of the two. Ranges do not overlap. 0 bytes is allowed, also one past the end of an allocation.
   * flags: 0. errors: UNSUPPORTED for a pair of devices that it does not support (the core copies through the host), INVALID_ARGUMENT,
   * sticky ones. */
  int32_t (*copy)(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                  uint64_t bytes, uint32_t flags);

  /* Waits until all work of all streams of the device is complete. errors: TIMEOUT, sticky ones. */
  int32_t (*synchronize)(void* self, int32_t device, uint64_t timeout_ns);

  /* Writes the text of the calling thread's last error, NUL-terminated and truncated to size; an empty text if there is none. Always
   * BP_OK. UTF-8; the core replaces invalid bytes. */
  int32_t (*last_error)(void* self, char* buf, uint64_t size);

  /* ---- streams: all of these, or none ---------------------------------------------------------------------------------------------- */

  /* Creates a stream: its work runs in the order of submission. owner: the caller. priority as in the properties; flags: 0. errors:
   * UNSUPPORTED when stream_limit is reached. */
  int32_t (*stream_create)(void* self, int32_t device, int32_t priority, uint32_t flags, bp_stream** out);

  /* Completes pending work first. Never called for the default stream. Works after a FAULT, BP_OK after DEVICE_LOST. */
  int32_t (*stream_destroy)(void* self, int32_t device, bp_stream* stream);

  /* BP_OK: all work complete; BP_PENDING; or a sticky error. Never blocks. All work includes what kernels have queued on the stream's
   * native object (stream_native): it belongs to the stream, for this entry, for waits, events, synchronize and later work. */
  int32_t (*stream_query)(void* self, int32_t device, bp_stream* stream);

  /* Waits until the work that is queued at the time of the call is complete. errors: TIMEOUT (not sticky), sticky ones. */
  int32_t (*stream_synchronize)(void* self, int32_t device, bp_stream* stream, uint64_t timeout_ns);

  /* As copy, but returns at once; host memory must be pinned and must live until the copy is complete. */
  int32_t (*copy_async)(void* self, int32_t device, bp_stream* stream, uint64_t dst, int32_t dst_device, uint64_t src, int32_t src_device,
                        uint64_t bytes, uint32_t flags);

  /* ---- events: all of these, or none; they need streams --------------------------------------------------------------------------- */

  /* Creates an event. owner: the caller. flags: BP_EVENT_*. errors: UNSUPPORTED or INVALID_ARGUMENT with BP_EVENT_IPC, if bp.ipc is not
   * offered or is without BP_IPC_EVENTS. */
  int32_t (*event_create)(void* self, int32_t device, uint32_t flags, bp_event** out);

  /* Pending records may still complete. Works after a FAULT, BP_OK after DEVICE_LOST. */
  int32_t (*event_destroy)(void* self, int32_t device, bp_event* event);

  /* The event completes when all work queued so far on the stream has. A second record replaces the first: earlier waits keep the first.
   * flags: 0. */
  int32_t (*event_record)(void* self, int32_t device, bp_stream* stream, bp_event* event, uint32_t flags);

  /* BP_OK: complete, or never recorded; BP_PENDING; or a sticky error. Never blocks. */
  int32_t (*event_query)(void* self, int32_t device, bp_event* event);

  /* Waits for the latest record at the time of the call; returns at once if never recorded. errors: TIMEOUT, sticky ones. */
  int32_t (*event_synchronize)(void* self, int32_t device, bp_event* event, uint64_t timeout_ns);

  /* Work queued later on the stream waits for the event's latest record at the time of the call; a no-op if never recorded. Does not block.
   * The event may be of another device of the same instance. */
  int32_t (*stream_wait)(void* self, int32_t device, bp_stream* stream, bp_event* event);

  /* Time between two completed records of the same device. errors: PENDING if one has not completed, INVALID_ARGUMENT if one was never
   * recorded or made without BP_EVENT_TIMING. */
  int32_t (*event_elapsed)(void* self, int32_t device, bp_event* start, bp_event* end, int64_t* ns);

  /* ---- pinned host memory: both, or none ------------------------------------------------------------------------------------------- */

  /* Allocates host memory for copy_async, from and to any device of the instance. flags: 0. Aligned to 64 or more. Creates no device
   * context if possible. 0 bytes is allowed and returns a unique pointer, not NULL. errors: OUT_OF_MEMORY. */
  int32_t (*host_alloc)(void* self, uint64_t bytes, uint32_t flags, void** out);

  /* No copy uses the memory any more. errors: INVALID_ARGUMENT for what host_alloc did not return; NULL is one such. */
  int32_t (*host_free)(void* self, void* ptr);

  /* ---- pinning of the caller's memory: both, or none ------------------------------------------------------------------------------- */

  /* Pins memory of the caller for copy_async; page-aligned or not. */
  int32_t (*host_register)(void* self, void* ptr, uint64_t bytes);
  int32_t (*host_unregister)(void* self, void* ptr);

  /* ---- single optional entries, each by itself ------------------------------------------------------------------------------------- */

  /* Queues: write `count` patterns of 1, 2, 4 or 8 bytes (host memory, read before the call returns) from dst on. dst is a multiple of
   * pattern_size; copy_alignment does not apply. 0 patterns are allowed, also one past the end of an allocation. flags: 0. */
  int32_t (*fill)(void* self, int32_t device, bp_stream* stream, uint64_t dst, const void* pattern, uint32_t pattern_size, uint64_t count,
                  uint32_t flags);

  /* Queues a host callback after the stream's work; work queued later waits for it. After a fault it is still accepted and gets the
   * fault's status. If this returns an error, fn is not called. The core itself queues no callbacks: the entry is for shims and tools. */
  int32_t (*stream_callback)(void* self, int32_t device, bp_stream* stream, bp_callback fn, void* arg);

  /* The vendor's own stream object behind the handle (a cudaStream_t, for example), for its kernels; the same for as long as the stream
   * lives. Called before each launch of a vendor's own work (backplane::NativeLaunch, native_stream()), so that shims see it, and when a
   * program requests the object. NULL: the handle's value itself; with BP_DRIVER_OWN_STREAMS, which the emulate shim sets where it
   * supplies the streams, a launch is refused: kernels that use the vendor's API require streams and events of its runtime. */
  int32_t (*stream_native)(void* self, int32_t device, bp_stream* stream, uint64_t* out);

  /* The inverse: a handle for a stream that others created with the vendor's runtime, by its native object, for any entry that takes a
   * stream except stream_destroy. For the native object of a stream of this instance returns that stream (NULL for the default one), for
   * another one a handle that the driver owns until close, the same each time, an even number; the creator of the native stream keeps it
   * alive while the handle is in use. NULL: ExternalStream and a DLPack consumer's stream are refused. errors: INVALID_ARGUMENT for a
   * value that is not a stream of that device, as far as the runtime can detect. */
  int32_t (*stream_from_native)(void* self, int32_t device, uint64_t native, bp_stream** out);

  /* Which memory an address belongs to. An address that the driver does not know is BP_OK with BP_MEMORY_UNKNOWN: the core also asks for
   * pageable memory, so this answer must be cheap. errors: INVALID_ARGUMENT for out alone. */
  int32_t (*pointer_info)(void* self, uint64_t address, bp_pointer_info* out);

  /* Free and total bytes of the device, including other processes. NULL: the core counts its own allocations. */
  int32_t (*memory_info)(void* self, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes);

  /* Reports that `device` is now the calling thread's current device, for vendor libraries that have a current device. */
  int32_t (*set_current)(void* self, int32_t device);

  /* An optional group by name and version. owner: the driver, until close. errors: UNSUPPORTED. Callable before open; creates no
   * context. */
  int32_t (*query_ext)(void* self, const char* id, uint32_t version, const bp_ext** out);
} bp_driver;

/* The one symbol that a driver exports. Each call returns a new instance, whose table lives until its close(). Creates no context, no
 * thread. A driver that refuses (an unsupported ABI, invalid options, no runtime library) passes the reason to host->set_error and
 * returns BP_INVALID_ARGUMENT or BP_UNSUPPORTED. */
BP_EXPORT int32_t bp_driver_get(const bp_host* host, const bp_driver** out);
typedef int32_t (*bp_driver_get_fn)(const bp_host* host, const bp_driver** out);

#ifdef __cplusplus
}
#endif
#endif
