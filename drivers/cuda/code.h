// drivers/cuda/code.h: the bytes that compile() gives and load() takes: a header, then a cubin or a PTX text.
//
// CUDA would read on behind the end of an image that was cut off: the header lets such bytes be refused before it sees them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <backplane/driver/compiler.h>
#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::cuda {

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
  static constexpr char kMagic[8] = "bp-cuda";
  char magic[8];
  char target[sizeof(bp_target_properties::target)];
  uint64_t compiler;  // checksum of the compiler's id
  uint64_t bytes;     // of the image
  uint64_t sum;       // of the image
  uint64_t own_sum;   // of what stands before
};

inline std::string make_code(const std::string& target, const std::string& id, std::string_view image) {
  CodeHeader header{};
  std::memcpy(header.magic, CodeHeader::kMagic, sizeof header.magic);
  std::strncpy(header.target, target.c_str(), sizeof header.target - 1);
  header.compiler = checksum(id);
  header.bytes = image.size();
  header.sum = checksum(image);
  const auto* start = reinterpret_cast<const char*>(&header);
  header.own_sum = checksum({start, offsetof(CodeHeader, own_sum)});
  return std::string(start, sizeof header).append(image);
}

/// What is in such bytes. Throws Error(BP_INVALID_ARGUMENT).
struct Image {
  std::string target;
  std::string bytes;  // with a NUL behind, as CUDA wants of PTX
};

inline Image image_of(std::string_view code, const std::string& id) {
  const auto sound = [](bool holds, const char* why) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, std::string("module.load: ") + why + "; compile the source again");
  };
  CodeHeader header;
  sound(code.size() >= sizeof header, "the code is cut off");
  std::memcpy(&header, code.data(), sizeof header);
  sound(std::memcmp(header.magic, CodeHeader::kMagic, sizeof header.magic) == 0, "these bytes are no code of this driver");
  sound(header.own_sum == checksum(code.substr(0, offsetof(CodeHeader, own_sum))), "the code was changed");
  sound(header.compiler == checksum(id), "the code was made by another compiler");
  const std::string_view image = code.substr(sizeof header);
  sound(image.size() == header.bytes, "the code is cut off, or there are bytes behind it");
  sound(checksum(image) == header.sum, "the code was changed");
  return {header.target, std::string(image)};
}

}  // namespace backplane::driver::cuda
