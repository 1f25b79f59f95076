"""Operators as Python objects, torch.ops, on the device (B03-B05, B07, B08, B10-B12)."""

import copy
import pickle
import sys

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet

from torch_backplane.ops import Library

NS = "bp_test_objects"
OPS = getattr(torch.ops, NS)

pytestmark = pytest.mark.once
ADD = torch.ops.aten.add


@pytest.fixture
def library():
    with Library(NS, "FRAGMENT") as made:
        yield made


MODULE = f"""
import torch
library = torch.library.Library("{NS}_module", "DEF")
library.define("imported(Tensor x) -> Tensor")
library.impl("imported", lambda x: x + 3, "PrivateUse1")
"""


def test_B03_a_module_is_imported_for_its_registrations(x, tmp_path, monkeypatch):
    (tmp_path / "bp_module_of_operators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    operators = getattr(torch.ops, f"{NS}_module")
    assert not hasattr(operators, "imported")
    torch.ops.import_module("bp_module_of_operators")
    try:
        assert torch.equal(operators.imported(x), x + 3)
    finally:
        sys.modules.pop("bp_module_of_operators").library._destroy()
    assert not hasattr(operators, "imported")
    with pytest.raises(ModuleNotFoundError, match="bp_no_such_module"):
        torch.ops.import_module("bp_no_such_module")


def test_B04_names_resolve_lazily_and_are_kept(library):
    library.define("lazy(Tensor x) -> Tensor")
    assert "lazy" not in list(OPS)
    first = OPS.lazy
    assert OPS.lazy is first
    assert "lazy" in list(OPS)
    assert NS in list(torch.ops)
    with pytest.raises(AttributeError, match=f"'{NS}' object has no attribute 'nothing'"):
        OPS.nothing  # noqa: B018
    assert getattr(OPS, "nothing", None) is None
    with pytest.raises(AttributeError, match="no overload name 'nothing'"):
        first.nothing  # noqa: B018
    assert getattr(torch.ops, f"{NS}_of_nobody").__name__ == f"torch.ops.{NS}_of_nobody"  # a namespace may still come


def test_B05_a_packet_lists_its_overloads_and_picks_the_one_that_matches(x):
    assert set(torch.ops.aten.sum.overloads()) >= {"default", "dim_IntList", "IntList_out"}
    assert torch.ops.aten.sum.default._schema.overload_name == ""
    square = torch.ones(2, 3, device=x.device)
    assert torch._C._jit_resolve_packet("aten::sum", square) == "default"
    assert torch._C._jit_resolve_packet("aten::sum", square, dim=1) == "dim_IntList"
    assert torch.ops.aten.sum(square).cpu().tolist() == 6.0
    assert torch.ops.aten.sum(square, dim=1).cpu().tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match=r"(?s)failed to match any schema.*aten::sum\.dim_IntList\("):
        torch.ops.aten.sum("no tensor")


def test_B07_overload_objects_are_unique(library):
    library.define("unique(Tensor x) -> Tensor")
    library.define("unique.other(Tensor x, int y) -> Tensor")
    op = OPS.unique.default
    assert copy.deepcopy(op) is op is OPS.unique.default
    assert copy.deepcopy(OPS.unique) is OPS.unique
    assert len({op, OPS.unique.default, OPS.unique.other}) == 2
    assert op != OPS.unique.other
    again = pickle.loads(pickle.dumps(torch.fx.symbolic_trace(lambda x: torch.ops.aten.sin.default(x))))
    assert [node.target for node in again.graph.nodes if node.op == "call_function"] == [torch.ops.aten.sin.default]


