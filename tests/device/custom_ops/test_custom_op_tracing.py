"""A vendor's operators under make_fx and torch.compile: the fake when tracing, the device's kernel when running."""

import gc

import pytest
import torch
from own_operators import Operators
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.once


@pytest.fixture
def ops(backend_package):
    with Operators("bp_test_tracing") as operators:
        yield operators
    torch._dynamo.reset()
    gc.collect()  # a library that is collected later removes the entry of torch.ops of the next one by its name


def node_of(traced, op):
    (node,) = [node for node in traced.graph.nodes if node.target is op]
    return node


@pytest.fixture
def shifted(ops, device):
    def shifted(x: Tensor, by: float = 1.0) -> Tensor:
        return x + by

    op = ops.custom("shifted", shifted, device_types=device.type)
    op.register_fake(lambda x, by=1.0: torch.empty_like(x))
    return op


@pytest.mark.parametrize("mode", ["symbolic", "fake", "real"])
def test_C44_make_fx_records_the_operator_and_replays_it(shifted, device, mode):
    x = torch.arange(6.0, device=device).view(2, 3)
    traced = make_fx(lambda x: shifted(x, 2.0) * 3, tracing_mode=mode)(x)
    assert node_of(traced, shifted._opoverload).args[1] == 2.0
    for given in (x, x.view(6, 1)) if mode == "symbolic" else (x,):  # a symbolic trace takes other sizes
        replayed = traced(given)
        assert replayed.device == device
        assert torch.equal(replayed, (given + 2) * 3)


def test_C45_shapes_passed_as_a_list_become_symbolic(ops, device):
    def shaped(x: Tensor, shape: list[int]) -> Tensor:
        return x.new_ones(shape)

    op = ops.custom("shaped", shaped, device_types=device.type)
    op.register_fake(lambda x, shape: x.new_empty(shape))
    traced = make_fx(lambda x: op(x, x.shape), tracing_mode="symbolic")(torch.ones(2, 3, device=device))
    sizes = node_of(traced, op._opoverload).args[1]
    assert [size.target for size in sizes] == [torch.ops.aten.sym_size.int] * 2
    assert [type(size.meta["val"]) for size in sizes] == [torch.SymInt] * 2
    assert traced(torch.zeros(4, 5, device=device)).shape == (4, 5)


def test_C46_an_output_that_depends_on_data_is_compiled_whole(ops, device):
    def counted(x: Tensor) -> Tensor:
        return x.nonzero()

    op = ops.custom("counted", counted, device_types=device.type)
    op.register_fake(lambda x: x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64))
    compiled = torch.compile(lambda x: op(x) * 2, backend="aot_eager", fullgraph=True)
    assert compiled(torch.tensor([0.0, 3, 0, 4], device=device)).tolist() == [[2], [6]]
    assert compiled(torch.tensor([1.0, 3, 0, 4], device=device)).tolist() == [[0], [2], [6]]


def test_C47_compiling_calls_the_fake_and_running_the_kernel(ops, device):
    called = []

    def traced(x: Tensor) -> Tensor:
        called.append(f"kernel {type(x).__name__}")
        return x * 2

    op = ops.custom("traced", traced, device_types=device.type)

    @op.register_fake
    def _(x):
        called.append(f"fake {type(x).__name__}")
        return torch.empty_like(x)

    x = torch.ones(3, device=device)
    compiled = torch.compile(lambda x: op(x) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), x * 2 + 1)
    assert set(called[:-1]) == {"fake FakeTensor"}
    assert called[-1] == "kernel Tensor"
    called.clear()
    compiled(x)
    assert called == ["kernel Tensor"]
