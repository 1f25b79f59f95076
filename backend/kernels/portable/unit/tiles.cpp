// kernels/portable/unit/tiles.cpp: the tiles of hosts, and those of groups of items; both fit the target's local memory.
#include "kernels/portable/unit/tiles.h"

#include <algorithm>

namespace backplane::portable {
namespace tiles_impl {
namespace {

// An item is a core: micro tiles two vectors wide and as high as the registers allow, in blocks that fit the second-level cache.
Tiles host_tiles(const bp_target_properties& target, int bytes) {
  const int lanes = std::max(static_cast<int>(target.vector_bytes) / bytes, 1);
  const int registers = static_cast<int>(target.registers * 4 / std::max(target.vector_bytes, 4u));
  Tiles tiles{};
  tiles.micro_m = registers >= 32 ? 8 : registers >= 16 ? 6 : 2;  // 8: BP_UNROLL of the preludes in C unrolls that completely
  tiles.micro_n = 2 * lanes;
  const auto scale = [&](int size) {
    tiles.k = size;
    tiles.m = std::max(size * 15 / 16 / tiles.micro_m, 1) * tiles.micro_m;
    tiles.n = std::max(size * 4 / bytes / tiles.micro_n, 1) * tiles.micro_n;
  };
  int size = 256;
  for (scale(size); size > 16; scale(size /= 2)) {
    const int longest = std::max({tiles.k, tiles.m, tiles.n}) + tiles.micro_m + tiles.micro_n;
    // The lines of TILE_PACK_ALONG, and a convolution's rows.
    const int elements = tiles.m * tiles.k + tiles.k * tiles.n + tiles.m * tiles.n + tiles.micro_m * tiles.micro_n + (16 + 10) * longest;
    if (static_cast<uint32_t>(elements * bytes) <= target.local_bytes) break;
  }
  return tiles;
}

// One micro tile per item, in a grid that is square or twice as wide as high.
Tiles group_tiles(const bp_target_properties& target, int bytes, bool small) {
  Tiles tiles{};
  tiles.micro_m = tiles.micro_n = !small && target.registers >= 128 && bytes <= 4 ? 8 : 4;
  int wide = 1;
  while (wide * wide < static_cast<int>(target.group_size)) wide *= 2;
  tiles.n = tiles.micro_n * wide;
  tiles.m = tiles.micro_m * static_cast<int>(target.group_size) / wide;
  constexpr int kPad = 4;
  for (tiles.k = 16; tiles.k > 1 && static_cast<uint32_t>((tiles.m + tiles.n + 2 * kPad) * tiles.k * bytes) > target.local_bytes;) {
    tiles.k /= 2;
  }
  return tiles;
}

}  // namespace
}  // namespace tiles_impl

void define_tiles(Unit& unit, const Tiles& tiles) {
  unit.file("tiles.bpc").define("MICRO_M", tiles.micro_m).define("MICRO_N", tiles.micro_n);
  unit.define("TILE_M", tiles.m).define("TILE_N", tiles.n).define("TILE_K", tiles.k);
}

Tiles tiles_of(const Target& target, int64_t element_bytes, bool small) {
  const int bytes = static_cast<int>(element_bytes);
  return target.is_host() ? tiles_impl::host_tiles(target.properties, bytes) : tiles_impl::group_tiles(target.properties, bytes, small);
}

int64_t even_tile(const Target& target, int64_t extent, int tile, int micro) {
  if (!target.is_host()) return tile;
  const int64_t tiles = (extent + tile - 1) / tile;
  const int64_t even = (extent + tiles - 1) / std::max<int64_t>(tiles, 1);
  return std::min<int64_t>((even + micro - 1) / micro * micro, tile);
}

}  // namespace backplane::portable
