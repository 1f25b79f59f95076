/* backplane/driver/collective.h: group "bp.collective" version 1: the vendor's collectives, queued on streams.
 *
 * A communicator is a set of ranks, 0 to size - 1, in any processes; each has one device. Rank 0 asks for an id, the core carries it to the
 * others by its own means, and all of them call create. What queues returns at once and runs in stream order; every rank of a communicator
 * queues the same calls in the same order, send and recv apart, which pair by pair come in the same order. The work of a communicator runs
 * in the order of its calls, whatever their streams are.
 *
 * Rules beside those of driver.h:
 *   devices    A communicator knows its device: here alone a stream comes without one. It is a stream of that device; NULL is the default
 *              stream.
 *   threads    The core makes one call at a time on a communicator, abort and status apart, which come from any thread at any time before
 *              destroy. Different communicators, also two of one process, are used at once.
 *   errors     A communicator fails, its device does not. When a peer is gone, ranks disagree, a work timeout passes or somebody aborts,
 *              its queued work ends soon, with undefined contents in what it writes; the streams go on, the device stays usable, and
 *              `status` tells. A call on a failed communicator queues nothing and returns INTERNAL; so FAULT and DEVICE_LOST from an entry
 *              are the device's own, as everywhere. A call that returned an error was not queued, here: the other ranks wait for it. After
 *              one on a single rank the core aborts. On a device in error queued work does not run: its rank gives the peers nothing that
 *              they could take for a result, its communicator fails, and the core aborts it. Rank, root or peer out of range, an op or
 *              dtype that the properties do not have, a stream of another device, and memory that is not the device's as far as the driver
 *              can tell are INVALID_ARGUMENT.
 *   buffers    Device addresses, aligned to the element; the core keeps them until the work is done. Sizes of 0 are allowed, and are calls
 *              as others. In place: all_reduce, reduce and broadcast with out == in; reduce_scatter with out == in + rank * count elements;
 *              all_gather and gather with in == out + rank * bytes; scatter with out == in + rank * bytes. No other overlap.
 *   numbers    `count` is elements of `dtype`, one BP_DTYPE_*; `bytes` moves data of any dtype. Integers wrap. SUM and MAX of BOOL are
 *              "or", PRODUCT and MIN are "and". Of complex numbers there is no MIN and MAX. Whether MIN and MAX give on a NaN is the
 *              driver's, and so are the order of a reduction and what half types are added in.
 *   optional   An entry that head.flags do not name is there and returns UNSUPPORTED; the core then makes the same of the others.
 * Sources: what NCCL, oneCCL and HCCL have in common.
 */
#ifndef BACKPLANE_DRIVER_COLLECTIVE_H
#define BACKPLANE_DRIVER_COLLECTIVE_H

#include "../driver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_COLLECTIVE_ID "bp.collective"
#define BP_COLLECTIVE_VERSION 1u

/* head.flags: how it works
 *   CONCURRENT   Work of several communicators may wait for its peers on one device at once; without it the core orders that work, the same
 *                on all ranks.
 *   CAPTURE      Its calls may be made while a stream is being captured.
 *   BITWISE      The same inputs and ranks give the same bits, each time and on every rank.
 *   SAME_DEVICE  Several ranks of a communicator may have the same device; without it each has one of its own.
 *   WATCHES      It notices by itself that a peer's process has ended, or that the ranks' calls differ; without it such work waits until
 *                its work timeout passes or somebody aborts. */
#define BP_COLLECTIVE_CONCURRENT (1u << 0)
#define BP_COLLECTIVE_CAPTURE (1u << 1)
#define BP_COLLECTIVE_BITWISE (1u << 2)
#define BP_COLLECTIVE_SAME_DEVICE (1u << 3)
#define BP_COLLECTIVE_WATCHES (1u << 4)

/* head.flags: which optional entries work */
#define BP_COLLECTIVE_SPLIT (1u << 8)         /* split; without it the core makes a communicator from a new id */
#define BP_COLLECTIVE_ABORT (1u << 9)         /* abort; without it the core gives up waiting, and the work keeps its streams */
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

/* What a driver's collectives take. 0: no limit. */
typedef struct bp_collective_properties {
  uint64_t struct_size;
  uint64_t id_bytes;                 /* of an id, 1 to 65536: 128 for NCCL, 4108 for HCCL */
  uint64_t reduces[BP_REDUCE_COUNT]; /* [BP_REDUCE_*]: BP_DTYPE_* that the op takes. FLOAT32 by SUM is required; the core converts the
                                        rest, or sends it through the host */
  int32_t max_size;                  /* most ranks of a communicator */
  uint32_t max_group;                /* most calls between group_begin and group_end */
  uint64_t reserved[6];
} bp_collective_properties;

/* Read before the call returns. */
typedef struct bp_comm_config {
  uint64_t struct_size;
  const void* id;           /* id_bytes of make_id; NULL for split */
  const char* name;         /* for messages and tools; never NULL */
  uint64_t timeout_ns;      /* of the call itself */
  uint64_t work_timeout_ns; /* how long a piece of work may wait for its peers; then the communicator fails with TIMEOUT. 0,
                               BP_NO_TIMEOUT: as long as it takes. A driver that cannot tell ignores it: the core has a clock of its own,
                               and aborts */
  int32_t rank;             /* of the caller; for split in its part */
  int32_t size;             /* ranks; for split of the part */
  uint32_t max_units;       /* compute units that its work may take of the device; 0: the driver's choice */
  uint32_t flags;           /* 0 */
  uint64_t reserved[4];
} bp_comm_config;

