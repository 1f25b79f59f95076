// tests/device/cpp/bad_ops.cpp: operators that cannot be registered, one reason a line.
#include <backplane/autograd.h>

namespace {
at::Tensor one(const at::Tensor& x) { return x; }
at::Tensor two(const at::Tensor& x, const at::Tensor&) { return x; }
}  // namespace

BACKPLANE_LIBRARY(bpbad, m) { m.def("broken(Tensor x -> Tensor"); }

BACKPLANE_LIBRARY(bpbad, m) { m.def("first(Tensor x) -> Tensor").kernel(&one); }

BACKPLANE_LIBRARY(bpbad, m) { m.def("first(Tensor x) -> Tensor"); }

BACKPLANE_KERNELS(bpbad, m) { m.impl("first", &one); }

BACKPLANE_LIBRARY(bpbad, m) { m.def("second(Tensor x) -> Tensor").kernel(&two); }

BACKPLANE_KERNELS(bpbad, m) { m.impl("nobody_defines", &one); }

BACKPLANE_IMPL(bpbad, PrivateUse7, m) { m.impl("first", &one); }

BACKPLANE_LIBRARY(bpbad, m) {
  m.python_module("no_such_module");
  m.def("third(Tensor x) -> Tensor").backward("no_backward");
}

BACKPLANE_KERNELS(bpbad, m) {
  m.python_module("math");
  m.impl("left_out", &one);
}

BACKPLANE_LIBRARY(bpbad, m) {
  m.def("fourth(Tensor x, Tensor y) -> Tensor").backward("fourth_backward");
  m.def("fourth_backward(Tensor grad, Tensor z) -> Tensor");
}

BACKPLANE_LIBRARY(bpbad, m) {
  m.def("fifth(Tensor x, Tensor y) -> Tensor").backward("fifth_backward");
  m.def("fifth_backward(Tensor grad, Tensor y) -> Tensor");
}

BACKPLANE_LIBRARY(bpbad, m) {
  m.def("sixth(Tensor(a!) x) -> ()").backward("sixth_backward");
  m.def("sixth_backward(Tensor grad) -> Tensor");
}

BACKPLANE_LIBRARY(bpbad, m) {
  m.def("seventh(Tensor[] x) -> Tensor").backward("seventh_backward");
  m.def("seventh_backward(Tensor grad, Tensor[] x) -> Tensor");
}

BACKPLANE_KERNELS(bpbad, m) { m.impl("python_defines", &one); }