def test_B08_every_argument_can_be_a_keyword(x, library):
    gelu = torch.ops.aten.gelu.default
    assert torch.equal(ADD.Tensor(self=x, other=x, alpha=2), x * 3)
    assert torch.equal(ADD(self=x, other=x), x * 2)
    assert torch.equal(gelu(self=x, approximate="tanh"), gelu(x, approximate="tanh"))
    keys = DispatchKeySet(DispatchKey.PrivateUse1)
    assert torch.equal(ADD.Tensor.redispatch(keys, self=x, other=x), x * 2)
    library.define("odd(Tensor self, Tensor args, *, Tensor kwargs) -> Tensor")
    library.impl("odd", lambda self, args, *, kwargs: self + args + kwargs, "PrivateUse1")
    torch.testing.assert_close(OPS.odd(self=x, args=x, kwargs=x), x * 3)
    torch.testing.assert_close(OPS.odd.default(kwargs=x, args=x, self=x), x * 3)


def test_B10_overloads_tell_what_they_are(library):
    schema = "described.some(Tensor(a!) x, *, float y=2.5) -> Tensor(a!)"
    library.define(schema, tags=torch.Tag.nondeterministic_bitwise)
    op = OPS.described.some
    assert op._defined_in_python
    assert op.namespace == NS
    assert op.name() == f"{NS}::described.some"
    assert str(op) == f"{NS}.described.some"
    assert op.overloadpacket is OPS.described
    assert op.tags == [torch.Tag.nondeterministic_bitwise]
    assert str(op._schema) == f"{NS}::{schema}"
    assert op._schema.is_mutable
    assert not op.is_view
    assert not ADD.Tensor._defined_in_python
    assert {torch.Tag.core, torch.Tag.pointwise} <= set(ADD.Tensor.tags)
    assert torch.ops.aten.view.default.is_view


@pytest.mark.kernels
def test_B11_redispatching_reaches_the_devices_kernel(library, x):
    library.define("leveled(Tensor x) -> Tensor")
    library.impl("leveled", lambda x: x + 1, "PrivateUse1")
    library.impl("leveled", lambda x: x + 50, "AutogradPrivateUse1")
    op = OPS.leveled.default
    leaf = x.clone().requires_grad_()
    assert torch.equal(op(leaf), leaf + 50)
    assert torch.equal(op.redispatch(DispatchKeySet(DispatchKey.PrivateUse1), leaf), leaf + 1)
    both = DispatchKeySet(DispatchKey.PrivateUse1) | DispatchKeySet(DispatchKey.AutogradPrivateUse1)
    assert torch.equal(op.redispatch(both, leaf), leaf + 50)
    assert ADD.Tensor(leaf, leaf).requires_grad
    below = ADD.Tensor.redispatch(DispatchKeySet(DispatchKey.PrivateUse1), leaf, leaf)
    assert not below.requires_grad
    assert torch.equal(below, leaf * 2)


def test_B12_kernels_are_seen_by_key_whoever_registered_them(library):
    key, ours = DispatchKey.PrivateUse1, DispatchKeySet(DispatchKey.PrivateUse1)
    assert torch.ops.aten.view.default.has_kernel_for_dispatch_key(key)  # C++
    assert not torch.ops.aten.erfinv.out.has_kernel_for_dispatch_key(key)  # the fallback is none
    library.define("asked(Tensor x) -> Tensor")
    op = OPS.asked.default
    assert not op.has_kernel_for_dispatch_key(key)
    with Library(NS, "IMPL") as kernels:
        kernels.impl("asked", lambda x: x, "PrivateUse1")
        assert op.has_kernel_for_dispatch_key(key)
        assert op.has_kernel_for_any_dispatch_key(ours | DispatchKeySet(DispatchKey.XLA))
        assert not op.has_kernel_for_any_dispatch_key(DispatchKeySet(DispatchKey.CPU))
    assert not op.has_kernel_for_any_dispatch_key(ours)
    op.py_impl(key)(lambda x: x)  # the Python dispatcher's own
    assert op.has_kernel_for_dispatch_key(key)
    assert op.has_kernel_for_any_dispatch_key(ours)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NS}::asked", "PrivateUse1")
