// check_driver/collective_values.cpp: numbers that every dtype holds exactly.
#include "collective_values.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace backplane::check {
namespace collective_values_impl {

enum class Form { integer, boolean, floating, complex };
struct Dtype {
  const char* name;
  uint8_t bytes;
  Form form;
  bool is_signed;
  uint8_t exponent, fraction;  // bits of a floating number, or of a complex one's parts
};
constexpr Dtype dtypes[] = {{"INT8", 1, Form::integer, true, 0, 0},         {"UINT8", 1, Form::integer, false, 0, 0},
                            {"INT16", 2, Form::integer, true, 0, 0},        {"INT32", 4, Form::integer, true, 0, 0},
                            {"INT64", 8, Form::integer, true, 0, 0},        {"BOOL", 1, Form::boolean, false, 0, 0},
                            {"FLOAT16", 2, Form::floating, true, 5, 10},    {"BFLOAT16", 2, Form::floating, true, 8, 7},
                            {"FLOAT32", 4, Form::floating, true, 8, 23},    {"FLOAT64", 8, Form::floating, true, 11, 52},
                            {"COMPLEX64", 8, Form::complex, true, 8, 23},   {"COMPLEX128", 16, Form::complex, true, 11, 52},
                            {"FLOAT8_E4M3", 1, Form::floating, true, 4, 3}, {"FLOAT8_E5M2", 1, Form::floating, true, 5, 2}};

int64_t combine(int32_t op, bool is_bool, int64_t a, int64_t b) {
  if (is_bool && (op == BP_REDUCE_SUM || op == BP_REDUCE_MAX)) return a | b;
  if (is_bool && (op == BP_REDUCE_PRODUCT || op == BP_REDUCE_MIN)) return a & b;
  switch (op) {
    case BP_REDUCE_PRODUCT:
      return a * b;
    case BP_REDUCE_MIN:
      return std::min(a, b);
    case BP_REDUCE_MAX:
      return std::max(a, b);
    case BP_REDUCE_BAND:
      return a & b;
    case BP_REDUCE_BOR:
      return a | b;
    case BP_REDUCE_BXOR:
      return a ^ b;
    default:
      return a + b;
  }
}

// A whole number as a floating one's bits.
uint64_t floating(const Dtype& d, int64_t value) {
  if (value == 0) return 0;
  const uint64_t magnitude = static_cast<uint64_t>(std::llabs(value));
  uint32_t top = 0;
  while (magnitude >> (top + 1)) ++top;
  const uint64_t bias = (uint64_t{1} << (d.exponent - 1)) - 1;
  const uint64_t fraction = d.fraction >= top ? (magnitude << (d.fraction - top)) : magnitude >> (top - d.fraction);
  const uint64_t bits = ((top + bias) << d.fraction) | (fraction & ((uint64_t{1} << d.fraction) - 1));
  return value < 0 ? bits | uint64_t{1} << (d.exponent + d.fraction) : bits;
}

}  // namespace collective_values_impl

using namespace collective_values_impl;

uint64_t bytes_of_dtype(int dtype) { return dtypes[dtype].bytes; }
const char* name_of_dtype(int dtype) { return dtypes[dtype].name; }
const char* name_of_op(int32_t op) {
  static constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return names[op];
}

int64_t reduced_value(int32_t op, int dtype, int32_t size, int32_t rank, uint64_t i) {
  const Dtype& d = dtypes[dtype];
  const int64_t at = static_cast<int64_t>(i % 1000) + rank;
  if (d.form == Form::boolean) return (at * 5 / 3) % 2;
  switch (op) {
    case BP_REDUCE_SUM:
      return at % 3;
    case BP_REDUCE_AVG:
      return at % 3 * size;
    case BP_REDUCE_PRODUCT:
      return 1 + at % 2;
    case BP_REDUCE_MIN:
    case BP_REDUCE_MAX:
      return (at + 4 * rank) % 7 - (d.is_signed ? 3 : 0);
    default:
      return (at + 2 * rank) % 8;
  }
}

int64_t reduced_result(int32_t op, int dtype, int32_t size, uint64_t i) {
  int64_t all = reduced_value(op, dtype, size, 0, i);
  for (int32_t rank = 1; rank < size; ++rank) {
    all = combine(op, dtypes[dtype].form == Form::boolean, all, reduced_value(op, dtype, size, rank, i));
  }
  return op == BP_REDUCE_AVG ? all / size : all;
}

void encode(int dtype, int32_t op, int64_t value, uint8_t* out) {
  const Dtype& d = dtypes[dtype];
  if (d.form == Form::complex) {
    const uint64_t part = floating(d, value), half = d.bytes / 2;
    memset(out, 0, d.bytes);
    memcpy(out, &part, half);
    if (op != BP_REDUCE_PRODUCT) memcpy(out + half, &part, half);
    return;
  }
  const uint64_t bits = d.form == Form::floating ? floating(d, value) : static_cast<uint64_t>(value);
  memcpy(out, &bits, d.bytes);
}

}  // namespace backplane::check
