// drivers/spirv/assembler.h: the sections of a module of SPIR-V; types and constants once each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "numbers.h"

namespace backplane::driver::spirv {

using Words = std::vector<uint32_t>;

/// Appends an instruction.
void put(Words& to, Op op, std::initializer_list<uint32_t> operands);
void put(Words& to, Op op, const Words& operands);
/// A literal string as operands.
void append(Words& to, std::string_view text);

class Assembler {
 public:
  uint32_t id() { return next_++; }
  void capability(Capability one) { capabilities_.insert(one); }
  void extension(const char* name) { extensions_.insert(name); }
  uint32_t import(const char* name);

  /// A type or a constant, the same id for the same operands.
  uint32_t type(Op op, const Words& operands) { return shared(op, operands, false); }
  uint32_t constant(Op op, const Words& type_and_operands) { return shared(op, type_and_operands, true); }
  /// A type of its own, which will be decorated.
  uint32_t new_type(Op op, const Words& operands);
  uint32_t variable(uint32_t pointer_type, StorageClass storage, uint32_t initializer = 0);
  void name(uint32_t id, std::string_view text);

  Words entry_points, modes, annotations, functions;

  Words finish(uint32_t version, uint32_t addressing, uint32_t memory) const;

 private:
  struct Hash {
    size_t operator()(const Words& words) const {
      size_t sum = 14695981039346656037u;
      for (const uint32_t word : words) sum = (sum ^ word) * 1099511628211u;
      return sum;
    }
  };
  uint32_t shared(Op op, const Words& operands, bool has_type);

  uint32_t next_ = 1;
  std::set<uint32_t> capabilities_;
  std::set<std::string> extensions_;
  std::map<std::string, uint32_t> imports_;
  std::unordered_map<Words, uint32_t, Hash> shared_;
  Words names_, globals_;
};

}  // namespace backplane::driver::spirv
