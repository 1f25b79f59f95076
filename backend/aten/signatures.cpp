// aten/signatures.cpp: the C++ signatures of operators for which vendors write kernels most often, compiled here once (registration.h).
#include <backplane/signature.h>

namespace backplane::detail {

using at::Scalar;
using at::Tensor;

// Binary with a scalar: add, sub, addcmul-like.
template struct Signature<Tensor(const Tensor&, const Tensor&, const Scalar&)>;
template struct Signature<Tensor&(const Tensor&, const Tensor&, const Scalar&, Tensor&)>;
template struct Signature<Tensor&(Tensor&, const Tensor&, const Scalar&)>;

}  // namespace backplane::detail
