// drivers/sim/code.h: the bytes that compile() gives and load() takes: a header, then a shared object.
//
// The header is there so that bytes which were cut off or changed, or are of another target or prelude, are refused before the system's
// loader sees them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <backplane/driver/compiler.h>
#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::sim {

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
  static constexpr char kMagic[8] = "bp-simk";
  char magic[8];
  char target[sizeof(bp_target_properties::target)];
  uint64_t prelude;  // checksum of the prelude that it was compiled with: the two sides' agreement
  uint64_t bytes;    // of the object
  uint64_t sum;      // of the object
  uint64_t own_sum;  // of what stands before
};

inline std::string make_code(const char* target, uint64_t prelude, std::string_view object) {
  CodeHeader header{};
  std::memcpy(header.magic, CodeHeader::kMagic, sizeof header.magic);
  std::strncpy(header.target, target, sizeof header.target - 1);
  header.prelude = prelude;
  header.bytes = object.size();
  header.sum = checksum(object);
  const auto* start = reinterpret_cast<const char*>(&header);
  header.own_sum = checksum({start, offsetof(CodeHeader, own_sum)});
  return std::string(start, sizeof header).append(object);
}

/// The object in such bytes. Throws Error(BP_INVALID_ARGUMENT).
inline std::string_view object_of(std::string_view code, const char* target, uint64_t prelude) {
  const auto need = [](bool holds, const std::string& why) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, "module.load: " + why + "; compile the source again");
  };
  CodeHeader header;
  need(code.size() >= sizeof header, "the code is cut off");
  std::memcpy(&header, code.data(), sizeof header);
  need(std::memcmp(header.magic, CodeHeader::kMagic, sizeof header.magic) == 0, "these bytes are no code of the simulated device");
  need(header.own_sum == checksum(code.substr(0, offsetof(CodeHeader, own_sum))), "the code was changed");
  need(std::strcmp(header.target, target) == 0,
       std::string("the code is for the target ") + header.target + ", and the device's is " + target);
  need(header.prelude == prelude, "the code was compiled with another version's prelude");
  const std::string_view object = code.substr(sizeof header);
  need(object.size() == header.bytes, object.size() < header.bytes ? "the code is cut off" : "there are bytes behind the code");
  need(checksum(object) == header.sum, "the code was changed");
  return object;
}

}  // namespace backplane::driver::sim
