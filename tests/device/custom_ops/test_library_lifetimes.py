"""Libraries made and destroyed in any order leave the right kernel (D05, D08, D09, D11-D13)."""

import gc
import threading

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch._C import DispatchKey, DispatchKeySet
from torch._dispatch.python import enable_python_dispatcher

import torch_backplane
from torch_backplane import fallback
from torch_backplane.ops import Library, registry

NS = "bp_test_lifetimes"
OPS = getattr(torch.ops, NS)

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),  # that a kernel is overridden
]


def number_adder(number):
    return lambda self: self + number


MAKERS = {
    # Each makes a registration for aten::sinc on the device, and returns the function that ends it.
    "library": lambda number: _made(Library("aten", "IMPL"), number),
    "torch's library": lambda number: _made(torch.library.Library("aten", "IMPL"), number),
    "kernel": lambda number: torch_backplane.kernel("aten::sinc", number_adder(number), override=True).remove,
    "declines": lambda number: torch_backplane.kernel("aten::sinc", lambda self: NotImplemented, override=True).remove,
}


def _made(library, number):
    library.impl("sinc", number_adder(number), "PrivateUse1")
    return library._destroy


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.sampled_from(sorted(MAKERS))), st.tuples(st.just("destroy"), st.integers(0, 99))
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_D11_the_newest_remaining_kernel_runs_in_any_order(steps, x):
    cpus = torch.sinc(x.cpu())
    alive = []
    try:
        for number, (step, which) in enumerate(steps, start=1):
            if step == "make":
                alive.append((MAKERS[which](number), None if which == "declines" else number))
            elif alive:
                end, _ = alive.pop(which % len(alive))
                end()
            expected = x.cpu() + alive[-1][1] if alive and alive[-1][1] else cpus
            torch.testing.assert_close(torch.sinc(x).cpu(), expected)
            torch.testing.assert_close(torch.sinc(x.cpu()), cpus)
    finally:
        for end, _ in alive:
            end()
    assert not registry.has_kernel("aten::sinc", "PrivateUse1")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, tracing=st.booleans())
