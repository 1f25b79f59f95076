/* backplane/driver/profile.h: group "bp.profile" version 1: records of what the device did and when.
 *
 * While recording is on the driver keeps a record of each piece of queued work, with the caller's current id, and delivers the records in
 * batches. All times use one clock: the host's CLOCK_REALTIME in nanoseconds, to which the driver converts. It is the clock of
 * torch.profiler, so the core converts nothing.
 *
 * Rules beside those of driver.h:
 *   threads    start and stop are called one at a time; tag, the launches and the ranges by any thread, also while another is in start or
 *              stop.
 *   records    One for each call of copy, copy_async, fill, bp.host_exec.enqueue and bp.module.launch, and with BP_PROFILE_COLLECTIVES for
 *              each of bp.collective that queues (one for a group_begin with its group_end), that was made while recording is on, returned
 *              BP_OK and has something to do: a copy of 0 bytes may have none. Waits, events and callbacks have none. Records of one stream
 *              do not overlap.
 *   off        While recording is off the group costs the other entries one branch, and tag, the launches and the ranges are not called.
 */
#pragma once

#include "../driver.h"

#define BP_PROFILE_ID "bp.profile"
#define BP_PROFILE_VERSION 1u

/* head.flags
 *   NAMES        Records of kernels have the kernels' own names, if they have one; the core names others after their operator.
 *   NATIVE       It also records what a vendor's code queues by itself on a stream's native object; without it the core calls launch_begin
 *                and launch_end around such work (backplane::NativeLaunch).
 *   COLLECTIVES  It also records the calls of bp.collective that queue; without it they have no records.
 *   RANGES       range_push, range_pop and mark reach the vendor's own tools; without it they return UNSUPPORTED. */
#define BP_PROFILE_NAMES (1u << 0)
#define BP_PROFILE_NATIVE (1u << 1)
#define BP_PROFILE_COLLECTIVES (1u << 2)
#define BP_PROFILE_RANGES (1u << 8)

/* bp_activity.kind; 1u << kind is its bit in `kinds` of start */
#define BP_ACTIVITY_KERNEL 0 /* a host function, a launch, a vendor's own work between launch_begin and launch_end */
#define BP_ACTIVITY_COPY 1
#define BP_ACTIVITY_FILL 2
#define BP_ACTIVITY_COLLECTIVE 3
#define BP_ACTIVITY_COUNT 4

/* A record. */
typedef struct bp_activity {
  uint64_t struct_size;
  int32_t kind; /* BP_ACTIVITY_* */
  int32_t device;
  uint64_t stream;      /* the bp_stream*; 0: the default stream */
  int64_t queued_ns;    /* when the call that queued it began, on the host */
  int64_t begin_ns;     /* when the device began it; 0: it has not begun */
  int64_t end_ns;       /* when it was complete, not before begin_ns; 0: it was not when recording ended, or its device is in error */
  uint64_t correlation; /* what `tag` said last on the thread that queued it; 0: nothing */
  uint64_t bytes;       /* of copies and fills; of collectives the sum over their calls */
  int32_t src_device;   /* of copies: where it reads, BP_HOST_DEVICE for the host; else `device` */
  int32_t dst_device;   /* of copies: where it writes */
  int32_t thread;       /* the system's id of the thread that queued it */
  uint32_t flags;       /* 0 */
  const char* name;     /* NUL-terminated, UTF-8; NULL: none. Lives until the callback returns */
  uint64_t reserved[5];
} bp_activity;

/* Receives records, in no order, on any thread, during stop or before. It calls no driver, does not block and never takes the GIL. */
typedef void (*bp_activity_callback)(void* arg, const bp_activity* const* records, uint64_t count);

typedef struct bp_profile {
  bp_ext head;

  /* Starts recording the work of all devices; no thread has a tag yet. kinds: of the records that are requested. Creates no device
   * context. errors: UNSUPPORTED: the vendor's tools do not allow it now, last_error has the reason; INVALID_ARGUMENT: it is on already,
   * unknown kinds, no callback. */
  int32_t (*start)(void* self, uint64_t kinds, bp_activity_callback fn, void* arg);

  /* Stops recording. When it returns all records have been delivered and the callback is not called again; *dropped: how many were lost
   * for lack of room. Never waits for work: incomplete work has a record without an end. The core first waits for the devices, for a
   * limited time. Works with a device in error. errors: INVALID_ARGUMENT: it is off. */
  int32_t (*stop)(void* self, uint64_t* dropped);

  /* What the calling thread queues from now on belongs to `correlation`; 0: to nothing. Called twice for each operator, so a plain
   * store. */
  int32_t (*tag)(void* self, uint64_t correlation);

  /* Between the two, on one thread, the caller queues a vendor's own work on the stream's native object. The record, of a kernel, spans
   * what the stream does between them. launch_end with a name of NULL: nothing was queued, there is no record. They do not nest. If
   * recording was started or stopped between them, there is no record either. errors: UNSUPPORTED with BP_PROFILE_NATIVE; sticky ones. */
  int32_t (*launch_begin)(void* self, int32_t device, bp_stream* stream);
  int32_t (*launch_end)(void* self, int32_t device, bp_stream* stream, const char* name);

  /* BP_PROFILE_RANGES. Ranges of the calling thread, which nest, and points in time, for the vendor's own tools; recording is on or off.
   * name: NUL-terminated, read before the call returns. errors: INVALID_ARGUMENT: a pop without a push. */
  int32_t (*range_push)(void* self, const char* name);
  int32_t (*range_pop)(void* self);
  int32_t (*mark)(void* self, const char* name);
} bp_profile;

#define BP_PROFILE_SLOTS(X) X(start) X(stop) X(tag) X(launch_begin) X(launch_end) X(range_push) X(range_pop) X(mark)
