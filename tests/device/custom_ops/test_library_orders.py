"""Definitions, overloads and kernels, made and destroyed at random (D05, D11): the calls agree with a model."""

import contextlib

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode

from torch_backplane.ops import Library, registry

NS = "bp_test_orders"
OPS = getattr(torch.ops, NS)
SCHEMAS = {
    "": "f(Tensor x) -> Tensor",
    "by": "f.by(Tensor x, int n) -> Tensor",
    "two": "f.two(Tensor x, str s) -> Tensor",
}
ARGUMENTS = {"": (), "by": (3,), "two": ("s",)}
KEYS = ("AutogradPrivateUse1", "PrivateUse1", "CPU")  # by rank

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),  # that a kernel is overridden
]


class Libraries(RuleBasedStateMachine):
    """Each kernel adds another number, so a result shows which one ran."""

    device: torch.device

    def __init__(self):
        super().__init__()
        self.definitions = {}  # overload -> library
        self.kernels = []  # (overload, key, number, library), the newest last
        self.packet = None
        self.gone = {}  # overload -> its object, from the last time that it was defined
        self.number = 0

    kernels_made = Bundle("kernels")

    @rule(overload=st.sampled_from(list(SCHEMAS)))
    def define_or_destroy(self, overload):
        if overload in self.definitions:
            held = getattr(self.packet, overload or "default")
            self.definitions.pop(overload).destroy()
            self.gone[overload] = held
        else:
            self.definitions[overload] = Library(NS, "FRAGMENT")
            self.definitions[overload].define(SCHEMAS[overload])
            held = self.gone.pop(overload, None)
            assert held is None or held is getattr(OPS.f, overload or "default")
        if not self.definitions:
            self.packet = None
        elif self.packet is None:
            self.packet = OPS.f

    @rule(target=kernels_made, overload=st.sampled_from(list(SCHEMAS)), key=st.sampled_from(KEYS))
    def register(self, overload, key):
        self.number += 1
        number, library = self.number, Library(NS, "IMPL")
        library.impl("f" + f".{overload}" * bool(overload), lambda x, *rest: x + number, key)
        self.kernels.append((overload, key, number, library))
        return self.kernels[-1]

    @rule(kernel=consumes(kernels_made))
    def remove(self, kernel):
        self.kernels.remove(kernel)
        kernel[-1].destroy()

    def _newest(self, overload, *keys):
        for key in keys:
            numbers = [
                number
                for for_overload, for_key, number, _ in self.kernels
                if (for_overload, for_key) == (overload, key)
            ]
            if numbers:
                return numbers[-1]
        return None

    @invariant()
    def the_kernel_of_the_model_runs(self):
        for overload in self.definitions:
            op, arguments = getattr(OPS.f, overload or "default"), ARGUMENTS[overload]
            # The fallback calls the CPU's kernel if the device has none.
            for device, keys in ((self.device, KEYS), (torch.device("cpu"), ("CPU",))):
                x, number = torch.zeros(2, device=device), self._newest(overload, *keys)
                for call in (op, OPS.f, in_python(op)):
                    if number is None:
                        with pytest.raises(NotImplementedError):
                            call(x, *arguments)
                    else:
                        assert call(x, *arguments).tolist() == [number, number]
                with Seen() as seen, contextlib.suppress(NotImplementedError):
                    op(x, *arguments)
                assert all(func is op for func in seen.operators if func.namespace == NS)

    @invariant()
    def objects_stay_the_same(self):
        if self.definitions:
            assert OPS.f is self.packet
            assert set(OPS.f.overloads()) == {overload or "default" for overload in self.definitions}
        else:
            assert not hasattr(OPS, "f")
        for overload, held in self.gone.items():
            with pytest.raises(RuntimeError, match="does not exist any more"):
                held(torch.zeros(1), *ARGUMENTS[overload])

    def teardown(self):
        for library in [*self.definitions.values(), *(kernel[-1] for kernel in self.kernels)]:
            library.destroy()
        assert registry.kernels(f"{NS}::f") == []


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def in_python(op):
    def call(*arguments):
        with enable_python_dispatcher():
            return op(*arguments)

    return call


def test_D11_D05_at_each_step_the_kernel_of_the_model_runs(device):
    Libraries.device = device
    run_state_machine_as_test(Libraries, settings=settings(max_examples=12, stateful_step_count=15, deadline=None))
