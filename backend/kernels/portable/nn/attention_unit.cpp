// kernels/portable/nn/attention_unit.cpp: a tile of as many rows and keys as fit local memory.
#include "kernels/portable/nn/attention_unit.h"

#include <algorithm>

namespace backplane::portable {
namespace {

constexpr int64_t kFewRows = 8;     // for which lanes are along keys
constexpr int64_t kFoldLanes = 16;  // LANES of attention.bpc: fewer keys are not folded
constexpr int64_t kPadding = 160;   // words that the alignment of the arrays may take

int64_t lanes_of(const Target& target) { return std::max<int64_t>(target.properties.vector_bytes, 16) / 4; }

}  // namespace

int64_t host_pitch(const Target& target, int64_t size) {
  const int64_t columns = 2 * lanes_of(target);
  return (size + columns - 1) / columns * columns;
}

std::optional<AttentionTile> AttentionTile::of(const Target& target, int64_t sharing, int64_t size, int64_t longest) {
  const bool is_host = target.is_host();
  const int64_t lanes = lanes_of(target);
  if (is_host && target.properties.vector_bytes < sizeof(float)) return std::nullopt;
  AttentionTile tile{};
  tile.pitch = is_host ? host_pitch(target, size) : size | 1;  // an odd one: no conflicts of banks
  for (int64_t most = is_host ? 64 : 16; most > 0; most /= 2) {
    tile.heads = std::min(sharing, most);
    while (sharing % tile.heads != 0) --tile.heads;
    const int64_t wanted = longest <= 1 ? 1 : longest * tile.heads <= kFewRows ? std::min(kFewRows, most) : most;
    tile.queries = longest <= 1 ? 1 : std::max<int64_t>(wanted / tile.heads, 1);
    const int64_t rows = tile.queries * tile.heads;
    tile.is_across = is_host && rows > kFewRows;
    tile.step = !is_host ? 1 : tile.is_across ? 8 : std::min<int64_t>(rows, 4);
    const int64_t unit = tile.is_across ? 2 * lanes : tile.step;
    tile.rows = (rows + unit - 1) / unit * unit;
    for (tile.keys = is_host ? 64 : 32; tile.keys >= std::max(is_host ? 2 * lanes : 0, kFoldLanes); tile.keys /= 2) {
      const int64_t words = tile.rows * tile.pitch * (is_host ? 2 : 1) + tile.keys * tile.pitch + tile.rows * tile.keys + 3 * tile.rows +
                            4 * tile.keys + lanes + kPadding;
      if (4 * words <= static_cast<int64_t>(target.properties.local_bytes)) return tile;
    }
  }
  return std::nullopt;
}

void AttentionTile::define(Unit& unit, int64_t size) const {
  unit.define("SIZE", size).define("PITCH", pitch).define("QUERIES", queries).define("HEADS", heads).define("ROWS", rows);
  unit.define("STEP", step).define("KEYS", keys).define("ACROSS", is_across);
}

}  // namespace backplane::portable
