// drivers/vulkan/one_entry.cpp: reads instructions as far as that takes: a word of length and opcode, then the operands.
#include "one_entry.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace backplane::driver::vulkan {
namespace {

constexpr size_t kHeader = 5;  // words
enum Op : uint16_t {
  kName = 5,
  kEntryPoint = 15,
  kExecutionMode = 16,
  kFunction = 54,
  kFunctionEnd = 56,
  kVariable = 59,
  kDecorate = 71,
  kExecutionModeId = 331
};

struct Instruction {
  const uint32_t* words;
  size_t length;
  uint16_t op() const { return static_cast<uint16_t>(words[0]); }
};

std::vector<Instruction> instructions_of(const std::vector<uint32_t>& words) {
  std::vector<Instruction> out;
  for (size_t at = kHeader; at < words.size();) {
    const size_t length = std::min<size_t>(std::max<uint32_t>(words[at] >> 16, 1), words.size() - at);
    out.push_back({&words[at], length});
    at += length;
  }
  return out;
}

/// OpEntryPoint: model, function, name, variables.
std::string name_of(const Instruction& entry) {
  return std::string(reinterpret_cast<const char*>(entry.words + 3),
                     strnlen(reinterpret_cast<const char*>(entry.words + 3), 4 * (entry.length - 3)));
}

}  // namespace

std::vector<uint32_t> one_entry(const std::vector<uint32_t>& words, const std::string& name) {
  const std::vector<Instruction> all = instructions_of(words);
  std::unordered_set<uint32_t> dropped;  // functions and variables
  std::unordered_set<uint32_t> used;     // variables of the entry
  for (const Instruction& one : all) {
    if (one.op() != kEntryPoint) continue;
    if (name_of(one) != name) {
      dropped.insert(one.words[2]);
    } else {
      used.insert(one.words + 3 + name.size() / 4 + 1, one.words + one.length);
    }
  }
  if (dropped.empty()) return words;
  bool in_function = false;
  for (const Instruction& one : all) {
    in_function |= one.op() == kFunction;
    if (one.op() == kVariable && !in_function && used.count(one.words[2]) == 0) dropped.insert(one.words[2]);
  }
  std::vector<uint32_t> out(words.begin(), words.begin() + kHeader);
  bool skips = false;
  for (const Instruction& one : all) {
    const uint16_t op = one.op();
    if (op == kFunction) skips = dropped.count(one.words[2]) != 0;
    const bool of_first = op == kName || op == kExecutionMode || op == kExecutionModeId || op == kDecorate;
    const bool of_second = op == kEntryPoint || op == kVariable;
    const bool gone = skips || (of_first && dropped.count(one.words[1])) || (of_second && dropped.count(one.words[2]));
    if (!gone) out.insert(out.end(), one.words, one.words + one.length);
    if (op == kFunctionEnd) skips = false;
  }
  return out;
}

}  // namespace backplane::driver::vulkan
