// drivers/sim/reduce.h: the arithmetic of the simulated collectives: elements of all ranks, reduced in the order of ranks, so that every
// rank computes the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <backplane/driver/collective.h>

namespace backplane::driver::sim {

/// Bytes of an element; 0 for what is not one BP_DTYPE_*.
uint64_t bytes_of_dtype(uint64_t dtype);

/// [BP_REDUCE_*]: the dtypes that reduce() takes.
const std::array<uint64_t, BP_REDUCE_COUNT>& reduced_dtypes();

/// out[i] = in[0][i] op in[1][i] op ...; half types are added in float and rounded once. `op` takes the dtype.
void reduce(int32_t op, uint64_t dtype, void* out, const std::vector<const char*>& in, uint64_t count);

}  // namespace backplane::driver::sim
