// fallback/widening.h: if the CPU has no kernel for a half type, the call is computed in float32 and its results are rounded once, as
// CUDA's kernels of half types do. Only the CPU's kernel knows that it does not support the dtype: it raises torch's NotImplementedError of
// a dtype, and the call is repeated on wider copies. The unsupported dtypes of each operator are cached, so that this happens once.
//
// <PREFIX>_WIDEN=0 at import disables it: the CPU's error is raised.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "fallback/plan.h"

namespace backplane::fallback {

// Redispatches the operator, whose arguments on the stack are the CPU's, to the CPU's kernel; the stack then has its results. Results and
// written arguments have the dtypes of an operator that supports the half type. Other failures raise their own error, with the arguments
// unchanged as far as the CPU's kernel leaves them so.
void run_on_cpu(const c10::OperatorHandle& op, Plan& plan, c10::DispatchKeySet keys, torch::jit::Stack& stack);

// The float32 counterpart of a half type, and the reverse; the dtype itself if it has none.
c10::ScalarType widened(c10::ScalarType dtype);
c10::ScalarType narrowed(c10::ScalarType dtype, c10::ScalarType half);

// Counts a call of the operator that was computed in float32.
void count_widened(const c10::OperatorHandle& op);

}  // namespace backplane::fallback
