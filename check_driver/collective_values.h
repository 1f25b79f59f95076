// check_driver/collective_values.h: small whole numbers as elements of any dtype, and what a reduction of them is.
#pragma once

#include <cstdint>

#include <backplane/driver/collective.h>

namespace backplane::check {

// Bytes of an element, by the number of its bit.
uint64_t bytes_of_dtype(int dtype);

// "FLOAT32", "SUM".
const char* name_of_dtype(int dtype);
const char* name_of_op(int32_t op);

// What rank puts at element i of an input: such that the reduction of up to 4 ranks is exact in every dtype that `op` may take. AVG is so
// for `size` ranks where that is a power of two.
int64_t reduced_value(int32_t op, int dtype, int32_t size, int32_t rank, uint64_t i);
int64_t reduced_result(int32_t op, int dtype, int32_t size, uint64_t i);

// Writes a value as an element. Of a complex number it is the real part, and the imaginary one where `op` does not multiply.
void encode(int dtype, int32_t op, int64_t value, uint8_t* out);

}  // namespace backplane::check
