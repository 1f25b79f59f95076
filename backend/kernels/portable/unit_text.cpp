// kernels/portable/unit_text.cpp: writes the definitions in front of a unit's files.
#include "kernels/portable/unit_text.h"

#include <cstring>

#include "kernels/portable/dialect.h"
#include "kernels/portable/text.h"

namespace backplane::portable {

UnitText::UnitText(std::string name, const char* file, const char* kernel) : file_(file) {
  source_.name = std::move(name);
  source_.kernel = kernel;
}

UnitText& UnitText::element(const Part& suffix, c10::ScalarType dtype) {
  const char* const word = dialect_name(dtype);
  append(source_.name, "[", word, "]");
  if (c10::isReducedFloatingType(dtype)) file("math.bpc");
  return define(join("T", suffix), memory_type(dtype))
      .define(join("LOAD", suffix, "(p, i)"), "bp_load_", word, "(p, i)")
      .define(join("STORE", suffix, "(p, i, x)"), "bp_store_", word, "(p, i, x)");
}

UnitText& UnitText::compute_in(c10::ScalarType dtype) {
  const char* const compute = compute_type(dtype);
  define("C", compute).define(join("C_IS_", compute), 1).define(join("K_", dialect_name(dtype)), 1);
  define("K_BITS", c10::elementSize(dtype) * 8);
  return file("math.bpc").file("compute.bpc");
}

UnitText& UnitText::file(const char* name) {
  for (const char* other : source_.files) {
    if (std::strcmp(other, name) == 0) return *this;
  }
  source_.files.push_back(name);
  return *this;
}

KernelSource UnitText::source(uint32_t per_item, uint32_t pointers, uint32_t words, uint64_t written) {
  source_.files.push_back(file_);
  source_.per_item = per_item;
  source_.signature.struct_size = sizeof source_.signature;
  source_.signature.pointers = pointers;
  source_.signature.value_bytes = 8 * words;
  source_.signature.written = written;
  return source_;
}

}  // namespace backplane::portable
