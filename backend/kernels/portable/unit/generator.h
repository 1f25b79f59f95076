// kernels/portable/unit/generator.h: how kernels receive the device generator's numbers: by two words of their struct, and within a graph
// by two places in memory besides, which hold those of the run.
#pragma once

#include <backplane/random.h>

#include "kernels/portable/unit/unit.h"

namespace backplane::portable {

// Defines IN_GRAPH and adds the two addresses as the first parameters.
inline void define_generator(Unit& unit, bool in_graph) {
  if (in_graph)
    unit.define("IN_GRAPH", 1).read("seed_in_memory", c10::ScalarType::UInt64).read("offset_in_memory", c10::ScalarType::UInt64);
}

inline void add_generator(Arguments& arguments, const PhiloxState& state) {
  if (!state.in_graph()) return;
  arguments.words(reinterpret_cast<uint64_t>(state.seed_address), reinterpret_cast<uint64_t>(state.offset_address));
}

// Adds the two words of the struct.
inline void add_numbers(Arguments& arguments, const PhiloxState& state) {
  arguments.words(state.seed, state.in_graph() ? state.graph_offset : state.offset);
}

}  // namespace backplane::portable
