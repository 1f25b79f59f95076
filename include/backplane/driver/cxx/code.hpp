// backplane/driver/cxx/code.hpp: the bytes that compile() gives and load() takes: a header, then what the runtime loads.
//
// By the header, bytes that were cut off or changed, or are another compiler's or another target's, are refused before the runtime sees
// them:
//
//     out.code = pack_code("acme", target, checksum(id()), image);                                  // compile
//     const Code code = unpack_code("acme", {bytes, size}, checksum(id()));                         // load
//     code.need_target(own_target);
//     vendor_load(code.image);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "../compiler.h"
#include "error.hpp"

namespace backplane::driver {

/// FNV-1a, eight bytes at a time.
inline uint64_t checksum(std::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325ull ^ bytes.size();
  for (; !bytes.empty(); bytes.remove_prefix(std::min<size_t>(bytes.size(), 8))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), std::min<size_t>(bytes.size(), 8));
    sum = (sum ^ word) * 0x100000001b3ull;
    sum ^= sum >> 29;
  }
  return sum;
}

struct CodeHeader {
  char magic[8];
  char target[sizeof(bp_target_properties::target)];
  uint64_t made_by;
  uint64_t bytes;    // of the image
  uint64_t sum;      // of the image
  uint64_t own_sum;  // of what stands before
};

/// driver: its name, 5 characters at most. made_by: a number that the compiling and the loading side must agree on, such as the checksum of
/// the compiler's id.
inline std::string pack_code(const char* driver, const std::string& target, uint64_t made_by, std::string_view image) {
  CodeHeader header{};
  (std::string("bp-") + driver).copy(header.magic, sizeof header.magic);
  target.copy(header.target, sizeof header.target - 1);
  header.made_by = made_by;
  header.bytes = image.size();
  header.sum = checksum(image);
  const auto* start = reinterpret_cast<const char*>(&header);
  header.own_sum = checksum({start, offsetof(CodeHeader, own_sum)});
  return std::string(start, sizeof header).append(image);
}

namespace code {
inline void need(bool holds, const std::string& why) {
  if (!holds) throw Error(BP_INVALID_ARGUMENT, "module.load: " + why + "; compile the source again");
}
}  // namespace code

/// What is in such bytes.
struct Code {
  std::string target;
  std::string_view image;

  /// Throws Error(BP_INVALID_ARGUMENT) unless the code is for that target.
  void need_target(const std::string& own) const {
    code::need(target == own, "the code is for the target " + target + ", and the device's is " + own);
  }
};

/// Throws Error(BP_INVALID_ARGUMENT).
inline Code unpack_code(const char* driver, std::string_view bytes, uint64_t made_by) {
  CodeHeader header;
  code::need(bytes.size() >= sizeof header, "the code is cut off");
  std::memcpy(&header, bytes.data(), sizeof header);
  code::need(std::string(header.magic, strnlen(header.magic, sizeof header.magic)) == std::string("bp-") + driver,
             "these bytes are no code of this driver");
  code::need(header.own_sum == checksum(bytes.substr(0, offsetof(CodeHeader, own_sum))), "the code was changed");
  code::need(header.made_by == made_by, "the code was made by another compiler");
  const std::string_view image = bytes.substr(sizeof header);
  code::need(image.size() >= header.bytes, "the code is cut off");
  code::need(image.size() == header.bytes, "there are bytes behind the code");
  code::need(checksum(image) == header.sum, "the code was changed");
  return {header.target, image};
}

}  // namespace backplane::driver
