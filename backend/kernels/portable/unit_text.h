// kernels/portable/unit_text.h: a unit's definitions, line by line.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "kernels/portable/text.h"
#include "modules/unit.h"

namespace backplane::portable {

class UnitText {
 public:
  UnitText(std::string name, const char* file, const char* kernel);

  template <typename... Parts>
  UnitText& define(const Part& word, const Parts&... meaning) {
    portable::define(source_.definitions, word, meaning...);
    return *this;
  }
  // T<suffix>, LOAD<suffix>(p, i) and STORE<suffix>(p, i, x) of a dtype, which the unit's name then tells.
  UnitText& element(const Part& suffix, c10::ScalarType dtype);
  // C, the type to compute in, with math.bpc and compute.bpc.
  UnitText& compute_in(c10::ScalarType dtype);
  UnitText& file(const char* name);  // in front of the kernel's, once

  // words: of the struct, 8 bytes each. written: bit k: the kernel writes through pointer k.
  KernelSource source(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written);

 private:
  KernelSource source_;
  const char* const file_;
};

}  // namespace backplane::portable
