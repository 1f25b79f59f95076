/* backplane/driver/collective.h: group "bp.collective" version 1: the vendor's collectives, queued on streams.
 *
 * A communicator is a set of ranks, 0 to size - 1, in any processes; each has one device. Rank 0 creates an id, the core sends it to the
 * others, and all of them call create. Entries that queue return at once and their work runs in stream order; every rank of a communicator
 * queues the same calls in the same order, except send and recv, whose order is the same for each pair of ranks. The work of a communicator
 * runs in the order of its calls, whatever their streams are.
 *
 * Rules beside those of driver.h:
 *   devices    A communicator has its device, so a stream is passed without one. It is a stream of that device; NULL is the default stream.
 *   threads    The core makes one call at a time on a communicator, except abort and status, which may be called by any thread at any time
 *              before destroy. Different communicators, also two of one process, may be used concurrently.
 *   errors     A communicator fails, its device does not. When a peer is gone, ranks disagree, a work timeout passes or a rank aborts, its
 *              queued work ends soon, with undefined contents in what it writes; the streams go on, the device stays usable, and `status`
 *              returns the reason. A call on a failed communicator queues nothing and returns INTERNAL; so FAULT and DEVICE_LOST from an
 *              entry are the device's own, as everywhere. A call that returned an error was not queued on this rank: the other ranks wait
 *              for it. After an error on a single rank the core aborts. On a device in error queued work does not run: its rank sends the
 *              peers nothing that they could take for a result, its communicator fails, and the core aborts it. Rank, root or peer out of
 *              range, an op or dtype that the properties do not have, a stream of another device, and memory that is not the device's as
 *              far as the driver can detect are INVALID_ARGUMENT.
 *   buffers    Device addresses, aligned to the element; the core keeps them alive until the work is complete. Sizes of 0 are allowed, and
 *              such calls count as others. In place: all_reduce, reduce and broadcast with out == in; reduce_scatter with
 *              out == in + rank * count elements; all_gather and gather with in == out + rank * bytes; scatter with
 *              out == in + rank * bytes. No other overlap.
 *   numbers    `count` is elements of `dtype`, one BP_DTYPE_*; `bytes` moves data of any dtype. Integers wrap. SUM and MAX of BOOL are
 *              "or", PRODUCT and MIN are "and". Complex numbers have no MIN and MAX. Whether MIN and MAX propagate a NaN is up to the
 *              driver, as are the order of a reduction and the dtype in which half types are added.
 *   optional   An entry that head.flags do not name exists and returns UNSUPPORTED; the core then composes it of the others.
 * Sources: what NCCL, oneCCL and HCCL have in common.
 */
#pragma once

#include "../driver.h"

#define BP_COLLECTIVE_ID "bp.collective"
#define BP_COLLECTIVE_VERSION 1u

/* head.flags: how it works
 *   CONCURRENT   Work of several communicators may wait for its peers on one device at once; without it the core orders that work, the same
 *                on all ranks.
 *   CAPTURE      Its calls may be made while a stream is being captured.
 *   BITWISE      The same inputs and ranks give the same bits, each time and on every rank.
 *   SAME_DEVICE  Several ranks of a communicator may have the same device; without it each must have its own.
 *   WATCHES      It detects by itself that a peer's process has ended, or that the ranks' calls differ; without it such work waits until
 *                its work timeout passes or a rank aborts. */
#define BP_COLLECTIVE_CONCURRENT (1u << 0)
#define BP_COLLECTIVE_CAPTURE (1u << 1)
#define BP_COLLECTIVE_BITWISE (1u << 2)
#define BP_COLLECTIVE_SAME_DEVICE (1u << 3)
#define BP_COLLECTIVE_WATCHES (1u << 4)

/* head.flags: which optional entries work */
#define BP_COLLECTIVE_SPLIT (1u << 8)         /* split; without it the core creates a communicator from a new id */
#define BP_COLLECTIVE_ABORT (1u << 9)         /* abort; without it the core stops waiting, and the work continues on its streams */
#define BP_COLLECTIVE_ALL_TO_ALL (1u << 10)   /* all_to_all; without this and the next two: send and recv in a group */
#define BP_COLLECTIVE_ALL_TO_ALL_V (1u << 11) /* all_to_all_v */
#define BP_COLLECTIVE_GATHER (1u << 12)       /* gather and scatter */
#define BP_COLLECTIVE_BARRIER (1u << 13)      /* barrier; without it: an all_reduce of one element */

