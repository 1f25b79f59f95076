// drivers/engine/fill.h: the arguments of the fill slot, checked, and the loop behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver {

/// A pattern of 1, 2, 4 or 8 bytes, repeated.
struct FillPattern {
  uint64_t word;   // the pattern, repeated to 8 bytes
  uint32_t size;   // of the pattern
  uint64_t bytes;  // to be written

  FillPattern(const void* pattern, uint32_t pattern_size, uint64_t count, uint64_t dst = 0)
      : word(0), size(pattern_size), bytes(size * count) {
    need(pattern, "fill: pattern");
    if (size != 1 && size != 2 && size != 4 && size != 8) {
      throw Error(BP_INVALID_ARGUMENT, "fill: a pattern of 1, 2, 4 or 8 bytes is needed, not " + std::to_string(size));
    }
    if (dst % size != 0) {
      throw Error(BP_INVALID_ARGUMENT, format("fill: dst 0x%llx is no multiple of the pattern's %u bytes", wide(dst), size));
    }
    if (count > UINT64_MAX / size) throw Error(BP_INVALID_ARGUMENT, "fill: count is too large");
    for (uint32_t at = 0; at < 8; at += size) std::memcpy(reinterpret_cast<char*>(&word) + at, pattern, size);
  }
};

/// Writes the first `bytes` bytes of an endless row of `word`.
inline void fill_bytes(void* dst, uint64_t word, uint64_t bytes) {
  if (word == (word & 0xff) * 0x0101010101010101u) {
    std::memset(dst, static_cast<int>(word & 0xff), bytes);
    return;
  }
  // Blocks that stay in the first cache: memcpy runs at full speed for any alignment of dst.
  uint64_t block[512];
  std::fill_n(block, std::min<uint64_t>(512, (bytes + 7) / 8), word);
  for (char* at = static_cast<char*>(dst); bytes > 0;) {
    const uint64_t part = std::min<uint64_t>(bytes, sizeof block);
    std::memcpy(at, block, part);
    at += part;
    bytes -= part;
  }
}

}  // namespace backplane::driver