typedef struct bp_collective {
  bp_ext head;

  /* What it takes on that device (struct_size set by the caller). The same each time. Before open, too; creates no context, unless
   * device_properties does (BP_DRIVER_COUNT_FORKS). errors: INVALID_DEVICE. */
  int32_t (*properties)(void* self, int32_t device, bp_collective_properties* out);

  /* A new id, id_bytes long, for one communicator; plain bytes. The process that made it lives until create has returned everywhere.
   * blocks: shortly. errors: INTERNAL: no network or shared memory to meet in. */
  int32_t (*make_id)(void* self, int32_t device, void* out);

  /* Joins as config->rank, with `device`. blocks: until all ranks have joined, or for timeout_ns. Not between group_begin and group_end:
   * ranks of one process join from a thread each. owner: the caller, until destroy. errors: TIMEOUT: a rank did not come; INVALID_ARGUMENT:
   * bytes that are no id, a rank that is taken or out of range, another size than the others'; UNSUPPORTED: size is above max_size;
   * INTERNAL: a rank has gone meanwhile. After an error the id is used up. */
  int32_t (*create)(void* self, int32_t device, const bp_comm_config* config, bp_comm** out);

  /* BP_COLLECTIVE_SPLIT. A communicator of those ranks that give the same color, 0 or more; with color -1 this rank joins none, *out is
   * NULL and config may be NULL. All ranks of comm call it, when its work is done or not; comm stays. Otherwise as create. errors:
   * INTERNAL, too, where comm has failed; INVALID_ARGUMENT: rank and size do not fit the part. */
  int32_t (*split)(void* self, bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out);

  /* Ends this rank of a communicator. The other ranks need not call it at the same time, but what they queue
   * later has no peer here. blocks: until its queued work is done, for timeout_ns at most. Works after a FAULT, BP_OK after DEVICE_LOST.
   * errors: TIMEOUT: work is still running, the communicator is still there; the core aborts, and calls again. */
  int32_t (*destroy)(void* self, bp_comm* comm, uint64_t timeout_ns);

  /* BP_COLLECTIVE_ABORT. The communicator fails: queued work ends soon, here and on the peers that the driver can reach, who see
   * DEVICE_LOST. Never blocks for work. Any thread, also while another is inside an entry with this communicator. Again: BP_OK. Only status
   * and destroy may follow. */
  int32_t (*abort)(void* self, bp_comm* comm);

  /* *out: BP_OK, or how the communicator failed: TIMEOUT: by its work timeout, here or on a peer; DEVICE_LOST: a peer, or its device, is
   * gone or has aborted; INTERNAL: ranks disagree, or anything else, such as an abort here. Stays what it was first. `text` gets why,
   * NUL-terminated and cut to size; may be NULL with size 0. Never blocks; any thread. The entry itself returns BP_OK: a communicator's
   * failure is no error of it. */
  int32_t (*status)(void* self, bp_comm* comm, int32_t* out, char* text, uint64_t size);

  /* What the calling thread queues between the two goes out at group_end, as one: sends and receives in it never wait for each other. Of
   * all communicators; within a group the calls of one communicator name the same stream, and their order holds between communicators, too,
   * where that stream is one. Nests: the outermost pair counts. Arguments are checked by the calls. errors of group_end: INVALID_ARGUMENT:
   * no group was begun; OUT_OF_MEMORY, and sticky ones: nothing of it was queued. A call that fails leaves the group open. */
  int32_t (*group_begin)(void* self);
  int32_t (*group_end)(void* self);

  /* out[i] of every rank = op over all ranks' in[i]. */
  int32_t (*all_reduce)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype,
                        int32_t op);

  /* The same on rank root alone; elsewhere out is not looked at. */
  int32_t (*reduce)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op,
                    int32_t root);

  /* in: size * count elements; out: the `count` of them that begin at rank * count, reduced. */
  int32_t (*reduce_scatter)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype,
                            int32_t op);

  /* out of every rank, root too, = in of root; elsewhere in is not looked at. */
  int32_t (*broadcast)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* out: size * bytes, the ranks' `in` in the order of ranks; each is `bytes` long. */
  int32_t (*all_gather)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);

  /* A send meets the peer's recv of the same number of bytes; between two ranks the n-th meets the n-th. Outside of a group a send may wait
   * for its recv. The own rank as peer: in a group alone, which has both. */
  int32_t (*send)(void* self, bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer);
  int32_t (*recv)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer);

  /* BP_COLLECTIVE_ALL_TO_ALL. in and out: size * bytes. The part of `in` at r * bytes goes to rank r, whose `out` has it at the sender's
   * rank * bytes. */
  int32_t (*all_to_all)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes);

  /* BP_COLLECTIVE_ALL_TO_ALL_V. The same with parts of any size: in_bytes[r] at in + in_at[r] go to rank r, out_bytes[r] from it to
   * out + out_at[r]. Four arrays of `size` values, in bytes, read before the call returns; what is sent to a rank is what it expects. */
  int32_t (*all_to_all_v)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, const uint64_t* out_bytes, const uint64_t* out_at,
                          uint64_t in, const uint64_t* in_bytes, const uint64_t* in_at);

  /* BP_COLLECTIVE_GATHER. As all_gather on rank root alone; elsewhere out is not looked at. */
  int32_t (*gather)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* BP_COLLECTIVE_GATHER. in of root: size * bytes, whose part at r * bytes is the `out` of rank r; elsewhere in is not looked at. */
  int32_t (*scatter)(void* self, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes, int32_t root);

  /* BP_COLLECTIVE_BARRIER. Later work of the stream begins when all ranks' streams have come here. */
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

#ifdef __cplusplus
}
#endif
#endif
