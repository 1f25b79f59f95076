// fallback/widening.h: where the CPU has no kernel for a half type, the call is computed in float32 and its results are rounded once, as
// CUDA's kernels of half types do. That the CPU lacks it, only its kernel knows: it says so (torch's NotImplementedError of a dtype), and
// the call is repeated on wider copies. Which dtypes of which operator were lacking is kept, so that it is asked once.
//
// <PREFIX>_WIDEN=0 at import switches it off: the CPU's error comes through.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "fallback/plan.h"

namespace backplane::fallback {

// Redispatches the operator, whose arguments on the stack are the CPU's, to the CPU's kernel; the stack then holds its results. Results and
// written arguments have the dtypes of an operator that had a kernel for the half type. What fails for another reason fails with that
// error, arguments unchanged as far as the CPU's kernel keeps them so.
void run_on_cpu(const c10::OperatorHandle& op, Plan& plan, c10::DispatchKeySet keys, torch::jit::Stack& stack);

// The float32 counterpart of a half type, and back; the dtype itself if it has none.
c10::ScalarType widened(c10::ScalarType dtype);
c10::ScalarType narrowed(c10::ScalarType dtype, c10::ScalarType half);

// One more call of the operator that was computed so, for the account.
void count_widened(const c10::OperatorHandle& op);

}  // namespace backplane::fallback
