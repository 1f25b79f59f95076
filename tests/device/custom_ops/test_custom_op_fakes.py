"""Fakes of a vendor's operators: how they are registered, replaced and refused, and sizes that depend on data."""

import contextlib
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._library.simple_registry import singleton
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.library import register_fake

pytestmark = pytest.mark.once

NAMESPACE = "bp_test_fakes"


@pytest.fixture
def fake(device):
    """A fake tensor of the device, 2 by 3."""
    return FakeTensorMode().from_tensor(torch.ones(2, 3, device=device))


def doubled_rows(x, *rest):
    return x.new_empty(2 * x.shape[0], *x.shape[1:])


def real(x: Tensor) -> Tensor:
    return torch.cat([x, x])


REGISTER = {
    "a method of the object": lambda ops: ops.custom("f", real).register_fake(doubled_rows),
    "the object": lambda ops: register_fake(ops.custom("f", real), doubled_rows),
    "a name": lambda ops: register_fake(defined(ops).name(), doubled_rows, lib=ops.library),
    "a decorator": lambda ops: register_fake(defined(ops).name(), lib=ops.library)(doubled_rows),
    "an overload": lambda ops: register_fake(defined(ops), doubled_rows, lib=ops.library),
    "the library": lambda ops: defined(ops) and ops.library._register_fake("f", doubled_rows),
}


def defined(ops):
    return ops.define("f(Tensor x) -> Tensor", PrivateUse1=real)


@pytest.mark.parametrize("form", REGISTER)
def test_C36_C38_every_form_of_registration_is_used_also_for_meta_tensors(ops, device, fake, form):
    REGISTER[form](ops)
    for x in (fake, torch.ones(2, 3, device="meta")):
        result = ops.f(x)
        assert (result.shape, result.device, result.dtype) == ((4, 3), x.device, x.dtype)


def test_C36_a_named_overload_has_a_separate_fake(ops, device, fake):
    ops.define("f(Tensor x) -> Tensor", PrivateUse1=real)
    ops.define("f.more(Tensor x, int n) -> Tensor", PrivateUse1=real)
    register_fake(f"{NAMESPACE}::f", torch.empty_like, lib=ops.library)
    register_fake(f"{NAMESPACE}::f.more", doubled_rows, lib=ops.library)
    assert ops.f(fake).shape == (2, 3)
    assert ops.f(fake, 1).shape == (4, 3)


def test_C39_the_place_of_a_fake_is_recorded(ops):
    REGISTER["a name"](ops)
    source, _, line = singleton.find(f"{NAMESPACE}::f").fake_impl.kernel.source.rpartition(":")
    assert source == __file__
    assert "register_fake(defined" in Path(__file__).read_text().splitlines()[int(line) - 1]


def test_C39_C40_a_custom_ops_fake_has_torchs_place_and_is_always_replaced(ops, fake):
    REGISTER["the object"](ops)
    source = singleton.find(f"{NAMESPACE}::f").fake_impl.kernel.source
    assert source.rpartition(":")[0] == torch._library.custom_ops.__file__
    register_fake(f"{NAMESPACE}::f", torch.empty_like, allow_override=False)
    assert ops.f(fake).shape == (2, 3)


@pytest.mark.parametrize(
    ("kernels", "error", "shapes"),
    [
        ({}, rf"already has an? fake impl registered at {__file__}:\d+", [(4, 3), (9,)]),
        ({"Meta": lambda x: x.new_empty(7)}, r"already has an? DispatchKey::Meta implementation", [(7,), (9,)]),
        ({"CompositeImplicitAutograd": real}, "CompositeImplicitAutograd", [(4, 3), (4, 3)]),  # its parts have fakes
        ({"CompositeExplicitAutograd": real}, None, [(9,), (9,)]),
    ],
    ids=["another fake", "meta", "implicit", "explicit"],
)
def test_C40_C41_a_second_fake_replaces_the_first_unless_overriding_is_off(ops, fake, kernels, error, shapes):
    """One for an operator with an implicit kernel is always refused, with an explicit one always used."""
    if kernels:
        ops.define("f(Tensor x) -> Tensor", **kernels)
    else:
        REGISTER["a name"](ops)
    for allow, shape in zip((False, True), shapes, strict=True):
        refused = error and (not allow or "CompositeImplicitAutograd" in kernels)
        with pytest.raises(RuntimeError, match=error) if refused else contextlib.nullcontext():
            register_fake(f"{NAMESPACE}::f", lambda x: x.new_empty(9), lib=ops.library, allow_override=allow)
        assert ops.f(fake).shape == shape


@pytest.fixture
def counted(ops, device):
    """``counted(**bounds)``: an operator like nonzero; its fake makes a size with those bounds."""

    def make(**bounds):
        def nonzero(x: Tensor) -> Tensor:
            return x.nonzero()

        op = ops.custom("counted", nonzero, device_types=device.type)

        @op.register_fake
        def _(x):
            return x.new_empty((torch.library.get_ctx().new_dynamic_size(**bounds), x.dim()), dtype=torch.int64)

        return op

    return make


@pytest.fixture
def sized(device):
    """A fake tensor of a mode with a shape environment."""
    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(2, 3, device=device), static_shapes=True)


def test_C42_a_fake_makes_a_size_within_its_bounds(counted, sized):
    rows, columns = counted(min=3, max=5)(sized).shape
    assert isinstance(rows, torch.SymInt)
    assert columns == 2
    bounds = sized.fake_mode.shape_env.bound_sympy(rows.node.expr)
    assert (int(bounds.lower), int(bounds.upper)) == (3, 5)


def test_C42_wrong_bounds_are_refused(counted, sized):
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        counted(min=-1)(sized)
    with pytest.raises(ValueError, match="statically known ints but got SymInt"):
        counted(max=sized.fake_mode.shape_env.create_unbacked_symint())(sized)
    assert torch.library.get_ctx() is None  # outside of a fake


def test_C43_a_size_that_depends_on_data_needs_a_shape_environment(counted, fake, sized, device):
    op = counted()
    result = op(sized)
    assert result.device == device
    assert isinstance(result.shape[0], torch.SymInt)
    with pytest.raises(DynamicOutputShapeException, match="counted"):
        op(fake)
    assert op(torch.ones(2, 3, device=device)).shape == (6, 2)
    with pytest.raises(RuntimeError, match="data-dependent shapes but FakeTensors do"):
        op(torch.ones(2, 3, device="meta"))


@pytest.mark.parametrize("use", ["fake", "meta", "make_fx", "compile"])
def test_C48_a_missing_fake_names_the_call_to_add(ops, device, fake, use):
    from torch.fx.experimental.proxy_tensor import make_fx

    op = ops.custom("real", real, device_types=device.type)
    x = torch.ones(2, 3, device=device)
    calls = {
        "fake": lambda: op(fake),
        "meta": lambda: op(x.to("meta")),
        "make_fx": lambda: make_fx(op, tracing_mode="fake")(x),
        "compile": lambda: torch.compile(op, backend="aot_eager", fullgraph=True)(x),
    }
    with pytest.raises(RuntimeError, match=r"Please use `real\.register_fake` to add an fake impl"):
        calls[use]()
    assert torch.equal(op(x), torch.cat([x, x]))
