"""Dispatch modes, tensor subclasses, threads of the backward pass, functionalization (D31, D32, D37)."""

import threading

import pytest
import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from backplane_tools.conformance.checks import in_threads
from torch_backplane.ops import Library

NS = "bp_test_modes"
OPS = getattr(torch.ops, NS)

pytestmark = pytest.mark.once


@pytest.fixture
def kernel_ran():
    """Which tensors the kernel of the operator ``plus(Tensor x) -> Tensor`` saw."""
    seen = []

    def plus(x):
        seen.append(type(x))
        return x + 1

    with Library(NS, "FRAGMENT") as library:
        library.define("plus(Tensor x) -> Tensor")
        library.impl("plus", plus, "PrivateUse1")
        library._register_fake("plus", lambda x: torch.empty_like(x))
        yield seen


@pytest.fixture
def x(device):
    return torch.linspace(-0.9, 0.9, 6).to(device)


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


class Scaled(torch.Tensor):
    """A tensor that stands for ``scale`` times another."""

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [a.inner * a.scale if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


def test_D31_a_mode_comes_before_the_kernel(kernel_ran, x):
    with Log() as log:
        result = OPS.plus(x)
    assert log.calls == [f"{NS}.plus.default"]  # once, and not what the kernel calls
    assert kernel_ran == [torch.Tensor]
    assert torch.equal(result, x + 1)
    OPS.plus(x)
    assert len(log.calls) == 1


def test_D31_modes_nest_the_inner_one_first(kernel_ran, x):
    class Answer(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is OPS.plus.default:
                return args[0] * 100
            return func(*args, **(kwargs or {}))

    with Log() as outer, Answer(), Log() as inner:
        assert torch.equal(OPS.plus(x), x * 100)
    assert f"{NS}.plus.default" in inner.calls
    assert f"{NS}.plus.default" not in outer.calls
    assert "aten.mul.Tensor" in outer.calls
    assert kernel_ran == []


def test_D31_then_a_subclass_and_then_the_kernel(kernel_ran, x):
    wrapped = Scaled(x, 3.0)
    assert wrapped.device == x.device
    with Log() as log:
        result = OPS.plus(wrapped)
    assert torch.equal(result, x * 3 + 1)
    assert log.calls[0] == f"{NS}.plus.default"
    assert kernel_ran == [torch.Tensor]
    torch.testing.assert_close(torch.matmul(wrapped, x).cpu(), (x.cpu() * 3) @ x.cpu())


def test_D31_a_mode_sees_the_operators_of_the_backward_pass(x):
    leaf = x.clone().requires_grad_()
    with Log() as log:
        leaf.sin().sum().backward()
    assert {"aten.sin.default", "aten.cos.default"} <= set(log.calls)  # the backward pass has the caller's modes
    torch.testing.assert_close(leaf.grad.cpu(), x.cpu().cos())


def test_D31_tracing_sees_one_call_of_the_devices_operator(kernel_ran, x):
    traced = make_fx(lambda t: OPS.plus(t * 2), tracing_mode="fake")(x)
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert targets == [torch.ops.aten.mul.Tensor, OPS.plus.default]
    assert kernel_ran == []
    assert torch.equal(traced(x), x * 2 + 1)
    symbolic = make_fx(lambda t: OPS.plus(t * 2), tracing_mode="symbolic")(x)
    assert torch.equal(symbolic(x[:3]), x[:3] * 2 + 1)


def test_D32_the_backward_pass_runs_on_a_thread_of_the_device(x):
    threads = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, gradient):
            threads.append(threading.get_ident())
            return gradient * 2

    for tensor in (x, x, x.cpu()):
        Watched.apply(tensor.clone().requires_grad_()).sum().backward()
    on_device, again, on_cpu = threads
    assert on_device == again != threading.get_ident()
    assert on_cpu == threading.get_ident()


def test_D32_a_python_kernel_takes_the_gil_back(x):
    """One that waits for another thread's kernel; that the call itself keeps no GIL is in test_stream_semantics.py."""
    started, done = threading.Event(), threading.Event()

    def kernel(t):
        started.set()
        assert done.wait(60)
        return t + 1

    def call(i):
        if i == 0:
            return torch.equal(OPS.waits(x.clone().requires_grad_()), x + 1)
        assert started.wait(60)
        right = torch.equal(OPS.passes(x), x)
        done.set()
        return right

    with Library(NS, "FRAGMENT") as library:
        library.define("waits(Tensor x) -> Tensor")
        library.define("passes(Tensor x) -> Tensor")
        library.impl("waits", kernel, "PrivateUse1")
        library.impl("passes", lambda t: t.clone(), "PrivateUse1")
        assert in_threads(call, 2) == [True, True]


def mutate_views(x):
    y = x.clone()
    y.view(2, 3)[0].mul_(2)
    y[1::2].add_(1)
    z = y.t() if y.dim() == 2 else y.view(3, 2).t()
    z[0].copy_(torch.zeros_like(z[0]))
    y.resize_(4)
    return y, z


def write_input(x):
    x[1:3].mul_(2)
    return x.view(2, 3).sum(0)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_D37_programs_that_mutate_views_are_functionalized(remove, x):
    traced = make_fx(torch.func.functionalize(mutate_views, remove=remove))(x)
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert not any(target._schema.is_mutable for target in targets)
    assert remove == "mutations" or not any(target.is_view for target in targets)
    for found, expected in zip(traced(x), mutate_views(x.cpu()), strict=True):
        torch.testing.assert_close(found.cpu(), expected)


def test_D37_an_input_that_is_written_is_written_by_the_compiled_program(x):
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return graph

    ours, cpus = x.clone(), x.cpu()
    compiled = aot_function(write_input, fw_compiler=compiler)
    torch.testing.assert_close(compiled(ours).cpu(), write_input(cpus))
    torch.testing.assert_close(ours.cpu(), cpus)
    mutable = [n.target for n in graphs[0].graph.nodes if n.op == "call_function" and n.target._schema.is_mutable]
    assert set(mutable) <= {torch.ops.aten.copy_.default}  # only the write to the input is left, at the end


def test_D37_a_wrapper_can_be_replaced_committed_and_given_another_storage(x):
    wrapped = torch._to_functional_tensor(x)
    assert torch._is_functional_tensor(wrapped)
    torch._enable_functionalization(reapply_views=True)
    try:
        view = wrapped[2:]
        view.mul_(3)
        assert torch._C._functionalization_reapply_views_tls()
    finally:
        torch._disable_functionalization()
    torch._sync(wrapped)
    torch._sync(view)
    expected = x.clone()
    expected[2:] *= 3
    assert torch.equal(torch._from_functional_tensor(wrapped), expected)
    assert torch.equal(torch._from_functional_tensor(view), expected[2:])
    torch._C._replace_(wrapped, x + 7)
    torch._C._commit_update(wrapped)
    torch._sync(wrapped)
    assert torch.equal(torch._from_functional_tensor(wrapped), x + 7)
    assert torch._from_functional_tensor(wrapped).device == x.device
