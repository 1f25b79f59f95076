"""Libraries that hold a vendor's operators: how long registrations last, kernels for existing operators, and tags."""

import gc

import pytest
import torch
from own_operators import Operators
from torch import Tensor
from torch._library import custom_ops
from torch._library.simple_registry import singleton

NAMESPACE = "bp_test_libraries"


@pytest.fixture
def x(device):
    return torch.arange(-2.0, 2, device=device)


def test_C67_a_kernel_for_an_existing_operator_is_attached_and_removed(x):
    calls = []

    def erfinv(self):
        calls.append(self.device.type)
        return self + 100

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("erfinv", erfinv, "PrivateUse1")
        assert torch.erfinv(x).tolist() == [98, 99, 100, 101]
        assert x.erfinv().tolist() == [98, 99, 100, 101]
        assert torch.erfinv(torch.zeros(2)).tolist() == [0, 0]  # the CPU's stays
    assert calls == [x.device.type] * 2
    assert torch.erfinv(x * 0).tolist() == [0] * 4
    assert len(calls) == 2


def test_C67_gradients_of_the_operator_stay_torchs(x):
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("abs", lambda self: self + 100, "PrivateUse1")
        leaf = x.clone().requires_grad_()
        y = leaf.abs()
        y.sum().backward()
    assert (y.detach() - x).tolist() == [100] * 4
    assert leaf.grad.tolist() == [-1, -1, 0, 1]


def test_C67_a_kernel_for_an_operator_of_a_library(x, backend_package):
    with Operators(NAMESPACE) as ops:
        ops.define("f(Tensor x) -> Tensor", CPU=lambda x: x + 1)
        with torch.library._scoped_library(NAMESPACE, "IMPL") as library:
            library.impl("f", lambda x: x + 2, "PrivateUse1")
            assert ops.f(x).tolist() == [0, 1, 2, 3]
            assert ops.f(x.cpu()).tolist() == [-1, 0, 1, 2]


def test_C77_leaving_a_scoped_library_frees_operators_fakes_and_names(x):
    namespace = getattr(torch.ops, NAMESPACE)
    for added in (1, 2):  # the name can be used again
        with torch.library._scoped_library(NAMESPACE, "DEF") as library:
            library.define("f(Tensor x) -> Tensor")
            library.impl("f", lambda x, added=added: x + added, "PrivateUse1")
            torch.library.register_fake(f"{NAMESPACE}::f", torch.empty_like, lib=library)
            assert torch.equal(namespace.f(x), x + added)
            assert singleton.find(f"{NAMESPACE}::f").fake_impl.kernel is not None
        assert not hasattr(namespace, "f")
        assert singleton.find(f"{NAMESPACE}::f").fake_impl.kernel is None
        assert f"{NAMESPACE}::f" not in torch._C._dispatch_get_all_op_names()


def test_C77_a_library_without_a_reference_is_destroyed(x):
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("f(Tensor x) -> Tensor")
    assert hasattr(getattr(torch.ops, NAMESPACE), "f")
    del library
    gc.collect()
    assert not hasattr(getattr(torch.ops, NAMESPACE), "f")


def test_C77_a_kernel_is_removed_and_the_operator_stays(x):
    with Operators(NAMESPACE) as ops:
        ops.define("f(Tensor x) -> Tensor", CompositeExplicitAutograd=lambda x: x + 1)
        with torch.library._scoped_library(NAMESPACE, "IMPL") as library:
            library.impl("f", lambda x: x + 5, "PrivateUse1")
            assert torch.equal(ops.f(x), x + 5)
        assert torch.equal(ops.f(x), x + 1)


def test_C78_registrations_without_a_library_last_for_the_process(x):
    """The only namespace of these tests that stays."""
    namespace = "bp_test_lasting"
    if f"{namespace}::f" not in torch._C._dispatch_get_all_op_names():
        torch.library.define(f"{namespace}::f", "(Tensor x) -> Tensor")
        torch.library.impl(f"{namespace}::f", x.device.type, lambda x: x + 1)
        torch.library.register_fake(f"{namespace}::f", torch.empty_like)
    gc.collect()
    assert torch.equal(torch.ops.bp_test_lasting.f(x), x + 1)
    assert torch.ops.bp_test_lasting.f(x.to("meta")).shape == x.shape


def test_C78_a_custom_op_lasts_without_its_object(x, device):
    def f(x: Tensor) -> Tensor:
        return x + 1

    torch.library.custom_op("bp_test_lasting::custom", f, mutates_args=(), device_types=device.type)
    gc.collect()
    try:
        assert torch.equal(torch.ops.bp_test_lasting.custom(x), x + 1)
    finally:
        custom_ops.OPDEF_TO_LIB.pop("bp_test_lasting::custom")._destroy()
        del custom_ops.OPDEFS["bp_test_lasting::custom"]


@pytest.mark.once
@pytest.mark.parametrize("form", [lambda tag: tag, lambda tag: (tag,), lambda tag: [tag, torch.Tag.core]])
def test_C79_tags_are_given_and_read(backend_package, form):
    tags = form(torch.Tag.pointwise)
    given = [tags] if isinstance(tags, torch.Tag) else list(tags)
    with Operators(NAMESPACE) as ops:
        assert ops.define("defined(Tensor x) -> Tensor", tags=tags).tags == given
        torch.library.define(f"{NAMESPACE}::named", "(Tensor x) -> Tensor", lib=ops.library, tags=tags)
        assert ops.named.default.tags == given
        custom = ops.custom("custom", torch.clone, schema="(Tensor x) -> Tensor", tags=tags)
        assert set(custom._opoverload.tags) == {*given, torch.Tag.pt2_compliant_tag}


@pytest.mark.once
def test_C79_torchs_operators_carry_the_compliant_tag(backend_package):
    aten = torch.ops.aten
    for op in (aten.sin.default, aten.add.Tensor, aten.add.out, aten.linear.default, aten.native_dropout.default):
        assert torch.Tag.pt2_compliant_tag in op.tags, op
