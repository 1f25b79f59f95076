"""Operators as Python objects, torch.ops, on the device (B03-B05, B07, B08, B10-B12)."""

import copy
import pickle
import sys

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet

NAMESPACE = "bp_test_objects"

pytestmark = pytest.mark.once
ADD = torch.ops.aten.add


MODULE = f"""
import torch
library = torch.library.Library("{NAMESPACE}_module", "DEF")
library.define("imported(Tensor x) -> Tensor")
library.impl("imported", lambda x: x + 3, "PrivateUse1")
"""


def test_B03_a_module_is_imported_for_its_registrations(x, tmp_path, monkeypatch):
    (tmp_path / "bp_module_of_operators.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    operators = getattr(torch.ops, f"{NAMESPACE}_module")
    assert not hasattr(operators, "imported")
    torch.ops.import_module("bp_module_of_operators")
    try:
        assert torch.equal(operators.imported(x), x + 3)
    finally:
        sys.modules.pop("bp_module_of_operators").library._destroy()
    assert not hasattr(operators, "imported")
    with pytest.raises(ModuleNotFoundError, match="bp_no_such_module"):
        torch.ops.import_module("bp_no_such_module")


def test_B04_names_resolve_lazily_and_are_kept(ops):
    namespace = getattr(torch.ops, NAMESPACE)
    ops.library.define("lazy(Tensor x) -> Tensor")
    assert "lazy" not in list(namespace)
    first = namespace.lazy
    assert namespace.lazy is first
    assert "lazy" in list(namespace)
    assert NAMESPACE in list(torch.ops)
    with pytest.raises(AttributeError, match=f"'{NAMESPACE}' object has no attribute 'nothing'"):
        namespace.nothing  # noqa: B018
    assert getattr(namespace, "nothing", None) is None
    with pytest.raises(AttributeError, match="no overload name 'nothing'"):
        first.nothing  # noqa: B018
    name = f"{NAMESPACE}_of_nobody"  # a namespace that may still come
    assert getattr(torch.ops, name).__name__ == f"torch.ops.{name}"


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


def test_B07_overload_objects_are_unique(ops):
    op = ops.define("unique(Tensor x) -> Tensor")
    other = ops.define("unique.other(Tensor x, int y) -> Tensor")
    assert copy.deepcopy(op) is op is ops.unique.default
    assert copy.deepcopy(ops.unique) is ops.unique
    assert len({op, ops.unique.default, ops.unique.other}) == 2
    assert op != other
    again = pickle.loads(pickle.dumps(torch.fx.symbolic_trace(lambda x: torch.ops.aten.sin.default(x))))
    assert [node.target for node in again.graph.nodes if node.op == "call_function"] == [torch.ops.aten.sin.default]


def test_B08_every_argument_can_be_a_keyword(x, ops):
    gelu = torch.ops.aten.gelu.default
    assert torch.equal(ADD.Tensor(self=x, other=x, alpha=2), x * 3)
    assert torch.equal(ADD(self=x, other=x), x * 2)
    assert torch.equal(gelu(self=x, approximate="tanh"), gelu(x, approximate="tanh"))
    keys = DispatchKeySet(DispatchKey.PrivateUse1)
    assert torch.equal(ADD.Tensor.redispatch(keys, self=x, other=x), x * 2)
    schema = "odd(Tensor self, Tensor args, *, Tensor kwargs) -> Tensor"
    odd = ops.define(schema, PrivateUse1=lambda self, args, *, kwargs: self + args + kwargs)
    for call in (ops.odd, odd):
        torch.testing.assert_close(call(kwargs=x, args=x, self=x), x * 3)


def test_B10_overloads_tell_what_they_are(ops):
    schema = "described.some(Tensor(a!) x, *, float y=2.5) -> Tensor(a!)"
    op = ops.define(schema, tags=torch.Tag.nondeterministic_bitwise)
    assert op._defined_in_python
    assert op.namespace == NAMESPACE
    assert op.name() == f"{NAMESPACE}::described.some"
    assert str(op) == f"{NAMESPACE}.described.some"
    assert op.overloadpacket is ops.described
    assert op.tags == [torch.Tag.nondeterministic_bitwise]
    assert str(op._schema) == f"{NAMESPACE}::{schema}"
    assert op._schema.is_mutable
    assert not op.is_view
    assert not ADD.Tensor._defined_in_python
    assert {torch.Tag.core, torch.Tag.pointwise} <= set(ADD.Tensor.tags)
    assert torch.ops.aten.view.default.is_view


@pytest.mark.kernels
def test_B11_redispatching_reaches_the_devices_kernel(ops, x):
    kernels = {"PrivateUse1": lambda x: x + 1, "AutogradPrivateUse1": lambda x: x + 50}
    op = ops.define("leveled(Tensor x) -> Tensor", **kernels)
    leaf = x.clone().requires_grad_()
    assert torch.equal(op(leaf), leaf + 50)
    assert torch.equal(op.redispatch(DispatchKeySet(DispatchKey.PrivateUse1), leaf), leaf + 1)
    both = DispatchKeySet(DispatchKey.PrivateUse1) | DispatchKeySet(DispatchKey.AutogradPrivateUse1)
    assert torch.equal(op.redispatch(both, leaf), leaf + 50)
    assert ADD.Tensor(leaf, leaf).requires_grad
    below = ADD.Tensor.redispatch(DispatchKeySet(DispatchKey.PrivateUse1), leaf, leaf)
    assert not below.requires_grad
    assert torch.equal(below, leaf * 2)


def test_B12_kernels_are_seen_by_key_whoever_registered_them(ops):
    key, ours = DispatchKey.PrivateUse1, DispatchKeySet(DispatchKey.PrivateUse1)
    assert torch.ops.aten.view.default.has_kernel_for_dispatch_key(key)  # C++
    assert not torch.ops.aten.erfinv.out.has_kernel_for_dispatch_key(key)  # the fallback is none
    op = ops.define("asked(Tensor x) -> Tensor")
    assert not op.has_kernel_for_dispatch_key(key)
    with torch.library._scoped_library(NAMESPACE, "IMPL") as kernels:
        kernels.impl("asked", lambda x: x, "PrivateUse1")
        assert op.has_kernel_for_dispatch_key(key)
        assert op.has_kernel_for_any_dispatch_key(ours | DispatchKeySet(DispatchKey.XLA))
        assert not op.has_kernel_for_any_dispatch_key(DispatchKeySet(DispatchKey.CPU))
    assert not op.has_kernel_for_any_dispatch_key(ours)
    op.py_impl(key)(lambda x: x)  # the Python dispatcher's own
    assert op.has_kernel_for_dispatch_key(key)
    assert op.has_kernel_for_any_dispatch_key(ours)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::asked", "PrivateUse1")
