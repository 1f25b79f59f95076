// tests/driver/broken/collective.cpp: defects of the family collective. Every rank has them.
#include <fcntl.h>

#include "shim.h"

namespace broken {
namespace {

/// Queues on the default stream, whatever the caller says.
int32_t all_reduce_elsewhere(void* self, bp_comm* comm, bp_stream*, uint64_t out, uint64_t in, uint64_t count, uint64_t dtype, int32_t op) {
  return INNER_GROUP(of(self).in_collective, all_reduce, comm, nullptr, out, in, count, dtype, op);
}

}  // namespace

void add_collective_defects(Defects& d) {
  d["collective.properties"] =
      after<&bp_collective::properties, [](Shim& s, int32_t status, int32_t device, bp_collective_properties* out) {
        if (status == BP_OK && s.calls++ == 1) out->max_size = 7;  // changes its mind
        return status;
      }>;
  // Takes one half type for the other.
  d["collective.reductions"] = instead<&bp_collective::all_reduce, [](Shim& s, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t in,
                                                                      uint64_t count, uint64_t dtype, int32_t op) {
    const uint64_t taken = dtype == BP_DTYPE_BFLOAT16 ? BP_DTYPE_FLOAT16 : dtype;
    return INNER_GROUP(s.in_collective, all_reduce, comm, stream, out, in, count, taken, op);
  }>;
  d["collective.roots"] = [](Shim& s) {
    s.collective.reduce = [](void* self, bp_comm* comm, bp_stream* stream, uint64_t, uint64_t in, uint64_t count, uint64_t dtype,
                             int32_t op,
                             int32_t root) {  // leaves the result in the input
      return INNER_GROUP(of(self).in_collective, reduce, comm, stream, in, in, count, dtype, op, root);
    };
  };
  // Everybody's own, and nothing of the others.
  d["collective.moves"] =
      instead<&bp_collective::all_gather, [](Shim& s, bp_comm*, bp_stream* stream, uint64_t out, uint64_t in, uint64_t bytes) {
        return INNER(s, copy_async, 0, stream, out, 0, in, 0, bytes, 0u);
      }>;
  d["collective.pairs"] = after<&bp_collective::recv,
                                [](Shim& s, int32_t status, bp_comm* comm, bp_stream* stream, uint64_t out, uint64_t bytes, int32_t peer) {
                                  const uint8_t zero = 0;
                                  if (bytes) INNER(s, fill, 0, stream, out + bytes - 1, &zero, 1u, uint64_t{1}, 0u);
                                  return status;
                                }>;
  // Each call by itself.
  d["collective.groups"] = [](Shim& s) {
    s.collective.group_begin = [](void*) { return int32_t{BP_OK}; };
    s.collective.group_end = [](void*) { return int32_t{BP_OK}; };
  };
  d["collective.optional"] =
      instead<&bp_collective::all_to_all, [](Shim&, bp_comm*, bp_stream*, uint64_t, uint64_t, uint64_t) { return int32_t{BP_OK}; }>;
  d["collective.order"] = [](Shim& s) { s.collective.all_reduce = all_reduce_elsewhere; };
  d["collective.barrier"] = [](Shim& s) { s.collective.barrier = [](void*, bp_comm*, bp_stream*) { return int32_t{BP_OK}; }; };
  // Ranks in the order of the whole, whatever config says.
  d["collective.split"] =
      instead<&bp_collective::split, [](Shim& s, bp_comm* comm, int32_t color, const bp_comm_config* config, bp_comm** out) {
        bp_comm_config turned{};
        if (config) {
          turned = *config;
          turned.rank = config->size - 1 - config->rank;
        }
        return INNER_GROUP(s.in_collective, split, comm, color, config ? &turned : nullptr, out);
      }>;
  // One communicator for all.
  d["collective.many"] = instead<&bp_collective::split, [](Shim&, bp_comm* comm, int32_t, const bp_comm_config*, bp_comm** out) {
    *out = comm;
    return int32_t{BP_OK};
  }>;
  d["collective.abort"] = [](Shim& s) { s.collective.abort = [](void*, bp_comm*) { return int32_t{BP_OK}; }; };
  d["collective.lost_peer"] =
      after<&bp_collective::status, [](Shim& s, int32_t status, bp_comm* comm, int32_t* out, char* text, uint64_t size) {
        if (*out == BP_DEVICE_LOST) *out = BP_TIMEOUT;
        return status;
      }>;
  // Reports nothing.
  d["collective.disagree"] = instead<&bp_collective::status, [](Shim&, bp_comm*, int32_t* out, char* text, uint64_t size) {
    *out = BP_OK;
    if (size) *text = '\0';
    return int32_t{BP_OK};
  }>;
  d["collective.absent"] =
      after<&bp_collective::create, [](Shim& s, int32_t status, int32_t device, const bp_comm_config* config, bp_comm** out) {
        return status == BP_TIMEOUT ? int32_t{BP_DEVICE_LOST} : status;
      }>;
  d["collective.destroy"] = after<&bp_collective::destroy, [](Shim& s, int32_t status, bp_comm* comm, uint64_t timeout_ns) {
    return status == BP_TIMEOUT ? int32_t{BP_OK} : status;
  }>;
  d["collective.leftovers"] = instead<&bp_collective::destroy, [](Shim& s, bp_comm* comm, uint64_t timeout_ns) {
    for (int i = 0; i < 8; ++i) {
      if (open("/dev/null", O_RDONLY) < 0) return int32_t{BP_INTERNAL};
    }
    return INNER_GROUP(s.in_collective, destroy, comm, timeout_ns);
  }>;
  d["collective.invalid"] =
      after<&bp_collective::send, [](Shim& s, int32_t status, bp_comm* comm, bp_stream* stream, uint64_t in, uint64_t bytes, int32_t peer) {
        return status == BP_INVALID_ARGUMENT ? int32_t{BP_OK} : status;
      }>;
}

}  // namespace broken