/* op of a reduction */
#define BP_REDUCE_SUM 0
#define BP_REDUCE_AVG 1 /* SUM, divided by the number of ranks */
#define BP_REDUCE_PRODUCT 2
#define BP_REDUCE_MIN 3
#define BP_REDUCE_MAX 4
#define BP_REDUCE_BAND 5
#define BP_REDUCE_BOR 6
#define BP_REDUCE_BXOR 7
#define BP_REDUCE_COUNT 8

/* One rank of a communicator. */
typedef struct bp_comm bp_comm;

/* What a driver's collectives support. 0: no limit. */
typedef struct bp_collective_properties {
  uint64_t struct_size;
  uint64_t id_bytes;                 /* of an id, 1 to 65536: 128 for NCCL, 4108 for HCCL */
  uint64_t reduces[BP_REDUCE_COUNT]; /* [BP_REDUCE_*]: BP_DTYPE_* that the op supports. FLOAT32 by SUM is required; the core converts the
                                        others, or stages them on the host */
  int32_t max_size;                  /* maximum ranks of a communicator */
  uint32_t max_group;                /* maximum calls between group_begin and group_end */
  uint64_t reserved[6];
} bp_collective_properties;

/* Read before the call returns. */
typedef struct bp_comm_config {
  uint64_t struct_size;
  const void* id;           /* id_bytes of make_id; NULL for split */
  const char* name;         /* for messages and tools; never NULL */
  uint64_t timeout_ns;      /* of the call itself */
  uint64_t work_timeout_ns; /* how long work may wait for its peers; then the communicator fails with TIMEOUT. 0,
                               BP_NO_TIMEOUT: no limit. A driver that cannot detect it ignores the limit: the core measures it, too,
                               and aborts */
  int32_t rank;             /* of the caller; for split its rank in the part */
  int32_t size;             /* number of ranks; for split of the part */
  uint32_t max_units;       /* compute units of the device that its work may use; 0: the driver's choice */
  uint32_t flags;           /* 0 */
  uint64_t reserved[4];
} bp_comm_config;

