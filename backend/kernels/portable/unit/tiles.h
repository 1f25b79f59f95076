// kernels/portable/unit/tiles.h: the sizes of the tiles of a product of matrices (dialect/tiles.bpc), by target.
#pragma once

#include <cstdint>
#include "kernels/portable/unit/unit.h"

namespace backplane::portable {

struct Tiles {
  int micro_m, micro_n;  // in registers
  int m, n, k;           // in local memory
};

void define_tiles(Unit& unit, const Tiles& tiles);

// For elements of that size. small: smaller tiles, for a product that would have too few.
Tiles tiles_of(const Target& target, int64_t element_bytes, bool small);

// The tile's size for that many rows (columns): on a host, one that divides them evenly; elsewhere the whole tile.
int64_t even_tile(const Target& target, int64_t extent, int tile, int micro);

}  // namespace backplane::portable
