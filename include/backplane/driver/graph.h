/* backplane/driver/graph.h: group "bp.graph" version 1: work that is queued on streams is recorded instead of run, and run later as one.
 *
 * capture_begin makes a stream capture: work that is queued on it (copy_async, fill, module.launch, host_exec.enqueue where a flag says so,
 * calls of bp.collective where that group says so) does not run, it becomes part of a recording. Capture spreads through events: an event
 * that is recorded on a capturing stream is a point of the recording, and another stream of the same device that waits for it also captures
 * into the same recording, until the capture ends. Before that its work must be joined: the stream that began waits, through any number of
 * streams, for an event after the last work of each. capture_end returns the recording, instantiate makes it executable, launch runs it.
 *
 * Rules beside those of driver.h:
 *   contents   Addresses, sizes, patterns and arguments are those of the capture; each run reads what is at the addresses, including pinned
 *              memory. The caller keeps all memory, functions and communicators alive until the recording and its execs are destroyed. A
 *              host function runs once in each run, and its destroy once, when nothing can run it any more.
 *   illegal    While a stream captures, from any thread: copy, stream_query, stream_synchronize, stream_callback, stream_destroy and launch
 *              on it; synchronize of its device; its stream_wait for an event whose latest record is not a point of the same recording,
 *              except one that was never recorded; the wait of a default stream, or of another device's, for such a point. With an event
 *              whose latest record is a point of a recording, also of one that has ended: anything but event_record, event_destroy and the
 *              stream_wait that joins it. Such a call does nothing and returns INVALID_ARGUMENT; only stream_destroy still destroys. If it
 *              concerns an active capture, that capture is invalid from then on.
 *   mode       GLOBAL: the same holds for a call of any thread that waits for other work (copy, synchronize, stream_synchronize,
 *              event_synchronize, with a timeout that is not 0), on any device; THREAD: of the thread that began the capture; RELAXED: of
 *              none.
 *   legal      Everything else, from any thread: alloc, free, host_alloc, host_free, bp.vmm, loading code, creating or destroying streams
 *              and events, queries that concern no capture, work on other streams. If a driver's runtime forbids one of them in a capture,
 *              the driver makes the exception internally.
 *   invalid    Queued work of an invalid capture is accepted and discarded. capture_end names the first illegal call, and all streams work
 *              as before. Work that was queued before the capture, and on other streams, is not affected.
 *   faults     launch and capture_begin return sticky errors, and so does capture_end, which still ends the capture.
 *   optional   An entry that head.flags do not name exists and returns UNSUPPORTED.
 * Sources: what CUDA graphs, SYCL's command graphs, Level Zero's mutable command lists and cl_khr_command_buffer have in common.
 */
#pragma once

#include "../driver.h"

#define BP_GRAPH_ID "bp.graph"
#define BP_GRAPH_VERSION 1u

/* head.flags */
#define BP_GRAPH_HOST_EXEC (1u << 0) /* host_exec.enqueue is recorded; without it, it is illegal in a capture */
#define BP_GRAPH_DUMP (1u << 1)      /* dump; without it there is no text of a recording */

/* mode of capture_begin: whose waiting calls make a capture invalid. */
#define BP_CAPTURE_GLOBAL 1
#define BP_CAPTURE_THREAD 2
#define BP_CAPTURE_RELAXED 3

/* The state that capture_status returns for a stream. */
#define BP_CAPTURE_NONE 0
#define BP_CAPTURE_ACTIVE 1
#define BP_CAPTURE_INVALID 2

/* A recording. */
typedef struct bp_recording bp_recording;

/* A recording that can be run. */
typedef struct bp_graph_exec bp_graph_exec;

typedef struct bp_graph {
  bp_ext head;

  /* Work that is queued on the stream from now on is recorded. *id: of this capture, never 0, another one each time; may be NULL. Does
   * not block: work that was queued before runs on. Several streams may capture at once, each its own recording. errors: UNSUPPORTED for
   * the default stream; INVALID_ARGUMENT: the stream captures already, or no such mode. */
  int32_t (*capture_begin)(void* self, int32_t device, bp_stream* stream, int32_t mode, uint64_t* id);

  /* Ends the capture for all its streams, which work as before. Any thread. owner: the caller, until recording_destroy. errors:
   * INVALID_ARGUMENT: the capture is invalid, or work of another stream was not joined (both end it); the stream did not begin a capture
   * (nothing ends). */
  int32_t (*capture_end)(void* self, int32_t device, bp_stream* stream, bp_recording** out);

  /* *out: BP_CAPTURE_NONE, ACTIVE or INVALID; *id: of the capture, the same for all its streams, 0 for none; may be NULL. Never blocks,
   * any thread, also after a fault. It is called often and must be cheap. */
  int32_t (*capture_status)(void* self, int32_t device, bp_stream* stream, int32_t* out, uint64_t* id);

  /* Creates an exec for launch; any number from one recording. blocks: may take long. flags: 0. owner: the caller, until exec_destroy. */
  int32_t (*instantiate)(void* self, int32_t device, bp_recording* recording, uint32_t flags, bp_graph_exec** out);

  /* Queues one run after the stream's work; work that is queued later waits for it. Any stream of the device that does not capture. Runs
   * of one exec do not overlap: they run in the order of the calls, whatever their streams are. An empty recording is a run, too. */
  int32_t (*launch)(void* self, int32_t device, bp_stream* stream, bp_graph_exec* exec);

  /* Destroys the recording, or the exec; each lives without the other. Queued runs still complete: what they use is released after them.
   * Works after a FAULT, BP_OK after DEVICE_LOST. */
  int32_t (*recording_destroy)(void* self, int32_t device, bp_recording* recording);
  int32_t (*exec_destroy)(void* self, int32_t device, bp_graph_exec* exec);

  /* BP_GRAPH_DUMP. Writes the recording to a file that is created or replaced, as DOT text (graphviz). errors: INVALID_ARGUMENT: the
   * file cannot be written. */
  int32_t (*dump)(void* self, int32_t device, bp_recording* recording, const char* path);
} bp_graph;

#define BP_GRAPH_SLOTS(X) \
  X(capture_begin)        \
  X(capture_end)          \
  X(capture_status)       \
  X(instantiate)          \
  X(launch)               \
  X(recording_destroy)    \
  X(exec_destroy)         \
  X(dump)
