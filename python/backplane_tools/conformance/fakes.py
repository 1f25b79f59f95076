"""Whether results are as torch's fake tensors, and so every compiled program, say: shape, dtype, strides, device.

Some of torch's fakes do not match the CPU. If a device does what the CPU does, and both have the same fake, the mistake
is torch's. If torch's fakes differ between the device and the CPU, the device must match its fake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from torch_backplane.testing.compare import Difference, strides_of
from torch_backplane.testing.transfer import Transfer

# What depends on values, and layouts that have no fake.
_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    NotImplementedError,
)

# (operator, number of the result) -> why it need not be as its fake.
_EXCUSED = {
    ("aten::_scaled_dot_product_fused_attention_overrideable", 6): "the seed is on the host, as CUDA's is",
    ("aten::_scaled_dot_product_fused_attention_overrideable", 7): "the offset is on the host, as CUDA's is",
    # Of half types, where the CPU takes no statistics in float32, and so gives no second opinion:
    ("aten::native_batch_norm_backward", 0): "torch's decomposition forgets channels_last",
    ("aten::batch_norm_backward", 0): "torch's decomposition forgets channels_last",
}

_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@dataclass(frozen=True)
class Form:
    """All of a result but its values."""

    kind: str
    """``"tensor"``, a layout, or another value's type."""
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    strides: tuple[int, ...] = ()
    device: torch.device | None = None

    @classmethod
    def of(cls, value: Any) -> Form:
        """The form of a tensor, real or fake, or of any other value."""
        if not isinstance(value, torch.Tensor):
            return cls("int" if isinstance(value, torch.SymInt) else type(value).__name__)
        if value.layout is not torch.strided or value.is_nested:
            return cls(str(value.layout))
        return cls("tensor", tuple(value.shape), value.dtype, strides_of(value), value.device)

    def __str__(self) -> str:
        if self.dtype is None:
            return self.kind
        name = str(self.dtype).removeprefix("torch.")
        return f"{name}{list(self.shape)} with strides {list(self.strides)} on {self.device}"

    def is_like(self, other: Form) -> bool:
        """Whether they are equal but for the device."""
        return replace(self, device=None) == replace(other, device=None)


class FakeMode(TorchDispatchMode):
    """In its block, compares each ATen operator on the device with its fake; ``check()`` raises what was found."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self._differences: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _is_plain((args, kwargs), self.device):
            return func(*args, **kwargs)
        planned = _plan(func, args, kwargs)
        result = func(*args, **kwargs)
        if planned is not None:
            self._hold(func, args, kwargs, planned, _forms(result))
        return result

    def check(self) -> None:
        """Raise Difference if there was one."""
        if self._differences:
            raise Difference("; ".join(dict.fromkeys(self._differences)))

    def _hold(self, func: Any, args: Any, kwargs: Any, planned: list[Form] | str, found: list[Form]) -> None:
        if isinstance(planned, str) or len(planned) != len(found):
            host = self._on_the_cpu(func, args, kwargs)
            if host is None or type(host[0]) is not type(planned):
                self._differences.append(f"{func}: its fake says {planned}, found {[str(form) for form in found]}")
            return
        name = func._schema.name
        wrong = [i for i, form in enumerate(found) if planned[i] != form and (name, i) not in _EXCUSED]
        if any(argument.name in ("output_mask", "grad_input_mask") for argument in func._schema.arguments):
            wrong = [i for i in wrong if found[i].kind != "NoneType"]  # not wanted: fakes do not look
        if not wrong:
            return
        plan, real = self._on_the_cpu(func, args, kwargs) or ("", [])
        for i in wrong:
            is_torchs_own = not isinstance(plan, str) and plan[i].is_like(planned[i]) and real[i].is_like(found[i])
            if not is_torchs_own:
                self._differences.append(f"{func}: result {i}: its fake says {planned[i]}, found {found[i]}")

    def _on_the_cpu(self, func: Any, args: Any, kwargs: Any) -> tuple[list[Form] | str, list[Form]] | None:
        """The fake results of the same call on the CPU, and its results there. None if it has none."""
        state = torch.get_rng_state()
        try:
            copies, options = Transfer("cpu", source=self.device.type)((args, kwargs))
            planned = _plan(func, copies, options)
            return None if planned is None else (planned, _forms(func(*copies, **options)))
        except Exception:
            return None
        finally:
            torch.set_rng_state(state)


def planned_apart(
    calls: tuple[Callable[..., Any], Callable[..., Any]], arguments: Any, results: tuple[Any, Any], device: torch.device
) -> set[int]:
    """The results, by number, that are not as the CPU's because torch's fakes differ between the device and the CPU.

    Empty if another one differs from the CPU's as well.

    Args:
        calls: what was called on the CPU, and on the device.
        arguments: a tuple of trees of CPU tensors.
        results: those of both.
        device: the device.
    """
    its, mine = map(_forms, results)
    its_plan = _plan(calls[0], Transfer("cpu")(arguments), {})
    my_plan = _plan(calls[1], Transfer(device)(arguments), {})
    if not isinstance(its_plan, list) or not isinstance(my_plan, list):
        return set()
    if not len(its) == len(mine) == len(its_plan) == len(my_plan):
        return set()
    apart = {i for i, form in enumerate(mine) if not form.is_like(its[i])}
    as_planned = all(mine[i] == my_plan[i] and not my_plan[i].is_like(its_plan[i]) for i in apart)
    return apart if as_planned else set()


def _is_plain(tree: Any, device: torch.device) -> bool:
    """Whether there is a tensor of the device, or its name, and no tensor of a special kind."""
    found = False
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided:
                return False
            if leaf.is_nested or leaf.is_quantized:
                return False
        if isinstance(leaf, (torch.Tensor, torch.device)):
            kind = leaf.type if isinstance(leaf, torch.device) else leaf.device.type
            found = found or kind == device.type
    return found


def _plan(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Form] | str | None:
    """The results of torch's fakes; their error, as text; None if torch has no fake."""
    mode = FakeTensorMode()
    before, _LOG.disabled = _LOG.disabled, True  # it prints what it raises
    try:
        fakes = tree_map(
            lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs)
        )
        with mode:
            return _forms(function(*fakes[0], **fakes[1]))
    except _UNKNOWN:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        _LOG.disabled = before


def _forms(tree: Any) -> list[Form]:
    return [Form.of(leaf) for leaf in tree_leaves(tree)]
