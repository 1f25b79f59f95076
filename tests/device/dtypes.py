"""``dtypes("float32 int64")``: torch's dtypes by their names; and those that several tests have in common."""

import torch


def dtypes(names):
    return [getattr(torch, name) for name in names.split()]


FLOATS = dtypes("float32 float64 float16 bfloat16")
INTEGERS = dtypes("int8 uint8 int16 int32 int64")
COMMON = [*FLOATS, *INTEGERS, *dtypes("bool complex64 complex128")]
EVERY = [*COMMON, *dtypes("complex32 uint16 uint32 uint64 float8_e4m3fn float8_e5m2")]
