// kernels/portable/nn/attention_unit.h: what the units of attention.bpc share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/portable/unit/unit.h"
#include "modules/launch.h"
#include "modules/target.h"

namespace backplane::portable {

// What a group computes at a time: queries of one request, heads that share a head of the keys, keys.
struct AttentionTile {
  int64_t queries, heads, rows, step, keys, pitch;
  bool is_across;

  // sharing: heads of the queries for each head of the keys; size: of a head; longest: the most queries of a request. None if a head is
  // too large for the target's local memory.
  static std::optional<AttentionTile> of(const Target& target, int64_t sharing, int64_t size, int64_t longest);
  void define(Unit& unit, int64_t size) const;
};

// The elements of a head with padding to two vectors, where an item is a core.
int64_t host_pitch(const Target& target, int64_t size);

// Adds parameters, with the definitions of their elements.
class AttentionOperands {
 public:
  AttentionOperands(Unit& unit, Arguments& arguments) : unit_(unit), arguments_(arguments) {}

  void read(const at::Tensor& tensor, Literal name, Literal word, Literal place) {
    unit_.read(name, tensor.scalar_type()).load(word, tensor.scalar_type(), place);
    arguments_.read(tensor);
  }
  void write(const at::Tensor& tensor, Literal name, Literal word, Literal to) {
    unit_.write(name, tensor.scalar_type()).store(word, tensor.scalar_type(), to);
    arguments_.write(tensor);
  }

 protected:
  Unit& unit_;
  Arguments& arguments_;
};

}  // namespace backplane::portable