typedef struct bp_collective {
  bp_ext head;

  /* What it supports on that device (struct_size set by the caller). The same each time. Callable before open; creates no context,
   * unless device_properties does (BP_DRIVER_COUNT_FORKS). errors: INVALID_DEVICE. */
  int32_t (*properties)(void* self, int32_t device, bp_collective_properties* out);

  /* Creates an id, id_bytes long, for one communicator; plain bytes. The process that created it lives until create has returned
   * everywhere. blocks: shortly. errors: INTERNAL: no network or shared memory for the rendezvous. */
  int32_t (*make_id)(void* self, int32_t device, void* out);

  /* Joins as config->rank, with `device`. blocks: until all ranks have joined, or for timeout_ns. Not between group_begin and group_end:
   * ranks of one process join from a thread each. owner: the caller, until destroy. errors: TIMEOUT: a rank did not join;
   * INVALID_ARGUMENT: bytes that are not an id, a rank that is taken or out of range, another size than the others'; UNSUPPORTED: size
   * is above max_size; INTERNAL: a rank has gone meanwhile. After an error the id is used up. */
  int32_t (*create)(void* self, int32_t device, const bp_comm_config* config, bp_comm** out);

  /* BP_COLLECTIVE_SPLIT. A communicator of those ranks that pass the same color, 0 or more; with color -1 this rank joins none, *out is
   * NULL and config may be NULL. All ranks of comm call it, whether its work is complete or not; comm stays. Otherwise as create.
   * errors: INTERNAL, also if comm has failed; INVALID_ARGUMENT: rank and size do not fit the part. */
  int32_t (*split)(void* self, bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out);

  /* Ends this rank of a communicator. The other ranks need not call it at the same time, but work that they queue later has no peer
   * here. blocks: until its queued work is complete, for timeout_ns at most. Works after a FAULT, BP_OK after DEVICE_LOST. errors:
   * TIMEOUT: work is still running, the communicator still exists; the core aborts, and calls again. */
  int32_t (*destroy)(void* self, bp_comm* comm, uint64_t timeout_ns);

  /* BP_COLLECTIVE_ABORT. The communicator fails: queued work ends soon, here and on the peers that the driver can reach, which see
   * DEVICE_LOST. Never blocks for work. Any thread, also while another is inside an entry with this communicator. Repeating: BP_OK. Only
   * status and destroy may follow. */
  int32_t (*abort)(void* self, bp_comm* comm);

  /* *out: BP_OK, or how the communicator failed: TIMEOUT: by its work timeout, here or on a peer; DEVICE_LOST: a peer, or its device, is
   * gone or has aborted; INTERNAL: ranks disagree, or anything else, such as an abort here. The first failure stays. `text` receives the
   * reason, NUL-terminated and truncated to size; may be NULL with size 0. Never blocks; any thread. The entry itself returns BP_OK: a
   * communicator's failure is not an error of it. */
  int32_t (*status)(void* self, bp_comm* comm, int32_t* out, char* text, uint64_t size);

  /* The calls of this thread between the two are queued at group_end, as one: sends and receives in it never wait for each other. For
   * all communicators; within a group the calls of one communicator use the same stream, and the order also holds between communicators
   * that use the same stream. Nests: the outermost pair counts. The calls check their arguments. errors of group_end: INVALID_ARGUMENT:
   * no group was begun; OUT_OF_MEMORY, and sticky ones: nothing of it was queued. A call that fails leaves the group open. */
  int32_t (*group_begin)(void* self);
  int32_t (*group_end)(void* self);

  /* out[i] of every rank = op over all ranks' in[i]. */
  int32_t (*all_reduce)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype,
                        int32_t op);

  /* The same on rank root only; elsewhere out is ignored. */
  int32_t (*reduce)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op,
                    int32_t root);

  /* in: size * count elements; out: the `count` of them that begin at rank * count, reduced. */
  int32_t (*reduce_scatter)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype,
                            int32_t op);

  /* out of every rank, including root, = in of root; elsewhere in is ignored. */
  int32_t (*broadcast)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* out: size * bytes, the ranks' `in` in the order of ranks; each is `bytes` long. */
  int32_t (*all_gather)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);

  /* A send matches the peer's recv of the same number of bytes; between two ranks the n-th matches the n-th. Outside a group a send may
   * wait for its recv. The own rank as peer: only in a group that has both. */
  int32_t (*send)(void* self, bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer);
  int32_t (*recv)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer);

  /* BP_COLLECTIVE_ALL_TO_ALL. in and out: size * bytes. The part of `in` at r * bytes goes to rank r, whose `out` has it at the sender's
   * rank * bytes. */
  int32_t (*all_to_all)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);

  /* BP_COLLECTIVE_ALL_TO_ALL_V. The same with parts of any size: in_bytes[r] at in + in_at[r] go to rank r, out_bytes[r] from it to
   * out + out_at[r]. Four arrays of `size` values, in bytes, read before the call returns; what is sent to a rank is what it expects. */
  int32_t (*all_to_all_v)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, const uint64_t* out_bytes, const uint64_t* out_at,
                          uint64_t in, const uint64_t* in_bytes, const uint64_t* in_at);

  /* BP_COLLECTIVE_GATHER. As all_gather on rank root only; elsewhere out is ignored. */
  int32_t (*gather)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* BP_COLLECTIVE_GATHER. in of root: size * bytes, whose part at r * bytes is the `out` of rank r; elsewhere in is ignored. */
  int32_t (*scatter)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* BP_COLLECTIVE_BARRIER. Later work of the stream begins when the streams of all ranks have reached this call. */
  int32_t (*barrier)(void* self, bp_comm* comm, bp_stream* stream);
} bp_collective;

#define BP_COLLECTIVE_SLOTS(X) \
  X(properties)                \
  X(make_id)                   \
  X(create)                    \
  X(split)                     \
  X(destroy)                   \
  X(abort)                     \
  X(status)                    \
  X(group_begin)               \
  X(group_end)                 \
  X(all_reduce)                \
  X(reduce)                    \
  X(reduce_scatter)            \
  X(broadcast)                 \
  X(all_gather)                \
  X(send)                      \
  X(recv)                      \
  X(all_to_all)                \
  X(all_to_all_v)              \
  X(gather)                    \
  X(scatter)                   \
  X(barrier)