def test_D05_kernels_and_fallthroughs_are_destroyed_in_any_order(steps, tracing, x):
    """An operator with a composite kernel, and for the device one of each kind; also as it is traced."""
    with Library(NS, "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1000)
        alive = []
        for number, (step, which) in enumerate(steps, start=1):
            if step == "make":
                kernels = Library(NS, "IMPL")
                passes = which in ("kernel", "declines")
                kernels.impl("f", torch.library.fallthrough_kernel if passes else number_adder(number), "PrivateUse1")
                alive.append((kernels, None if passes else number))
            elif alive:
                alive.pop(which % len(alive))[0].destroy()
            if alive and alive[-1][1] is None:
                continue  # a fallthrough has no kernel behind it: a later step shows that nothing of it is left
            expected = x + (alive[-1][1] if alive else 1000)
            if tracing:
                with enable_python_dispatcher():
                    assert torch.equal(OPS.f.default(x), expected)
            assert torch.equal(OPS.f(x), expected)
        for kernels, _ in alive:
            kernels.destroy()


def test_D11_kernels_that_stay_hold_the_schema(x):
    """As long as there is a kernel the dispatcher hands out the object that it has seen, which has the first schema."""
    kernels = Library(NS, "IMPL")
    with Library(NS, "FRAGMENT") as first:
        first.define("again(Tensor x) -> Tensor")
        kernels.impl("again", lambda x: x + 1, "PrivateUse1")
        held = OPS.again.default
    with Library(NS, "FRAGMENT") as second:
        with pytest.raises(RuntimeError, match=r"cannot be defined as .*int n.*kernel for PrivateUse1, registered at "):
            second.define("again(Tensor x, int n) -> Tensor")
        assert not hasattr(OPS, "again")
        second.define("again(Tensor x) -> Tensor")
        assert OPS.again.default is held
        assert torch.equal(held(x), x + 1)
    kernels.destroy()
    with Library(NS, "FRAGMENT") as third:
        third.define("again(Tensor x, int n) -> Tensor")
        third.impl("again", lambda x, n: x + n, "PrivateUse1")
        assert torch.equal(OPS.again.default(x, 5), x + 5)


def test_D11_an_operator_that_is_held_raises_after_its_library(x):
    """torch's own calls into freed memory."""
    with Library(NS, "FRAGMENT") as library:
        library.define("held(Tensor x) -> Tensor")
        library.impl("held", lambda x: x, "PrivateUse1")
        packet, overload = OPS.held, OPS.held.default
        keys = DispatchKeySet(DispatchKey.PrivateUse1)
        assert overload.redispatch(keys, x) is x
        known = {overload, packet}
    for call in (packet, overload):
        with pytest.raises(RuntimeError, match=f"{NS}::held does not exist any more: the library"):
            call(x)
    with pytest.raises(RuntimeError, match=f"Could not find schema for {NS}::held"):
        overload.redispatch(keys, x)
    assert {overload, packet} == known  # as keys of a table they stay what they were


def test_D11_removing_an_overload_keeps_the_others(x):
    """torch's own drops the operator's object: ``torch.ops.aten.sgn.default`` would be another one afterwards."""
    packet, default = torch.ops.aten.sgn, torch.ops.aten.sgn.default
    with Library("aten", "FRAGMENT") as library:
        library.define("sgn.of_a_test(Tensor x, str how) -> Tensor")
        library.impl("sgn.of_a_test", lambda x, how: x + len(how), "PrivateUse1")
        assert torch.equal(packet(x, "four"), x + 4)
        overload = packet.of_a_test
    assert torch.ops.aten.sgn is packet
    assert packet.default is default
    assert "of_a_test" not in packet.overloads()
    assert list(torch.ops.aten).count("sgn") == 1
    assert not hasattr(packet, "of_a_test")
    with pytest.raises(RuntimeError, match="of_a_test does not exist any more"):
        overload(x, "four")
    torch.testing.assert_close(packet(x).cpu(), torch.sgn(x.cpu()))


def test_D11_a_library_stays_until_it_is_destroyed(x):
    Library(NS, "FRAGMENT").define("stays(Tensor x) -> Tensor")
    kernels = Library(NS, "IMPL")
    kernels.impl("stays", lambda x: x + 1, "PrivateUse1")
    gc.collect()
    assert torch.equal(OPS.stays(x), x + 1)
    kernels.destroy()
    kernels.destroy()
    with pytest.raises(AssertionError, match="destroyed"):
        kernels.impl("stays", lambda x: x, "PrivateUse1")


def test_D11_a_kernel_may_remove_itself(x):
    def once(self):
        registration.remove()
        return self + 5

    registration = torch_backplane.kernel("aten::sinc", once)
    assert torch.equal(torch.sinc(x), x + 5)
    torch.testing.assert_close(torch.sinc(x).cpu(), torch.sinc(x.cpu()))


@pytest.mark.parametrize("gone", ["first", "second"])
def test_D12_a_remaining_kernel_still_refuses_another(gone, x):
    """torch's library forgets the first one when the second is destroyed, and knows only Python's kernels."""
    with Library(NS, "FRAGMENT") as library, Library(NS, "IMPL") as third:
        library.define("refuses(Tensor x) -> Tensor")
        both = {"first": Library(NS, "IMPL"), "second": Library(NS, "IMPL")}
        for kernels in both.values():
            kernels.impl("refuses", lambda x: x, "PrivateUse1")
        both.pop(gone).destroy()
        with pytest.raises(RuntimeError, match=rf"for PrivateUse1 already, registered at {__file__}:\d+"):
            third.impl("refuses", lambda x: x, "PrivateUse1", allow_override=False)
        both.popitem()[1].destroy()
        third.impl("refuses", lambda x: x + 3, "PrivateUse1", allow_override=False)
        assert torch.equal(OPS.refuses(x), x + 3)


def test_D12_a_kernel_in_cpp_refuses_as_well():
    with (
        Library("aten", "IMPL", "PrivateUse1") as library,
        pytest.raises(RuntimeError, match=r"aten::view has a kernel for PrivateUse1 already, registered at \S+\.cpp"),
    ):
        library.impl("view", lambda self, size: self, allow_override=False)


def test_D13_the_kernel_behind_exists_as_long_as_its_library(x):
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
    with Library(NS, "FRAGMENT") as library:
        library.define("behind(Tensor x) -> Tensor")
        first, second = Library(NS, "IMPL"), Library(NS, "IMPL")
        first.impl("behind", lambda x: x + 1, "PrivateUse1")
        behind = torch.library.get_kernel(f"{NS}::behind", "PrivateUse1")
        second.impl("behind", lambda x: behind.call_boxed(keys, x) + 10, "PrivateUse1")
        assert torch.equal(OPS.behind(x), x + 11)
        first.destroy()
        with pytest.raises(RuntimeError, match="has been invalidated"):
            OPS.behind(x)
        second.destroy()


def test_D09_the_library_refuses_to_replace_the_fallbacks_of_the_device(x):
    with Library("_", "IMPL") as library:
        with pytest.raises(RuntimeError, match=r"fallback\.hook\(fn\).*_FALLBACK=none"):
            library.fallback(lambda op, *args, **kwargs: None, "PrivateUse1")
        with pytest.raises(RuntimeError, match="would not come back"):
            library.fallback(lambda op, *args, **kwargs: None, "AutogradPrivateUse1")
    assert torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.AutogradPrivateUse1)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(4)))
def test_D08_switches_of_several_threads_end_in_any_order(order):
    general, hook = fallback.get_policy(), fallback.hook._current
    blocks = [
        (fallback.policy("error").__enter__(), fallback.hook(lambda op, args, kwargs: NotImplemented).__enter__()),
        (fallback.policy("warn").__enter__(), fallback.hook(None).__enter__()),
        (fallback.policy("cpu").__enter__(), fallback.hook(print).__enter__()),
        (fallback.policy("error").__enter__(), fallback.hook(repr).__enter__()),
    ]
    in_force = [(fallback.get_policy(), fallback.hook._current)]
    left = {0: "error", 1: "warn", 2: "cpu", 3: "error"}
    for which in order:
        for block in blocks[which]:
            block.__exit__()
        del left[which]
        assert fallback.get_policy() == (left[max(left)] if left else general)
    assert in_force == [("error", repr)]
    assert fallback.hook._current is hook


def test_D08_two_threads_leave_the_policy_as_it_was():
    before = fallback.get_policy()
    inside, leave = threading.Barrier(2), threading.Event()

    def other():
        with fallback.policy("warn"):
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with fallback.policy("error"):
        leave.set()
        thread.join()
        assert fallback.get_policy() == "error"
    assert fallback.get_policy() == before
