// torch/c10d_only/ATen/ATen.h: what c10d's headers use of torch's <ATen/ATen.h>, which they include: in front of torch's in the include
// path of backend/distributed, it is found in its place, and spares two thirds of their compilation. Unnecessary once they include what
// they use.
#pragma once

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
