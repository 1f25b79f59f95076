// drivers/sim/ipc.h: the simulator's bp.ipc: allocations and events that another process of the same user opens (shared_file.h).
#pragma once

#include <cstdint>
#include <memory>

#include <backplane/driver/ipc.h>

#include "../engine/shared_event.h"
#include "memory.h"

namespace backplane::driver::sim {

/// Throws unless `address` is an allocation's base, of pages that can be shared.
bp_ipc_handle export_memory(const SimMemory& memory, uint64_t address);
/// A place in this process for another one's memory; memory.disown() ends it.
uint64_t open_memory(SimMemory& memory, const bp_ipc_handle& handle);

std::shared_ptr<SharedEvent> make_shared_event();
std::shared_ptr<SharedEvent> open_shared_event(const bp_ipc_handle& handle);
/// Of an event that one of the two above made.
bp_ipc_handle export_event(const SharedEvent& event);

}  // namespace backplane::driver::sim
