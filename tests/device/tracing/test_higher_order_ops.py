"""Control flow, effects and export over device tensors (B19, B24, B25)."""

import itertools

import pytest
import torch
from answers import same
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_over
from torch.library import EffectType
from torch.utils.checkpoint import checkpoint

from torch_backplane.ops import Library
from torch_backplane.testing.observe import tensors

NS = "bp_test_higher_order"
OPS = getattr(torch.ops, NS)

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def compile_anew():
    torch.compiler.reset()


PROGRAMS = {
    "cond": lambda x: torch.cond(x.sum() > 0.1, lambda t: t.sin(), lambda t: t.cos() * 2, (x,)),
    "while_loop": lambda x: while_loop(
        lambda i, t: (i < 5) & (t.abs().max() < 3), lambda i, t: (i + 1, t * 2), (x.new_zeros(()), x)
    ),
    "map": lambda x: map_over(lambda t: t.sin() + 1, x),
    "scan": lambda x: scan(lambda carry, t: (carry + t, carry * t), x[0].clone(), x),
    "associative_scan": lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"),
    "checkpoint": lambda x: checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False),
}


@pytest.mark.parametrize("how", ["aot_eager", pytest.param("eager", marks=pytest.mark.long)])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_B19_higher_order_operators_equal_the_cpus(program, how, x):
    ran = program if how == "eager" else torch.compile(program, backend="aot_eager", fullgraph=True)
    found, expected = ran(x), program(x.cpu())
    for ours, cpus in zip(tensors(found), tensors(expected), strict=True):
        same(ours, cpus, x.device)


def test_B19_gradients_pass_a_branch(x):
    leaf = x.clone().requires_grad_()
    PROGRAMS["cond"](leaf).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), -2 * x.cpu().sin())


@pytest.fixture
def noted():
    """The calls of the operator ``note(Tensor x, int n) -> ()``, which is kept for its effect."""
    notes = []
    with Library(NS, "FRAGMENT") as library:
        library.define("note(Tensor x, int n) -> ()")
        library.impl("note", lambda x, n: notes.append((n, x.cpu().tolist())), "PrivateUse1")
        library._register_fake("note", lambda x, n: None)
        library._register_effectful_op(f"{NS}::note", EffectType.ORDERED)
        yield notes


class Noting(torch.nn.Module):
    def forward(self, x):
        OPS.note(x, 1)
        y = x + 1
        OPS.note(y, 2)
        OPS.note(x, 3)
        return y * 2


def test_B24_effects_keep_their_order_in_a_compiled_program(noted, x):
    expected = Noting()(x)
    eager = list(noted)
    noted.clear()
    assert torch.equal(torch.compile(Noting(), backend="aot_eager", fullgraph=True)(x), expected)
    assert noted == eager
    assert [n for n, _ in noted] == [1, 2, 3]


def test_B24_an_exported_graph_threads_a_token_through_them(noted, x):
    program = torch.export.export(Noting(), (x,)).run_decompositions()
    calls = [n for n in program.graph.nodes if n.target is torch.ops.higher_order.with_effects]
    assert [call.args[3] for call in calls] == [1, 2, 3]
    for before, after in itertools.pairwise(calls):
        assert after.args[0].args[0] is before  # the token of the call before
    noted.clear()
    assert torch.equal(program.module()(x), (x + 1) * 2)
    assert [n for n, _ in noted] == [1, 2, 3]


def test_B24_an_effect_ends_with_its_library(noted):
    from torch._higher_order_ops.effects import _get_effect

    op = OPS.note.default
    assert _get_effect(op) == EffectType.ORDERED
    with Library(NS, "FRAGMENT") as library:
        library.define("quiet(Tensor x) -> Tensor")
        assert _get_effect(OPS.quiet.default) is None
        with Library(NS, "FRAGMENT") as another:
            another._register_effectful_op(f"{NS}::quiet", EffectType.ORDERED)
            assert _get_effect(OPS.quiet.default) == EffectType.ORDERED
        assert _get_effect(OPS.quiet.default) is None


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(torch.nn.functional.silu(self.linear(x)))


def test_B25_export_keeps_high_level_operators_on_the_device(x, device):
    module = Block().to(device)
    program = torch.export.export(module, (x[None],))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert [str(node.target) for node in calls] == [f"aten.{op}.default" for op in ("linear", "silu", "layer_norm")]
    assert {node.meta["val"].device for node in calls} == {device}
    torch.testing.assert_close(program.module()(x[None]), module(x[None]))
    decomposed = program.run_decompositions()
    assert "aten.linear.default" not in {str(node.target) for node in decomposed.graph.nodes}
    torch.testing.assert_close(decomposed.module()(x[None]), module(x[None]))


def test_B25_the_stack_holds_a_mode_of_each_kind_and_switches_its_key(x):
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    key = torch._C.DispatchKey.PreDispatch
    depth = torch._ops._len_torch_dispatch_stack_pre_dispatch
    assert not torch._C._dispatch_tls_is_dispatch_key_included(key)
    with FunctionalTensorMode(pre_dispatch=True):
        assert depth() == 1
        assert torch._C._dispatch_tls_is_dispatch_key_included(key)
        with pytest.raises(AssertionError, match="already occupied"):
            torch._ops._set_mode_pre_dispatch(FunctionalTensorMode(pre_dispatch=True))
        with pytest.raises(AssertionError, match="used exclusively"):
            torch._ops._set_mode_pre_dispatch(SchemaCheckMode())
    assert depth() == 0
    assert not torch._C._dispatch_tls_is_dispatch_key_included(key)
    assert (x + 1).device == x.device
