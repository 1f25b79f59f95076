// drivers/opencl/code.h: the bytes that compile() gives and load() takes: a header, then what clGetProgramInfo calls the program's binary.
//
// The header is there so that bytes which were cut off or changed, or are another target's, are refused before the runtime sees them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <backplane/driver/compiler.h>
#include <backplane/driver/cxx/error.hpp>

namespace backplane::driver::opencl {

/// FNV-1a.
inline uint64_t checksum(std::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325ull;
  for (const char byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
  return sum;
}

struct CodeHeader {
  static constexpr char kMagic[8] = "bp-ocl1";
  char magic[8];
  char target[sizeof(bp_target_properties::target)];
  uint64_t bytes;  // of the binary
  uint64_t sum;    // of the target and the binary
};

inline std::string make_code(const char* target, std::string_view binary) {
  CodeHeader header{};
  std::memcpy(header.magic, CodeHeader::kMagic, sizeof header.magic);
  std::strncpy(header.target, target, sizeof header.target - 1);
  header.bytes = binary.size();
  header.sum = checksum(std::string(header.target).append(binary));
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(binary);
}

/// The binary in such bytes. Throws Error(BP_INVALID_ARGUMENT).
inline std::string_view binary_of(std::string_view code, const char* target) {
  const auto need = [](bool holds, const std::string& why) {
    if (!holds) throw Error(BP_INVALID_ARGUMENT, "module.load: " + why + "; compile the source again");
  };
  CodeHeader header;
  need(code.size() >= sizeof header, "the code is cut off");
  std::memcpy(&header, code.data(), sizeof header);
  need(std::memcmp(header.magic, CodeHeader::kMagic, sizeof header.magic) == 0, "these bytes are no code of the OpenCL driver");
  header.target[sizeof header.target - 1] = '\0';
  need(std::strcmp(header.target, target) == 0,
       std::string("the code is for the target ") + header.target + ", and the device's is " + target);
  const std::string_view binary = code.substr(sizeof header);
  need(binary.size() == header.bytes, binary.size() < header.bytes ? "the code is cut off" : "there are bytes behind the code");
  need(checksum(std::string(header.target).append(binary)) == header.sum, "the code was changed");
  return binary;
}

}  // namespace backplane::driver::opencl
