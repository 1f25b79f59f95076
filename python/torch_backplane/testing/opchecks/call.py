"""One call of an operator, which utilities repeat on copies of its arguments, on the device and on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from torch_backplane import _backend
from torch_backplane.ops import registry, schema
from torch_backplane.testing.observe import seed_generators, tensors
from torch_backplane.testing.transfer import Transfer

AUTOGRAD_KEYS = ("Autograd", "AutogradPrivateUse1", "CompositeImplicitAutograd")
"""The keys at which an operator of the device may have its gradient."""

SEED = 5


class Failure(AssertionError):
    """What an operator does wrong."""


class NothingToCheckError(Exception):
    """This call gives a utility nothing to check; the text says why."""


@dataclass(frozen=True)
class Call:
    """An operator and arguments, which no utility may change."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rtol: float | None = None
    atol: float | None = None
    reference: Callable[..., Any] | None = None
    """Computes on the CPU; None: the operator itself does."""

    @property
    def name(self) -> str:
        """The operator's qualified name."""
        return registry.name_of(self.op)

    @property
    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, as a tree."""
        return self.args, self.kwargs

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments."""
        return tensors(self.inputs)

    @property
    def device(self) -> torch.device:
        """Where it runs: the device of the first tensor that is not on the CPU, or the current device."""
        for tensor in self.tensors:
            if tensor.device.type != "cpu":
                return tensor.device
        if self.tensors:
            return torch.device("cpu")
        return torch.device(_backend.device, torch.get_device_module(_backend.device).current_device())

    @property
    def tolerance(self) -> dict[str, Any]:
        """The given tolerance, as arguments of ``torch.testing.assert_close``."""
        return {} if self.rtol is None else {"rtol": self.rtol, "atol": self.atol}

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers, which differ between devices."""
        return torch.Tag.nondeterministic_seeded in self.op.tags

    @property
    def mutated(self) -> list[str]:
        """The arguments that the schema lets it write to."""
        return schema.mutated(self.op._schema)

    def has_kernel(self, *keys: str) -> bool:
        """Whether the operator has a direct kernel for one of the keys."""
        return any(registry.has_kernel(self.op.name(), key) for key in keys)

    def with_inputs(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> Call:
        """The same call with other arguments."""
        return Call(self.op, *inputs, self.rtol, self.atol, self.reference)

    def with_tensors(self, others: list[torch.Tensor]) -> Call:
        """The same call with other tensors, in the order of :attr:`tensors`."""
        leaves, tree = tree_flatten(self.inputs)
        new = iter(others)
        inputs = tree_unflatten([next(new) if isinstance(x, torch.Tensor) else x for x in leaves], tree)
        return self.with_inputs(inputs)

    def copy(self) -> Call:
        """The call on copies of the arguments, on the same device."""
        device = self.device
        return self.with_inputs(Transfer(device, source=device.type)(Transfer("cpu")(self.inputs)))

    def on(self, device: str | torch.device) -> Call:
        """The call on copies of the arguments, moved from this call's device to another one."""
        return self.with_inputs(Transfer(device, source=self.device.type)(Transfer("cpu")(self.inputs)))

    def detached(self) -> Call:
        """The same without gradients."""
        return self.with_inputs(tree_map_only(torch.Tensor, torch.Tensor.detach, self.inputs))

    def is_written(self) -> list[bool]:
        """For each tensor of :attr:`tensors`, whether the operator may write to it."""
        written = set(self.mutated)
        return [self._argument(path) in written for path in self._paths()]

    def run(self, *, in_place: bool = False) -> list[torch.Tensor]:
        """Call the operator; returns its results, and the arguments that it wrote to.

        The generators are seeded before a random operator. Gradients reach the arguments.

        Args:
            in_place: let it write to its arguments, not to clones of them.
        """
        written = self.is_written()
        inputs = [t.clone() if w and not in_place else t for t, w in zip(self.tensors, written, strict=True)]
        call = self.with_tensors(inputs)
        if self.is_random:
            seed_generators(self.device, SEED)
        results = tensors(self.op(*call.args, **call.kwargs))
        return results + [t for t, w in zip(inputs, written, strict=True) if w]

    def on_cpu(self) -> Call:
        """The call on the CPU, where the reference computes.

        Raises:
            NothingToCheckError: there is no reference.
        """
        if self.reference is None and not self.has_reference():
            raise NothingToCheckError("the operator has no CPU kernel, which would be the reference")
        return self.on("cpu")

    def has_reference(self) -> bool:
        """Whether there is a reference."""
        return self.reference is not None or self.has_kernel(
            "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd"
        )

    def call_reference_with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the reference with other arguments, CPU tensors."""
        return (self.reference or self.op)(*args, **kwargs)

    def close(self, found: Any, expected: Any, what: str, **options: Any) -> None:
        """Raise Failure unless two trees of tensors are close, by the call's tolerance or torch.testing's."""
        try:
            torch.testing.assert_close(
                found, expected, equal_nan=True, check_stride=False, **{**self.tolerance, **options}
            )
        except AssertionError as error:
            raise Failure(f"{what}: {error}") from error

    def _paths(self) -> Iterator[tuple[Any, ...]]:
        leaves = torch.utils._pytree.tree_leaves_with_path(self.inputs)
        return (path for path, leaf in leaves if isinstance(leaf, torch.Tensor))

    def _argument(self, path: tuple[Any, ...]) -> str:
        if path[0].idx == 1:
            return str(path[1].key)
        return str(self.op._schema.arguments[path[1].idx].name)

    def argument_names(self) -> list[str]:
        """For each tensor of :attr:`tensors`, the name of its argument."""
        return [self._argument(path) for path in self._paths()]


Utility = Callable[[Call], None]
"""Checks a call: returns, or raises Failure, or whatever the operator raises, or NothingToCheckError."""


def describe(value: Any) -> str:
    """A short text of arguments: ``float32[3, 4] (requires_grad), 2.0``."""
    if isinstance(value, torch.Tensor):
        grad = " (requires_grad)" if value.requires_grad else ""
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{grad}"
    if isinstance(value, (list, tuple)):
        text = ", ".join(map(describe, value))
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={describe(item)}" for key, item in value.items())
    return repr(value)
