// kernels/portable/unit/dialect.cpp: the table of dtypes.
#include "kernels/portable/unit/dialect.h"

#include <c10/util/Exception.h>

namespace backplane::portable {
namespace dialect_impl {
namespace {

struct Words {
  Literal name, memory, compute;
};

Words words_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kByte:
      return {"u8", "u8", "i32"};
    case c10::kChar:
      return {"i8", "i8", "i32"};
    case c10::kShort:
      return {"i16", "i16", "i32"};
    case c10::kInt:
      return {"i32", "i32", "i32"};
    case c10::kLong:
      return {"i64", "i64", "i64"};
    case c10::ScalarType::UInt64:  // only for numbers of a generator
      return {Literal(), "u64", Literal()};
    case c10::kHalf:
      return {"f16", "u16", "f32"};
    case c10::kBFloat16:
      return {"bf16", "u16", "f32"};
    case c10::kFloat:
      return {"f32", "f32", "f32"};
    case c10::kDouble:
      return {"f64", "f64", "f64"};
    case c10::ScalarType::Float8_e4m3fn:
      return {"f8e4m3", "u8", "f32"};
    case c10::ScalarType::Float8_e5m2:
      return {"f8e5m2", "u8", "f32"};
    case c10::ScalarType::Float8_e4m3fnuz:
      return {"f8e4m3fnuz", "u8", "f32"};
    case c10::ScalarType::Float8_e5m2fnuz:
      return {"f8e5m2fnuz", "u8", "f32"};
    case c10::ScalarType::Float8_e8m0fnu:
      return {"f8e8m0", "u8", "f32"};
    case c10::kComplexFloat:
      return {"c64", "c64", "c64"};
    case c10::kBool:
      return {"bool", "u8", "i32"};
    default:
      return {Literal(), Literal(), Literal()};
  }
}

}  // namespace
}  // namespace dialect_impl

Literal dialect_name(c10::ScalarType dtype) { return dialect_impl::words_of(dtype).name; }
Literal memory_type(c10::ScalarType dtype) { return dialect_impl::words_of(dtype).memory; }
Literal compute_type(c10::ScalarType dtype) { return dialect_impl::words_of(dtype).compute; }

}  // namespace backplane::portable
