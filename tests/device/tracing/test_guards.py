"""torch_backplane.ops.guards and dispatch_key: the keys that a thread's calls exclude or include (D22, D28-D30)."""

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet

from backplane_tools.conformance.checks import in_threads
from torch_backplane.ops import Library, dispatch_key, guards

NS = "bp_test_guards"
OPS = getattr(torch.ops, NS)

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def thread_as_before():
    before = text_of(guards.state())
    yield
    assert text_of(guards.state()) == before


def text_of(state):
    return repr(state.included), repr(state.excluded)


@pytest.fixture
def leaf(device):
    return torch.linspace(0.1, 0.9, 5).to(device).requires_grad_()


def test_D22_a_device_string_gives_its_key_and_an_index_is_refused(name):
    assert torch._C._dispatch_key_for_device(name) == "PrivateUse1"
    with pytest.raises(RuntimeError, match="to not have a device index"):
        torch._C._dispatch_key_for_device(f"{name}:0")
    with pytest.raises(RuntimeError, match="device type"):
        torch._C._dispatch_key_for_device("a_name_of_nobody")


def test_D22_the_sdks_accepts_names_devices_and_indices(device, name):
    assert dispatch_key(name) == dispatch_key(device) == dispatch_key(f"{name}:1") == "PrivateUse1"
    assert dispatch_key(device, "Autograd") == "AutogradPrivateUse1"
    assert dispatch_key("cpu", "Sparse") == "SparseCPU"
    with pytest.raises(ValueError, match=r"no device type 'a_name_of_nobody'.*has to be imported first"):
        dispatch_key("a_name_of_nobody")
    with pytest.raises(ValueError, match="no dispatch key DensePrivateUse1: 'Dense' is no functionality"):
        dispatch_key(device, "Dense")


def test_D28_a_threads_keys_can_be_read_set_and_restored(leaf):
    key = DispatchKey.AutogradPrivateUse1
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)
    try:
        assert torch._C._dispatch_tls_is_dispatch_key_excluded(key)
        assert guards.state().excluded.has(key)
        assert not (leaf * 2).requires_grad
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    assert not guards.state().excluded.has(key)
    assert (leaf * 2).requires_grad
    torch._C._dispatch_tls_set_dispatch_key_included(DispatchKey.AutocastPrivateUse1, True)
    assert torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.AutocastPrivateUse1)
    torch._C._dispatch_tls_set_dispatch_key_included(DispatchKey.AutocastPrivateUse1, False)


def test_D28_contexts_nest_and_end_with_an_exception(leaf, name):
    before = text_of(guards.state())
    with guards.exclude("AutogradPrivateUse1", f"Autocast{name}"):
        outer = text_of(guards.state())
        inner = guards.exclude(DispatchKey.AutogradPrivateUse1)
        with pytest.raises(LookupError, match="True"), inner, guards.include("Functionalize"):
            raise LookupError(guards.state().included.has(DispatchKey.Functionalize))
        assert text_of(guards.state()) == outer  # the inner one did not let go what the outer one holds
        assert not (leaf * 2).requires_grad
    assert text_of(guards.state()) == before
    assert (leaf * 2).requires_grad


def test_D28_they_affect_only_their_thread(leaf):
    with guards.exclude("AutogradPrivateUse1"):
        here = guards.state()

        def other(_):
            yield (leaf * 2).requires_grad
            with guards.force(here):
                yield (leaf * 2).requires_grad
            yield (leaf * 2).requires_grad

        found = in_threads(lambda i: list(other(i)))
    assert found == [[True, False, True]]


@pytest.mark.parametrize(
    ("guard", "key", "says"),
    [
        (guards.exclude, "PrivateUse1", "cannot exclude PrivateUse1.*exclude such kernels of every device"),
        (guards.exclude, DispatchKey.SparseCPU, "cannot exclude DispatchKey.SparseCPU"),
        (guards.include, "PrivateUse1", "cannot include PrivateUse1.*send the tensors of every device"),
        (guards.include, "AutogradPrivateUse1", "cannot include AutogradPrivateUse1"),
        (guards.exclude, "AutogradNobody", "no dispatch key 'AutogradNobody'"),
    ],
)
def test_D28_what_would_act_on_every_device_is_refused(guard, key, says):
    with pytest.raises(ValueError, match=says), guard(key):
        pass


def test_D29_excluding_the_devices_autograd_switches_it_off_for_the_cpu_as_well(leaf):
    cpus = torch.ones(2, requires_grad=True)
    with guards.exclude("AutogradPrivateUse1"):
        assert not (leaf * 2).requires_grad
        assert not (cpus * 2).requires_grad
    assert (cpus * 2).requires_grad
    with guards.exclude("AutocastPrivateUse1"), torch.autocast("cpu", torch.bfloat16):  # autocast is kept apart
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_D30_below_autograd_nothing_is_recorded_and_views_are(leaf):
    base = leaf.detach().clone()
    with guards.below_autograd():
        assert not (leaf * 2).requires_grad
        view = base[1:]
    assert view._base is base
    version = base._version
    with guards.below_adinplaceorview():
        assert not (leaf * 2).requires_grad
        plain = base[1:]
        plain.mul_(2)
    assert not plain._is_view()
    assert plain.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert base._version == version  # it was not recorded


def test_D30_an_autograd_kernel_calls_its_operator_again(leaf):
    """The forward of an autograd.Function that calls the operator would call itself without end."""
    depth = []

    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            depth.append(x)
            assert len(depth) < 3, "the operator calls itself"
            with guards.below_autograd():
                return OPS.cubed(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x * x

    with Library(NS, "FRAGMENT") as library:
        library.define("cubed(Tensor x) -> Tensor")
        library.impl("cubed", lambda x: x * x * x, "PrivateUse1")
        library.impl("cubed", Cubed.apply, "AutogradPrivateUse1")
        result = OPS.cubed(leaf)
        result.sum().backward()
        assert len(depth) == 1
    torch.testing.assert_close(result.detach().cpu(), leaf.detach().cpu() ** 3)
    torch.testing.assert_close(leaf.grad.cpu(), 3 * leaf.detach().cpu() ** 2)


def test_D30_a_kernel_that_calls_operators_records_nothing(leaf):
    """As a decorator. Without it, what the kernel of an operator without a formula calls is recorded."""

    def kernel(x):
        return x * x * x

    with Library(NS, "FRAGMENT") as library:
        library.define("open(Tensor x) -> Tensor")
        library.impl("open", kernel, "PrivateUse1")
        library.define("closed(Tensor x) -> Tensor")
        library.impl("closed", guards.below_autograd()(kernel), "PrivateUse1")
        assert OPS.open(leaf).grad_fn.name() == "MulBackward0"
        for _ in range(2):  # each call makes the context of a decorator again
            assert OPS.closed(leaf).grad_fn.name().endswith("WarnNotImplemented")  # torch's, for what has no formula


@pytest.mark.kernels
def test_D30_redispatch_below_keys_equals_the_guard(leaf):
    keys = DispatchKeySet(DispatchKey.PrivateUse1)
    result = torch.ops.aten.mul.Tensor.redispatch(keys, leaf, leaf)
    assert not result.requires_grad
    assert torch.equal(result, (leaf * leaf).detach())
