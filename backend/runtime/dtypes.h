// runtime/dtypes.h: the dtypes of the driver interface, BP_DTYPE_*, and torch's.
#pragma once

#include <backplane/driver.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <utility>

namespace backplane {

inline constexpr std::pair<uint64_t, c10::ScalarType> kDriverDtypes[] = {
    {BP_DTYPE_INT8, c10::ScalarType::Char},
    {BP_DTYPE_UINT8, c10::ScalarType::Byte},
    {BP_DTYPE_INT16, c10::ScalarType::Short},
    {BP_DTYPE_INT32, c10::ScalarType::Int},
    {BP_DTYPE_INT64, c10::ScalarType::Long},
    {BP_DTYPE_BOOL, c10::ScalarType::Bool},
    {BP_DTYPE_FLOAT16, c10::ScalarType::Half},
    {BP_DTYPE_BFLOAT16, c10::ScalarType::BFloat16},
    {BP_DTYPE_FLOAT32, c10::ScalarType::Float},
    {BP_DTYPE_FLOAT64, c10::ScalarType::Double},
    {BP_DTYPE_COMPLEX64, c10::ScalarType::ComplexFloat},
    {BP_DTYPE_COMPLEX128, c10::ScalarType::ComplexDouble},
    {BP_DTYPE_FLOAT8_E4M3, c10::ScalarType::Float8_e4m3fn},
    {BP_DTYPE_FLOAT8_E5M2, c10::ScalarType::Float8_e5m2},
};

}  // namespace backplane
