// drivers/spirv/assembler.cpp: instructions as words.
#include "assembler.h"

namespace backplane::driver::spirv {

void put(Words& to, Op op, std::initializer_list<uint32_t> operands) {
  to.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
  to.insert(to.end(), operands);
}

void put(Words& to, Op op, const Words& operands) {
  to.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
  to.insert(to.end(), operands.begin(), operands.end());
}

void append(Words& to, std::string_view text) {
  for (size_t i = 0; i <= text.size(); i += 4) {
    uint32_t word = 0;
    for (size_t k = i; k < i + 4 && k < text.size(); ++k)
      word |= static_cast<uint32_t>(static_cast<unsigned char>(text[k])) << (8 * (k - i));
    to.push_back(word);
  }
}

uint32_t Assembler::import(const char* name) {
  const auto [at, is_new] = imports_.try_emplace(name, 0);
  if (is_new) at->second = id();
  return at->second;
}

uint32_t Assembler::shared(Op op, const Words& operands, bool has_type) {
  Words key = operands;
  key.push_back(op);
  const auto [at, is_new] = shared_.try_emplace(std::move(key), 0);
  if (!is_new) return at->second;
  at->second = id();
  Words all;
  if (has_type) all.push_back(operands[0]);
  all.push_back(at->second);
  all.insert(all.end(), operands.begin() + (has_type ? 1 : 0), operands.end());
  put(globals_, op, all);
  return at->second;
}

uint32_t Assembler::new_type(Op op, const Words& operands) {
  Words all = {id()};
  all.insert(all.end(), operands.begin(), operands.end());
  put(globals_, op, all);
  return all[0];
}

uint32_t Assembler::variable(uint32_t pointer_type, StorageClass storage, uint32_t initializer) {
  const uint32_t out = id();
  Words all = {pointer_type, out, storage};
  if (initializer) all.push_back(initializer);
  put(globals_, OpVariable, all);
  return out;
}

void Assembler::name(uint32_t of, std::string_view text) {
  Words all = {of};
  append(all, text);
  put(names_, OpName, all);
}

Words Assembler::finish(uint32_t version, uint32_t addressing, uint32_t memory) const {
  Words out = {0x07230203, version, 0, next_, 0};
  for (const uint32_t one : capabilities_) put(out, OpCapability, {one});
  for (const std::string& one : extensions_) {
    Words text;
    append(text, one);
    put(out, OpExtension, text);
  }
  for (const auto& [name, number] : imports_) {
    Words all = {number};
    append(all, name);
    put(out, OpExtInstImport, all);
  }
  put(out, OpMemoryModel, {addressing, memory});
  for (const Words* part : {&entry_points, &modes, &names_, &annotations, &globals_, &functions})
    out.insert(out.end(), part->begin(), part->end());
  return out;
}

}  // namespace backplane::driver::spirv
