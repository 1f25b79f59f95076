// dispatch/signatures.cpp: the C++ signatures of operators that vendors most often implement, compiled here once (registration.h).
#include <backplane/signature.h>

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>

#include <array>
#include <tuple>

namespace backplane::detail {

using at::Generator;
using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::Tensor;
using at::TensorList;
using c10::ScalarType;
using c10::string_view;
using std::optional;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;

// The functional, out= and in-place forms of an operator with these arguments.
#define BACKPLANE_SIGNATURES(First, ...)                               \
  template struct Signature<Tensor(First __VA_OPT__(, ) __VA_ARGS__)>; \
  template struct Signature<Tensor&(First __VA_OPT__(, ) __VA_ARGS__, Tensor&)>

// Elementwise: unary, binary, ternary; with a scalar: add, sub, threshold_backward; eq.Scalar, pow.Tensor_Scalar.
BACKPLANE_SIGNATURES(const Tensor&);
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&);
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, const Tensor&);
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, const Scalar&);
BACKPLANE_SIGNATURES(const Tensor&, const Scalar&);
template struct Signature<Tensor&(Tensor&)>;
template struct Signature<Tensor&(Tensor&, const Tensor&)>;
template struct Signature<Tensor&(Tensor&, const Tensor&, const Scalar&)>;
template struct Signature<Tensor&(Tensor&, const Scalar&)>;

// With a mode: gelu and its gradient; div.
BACKPLANE_SIGNATURES(const Tensor&, string_view);
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, string_view);
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, optional<string_view>);
template struct Signature<Tensor&(Tensor&, string_view)>;
template struct Signature<Tensor&(Tensor&, const Tensor&, optional<string_view>)>;

// Reductions: sum, mean; amax; any, all; argmax.
BACKPLANE_SIGNATURES(const Tensor&, OptionalIntArrayRef, bool, optional<ScalarType>);
BACKPLANE_SIGNATURES(const Tensor&, IntArrayRef, bool);
BACKPLANE_SIGNATURES(const Tensor&, int64_t, bool);
BACKPLANE_SIGNATURES(const Tensor&, optional<int64_t>, bool);

// Products: addmm, addmv, baddbmm. softmax's gradients. Norms.
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&);
template struct Signature<Tensor&(Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&)>;
BACKPLANE_SIGNATURES(const Tensor&, const Tensor&, int64_t, ScalarType);
template struct Signature<Tensors3(const Tensor&, IntArrayRef, const optional<Tensor>&, const optional<Tensor>&, double)>;
template struct Signature<Tensors3(const Tensor&, const Tensor&, IntArrayRef, const Tensor&, const Tensor&, const optional<Tensor>&,
                                   const optional<Tensor>&, std::array<bool, 3>)>;

// Indexing: index_select, gather, scatter_add, index_add, embedding_dense_backward; cat.
template struct Signature<Tensor(const Tensor&, int64_t, const Tensor&)>;
BACKPLANE_SIGNATURES(const Tensor&, int64_t, const Tensor&, bool);
BACKPLANE_SIGNATURES(const Tensor&, int64_t, const Tensor&, const Tensor&);
template struct Signature<Tensor&(Tensor&, int64_t, const Tensor&, const Tensor&)>;
BACKPLANE_SIGNATURES(const Tensor&, int64_t, const Tensor&, const Tensor&, const Scalar&);
template struct Signature<Tensor&(Tensor&, int64_t, const Tensor&, const Tensor&, const Scalar&)>;
template struct Signature<Tensor(const Tensor&, const Tensor&, int64_t, int64_t, bool)>;
BACKPLANE_SIGNATURES(const at::ITensorListRef&, int64_t);

// Random numbers: uniform_ and normal_, bernoulli_, native_dropout and its gradient, randperm.
template struct Signature<Tensor&(Tensor&, double, double, optional<Generator>)>;
template struct Signature<Tensor&(Tensor&, double, optional<Generator>)>;
template struct Signature<std::tuple<Tensor, Tensor>(const Tensor&, double, optional<bool>)>;
template struct Signature<Tensor(const Tensor&, const Tensor&, double)>;
template struct Signature<Tensor&(int64_t, optional<Generator>, Tensor&)>;

// Fused optimizers: _fused_adam_, _fused_adamw_.
template struct Signature<void(TensorList, TensorList, TensorList, TensorList, TensorList, TensorList, double, double, double, double,
                               double, bool, bool, const optional<Tensor>&, const optional<Tensor>&)>;

#undef BACKPLANE_SIGNATURES

}  // namespace backplane::detail
