// drivers/sim/fibers.h: kernels of more than one item: each item of a group is a fiber, and a barrier is where they take turns.
//
// All items of a group run on one thread, one after the other from barrier to barrier, in the order that the option `order` says: `up`
// from the first to the last, groups too, or `down`. Work-group memory is filled with 0xff before each group. So a kernel that lacks a
// barrier, or reads what nobody has written, gives a wrong result every time in one of the two orders; one whose items do not all come to
// the same barrier makes the device fault. Stacks are kept for the thread's next kernel.
#pragma once

#include <cstdint>

#include "prelude.h"

namespace backplane::driver::sim {

/// How the items of a group take turns.
enum class Order { up, down };

/// Runs a grid on the calling thread. Throws Error(BP_FAULT) for a kernel that fails.
void run_on_fibers(const KernelEntry& kernel, const uint64_t* args, const uint32_t* grid, Order order);

// What such a kernel calls, on its fiber. fail_on_fiber gives false if the calling thread runs none, else it does not return.
bool fail_on_fiber(uint32_t line, const char* condition);
void wait_at_barrier(uint32_t line);
void* take_local(uint64_t bytes, uint32_t line);

}  // namespace backplane::driver::sim
