"""Every optimizer of PyTorch's own database, in each implementation: parameters and state after several steps."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.checker import seeded
from backplane_tools.conformance.suites.database import DatabaseSuite, Run
from torch_backplane.testing.compare import Rules
from torch_backplane.testing.observe import Observation

_STEPS = 5
_SHAPES = ((3, 4), (5, 2), (1, 1), (2, 7))  # of two dimensions: Muon takes no others
# Steps of an optimizer that searches for the minimum, and iterations in each: near the minimum the last bits decide.
_SEARCHES = 2
# The second needs the difference of the gradients before and after a step of lr / sum(|gradient|), and divides by it.
# Rounding over lr must be below this, else the CPU itself gives two directions for gradients that differ by a last bit:
# 1e-3 apart in float32 with lr 0.01, 1e-2 with 0.001.
_ROUNDING = 1e-6
# The flags of an implementation; "default" leaves torch its choice.
_IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "capturable_foreach": {"capturable": True, "foreach": True},
}


def _name(info: Any) -> str:
    return str(info.optim_cls.__name__)


def _implementations(info: Any) -> list[str]:
    names = ["default"]
    if "foreach" in info.supported_impls:
        names += ["forloop", "foreach"]
    if "fused" in info.supported_impls:
        names.append("fused")
    if info.has_capturable_arg:
        names += ["capturable", "capturable_foreach"]
    return names


class OptimizersRun(Run):
    """One optimizer, one implementation, one dtype."""

    def __init__(self, entry: tuple[Any, str], dtype: torch.dtype, device: torch.device, seed: int) -> None:
        super().__init__(entry, dtype, device, seed)
        self.info, self.implementation = entry

    def outcome(self) -> Outcome:
        for i, (text, settings) in enumerate(self.settings()):
            what = f"setting {i} ({text or 'default'}: {settings})"
            self.checker.check("steps", what, partial(self.steps, settings, reload=False))
            self.checker.check("state_dict", what, partial(self.steps, settings, reload=True))
        if self.implementation == "default" and self.dtype is torch.float32:
            for error in self.info.optim_error_inputs_func("cpu", self.dtype):
                wrong = error.optimizer_error_input
                self.checker.check("errors", wrong.desc, partial(self.refuse, wrong))
        return self.checker.outcome()

    def settings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the database's settings; those for capturable are kept for the devices that torch knows to have it."""
        if self.implementation.startswith("capturable"):
            found = [s for s in self.info.optim_inputs_func("cuda") if s.kwargs.get("capturable")]
        else:
            found = self.info.optim_inputs_func("cpu")
        for setting in found:
            settings = {**setting.kwargs, **_IMPLEMENTATIONS[self.implementation]}
            if self.info.step_requires_closure:
                settings["max_iter"] = self.searches(settings)
            yield setting.desc, settings

    def searches(self, settings: dict[str, Any]) -> int:
        """The first only in half precision and with a small lr, where two gradients differ by little but rounding."""
        return _SEARCHES if torch.finfo(self.dtype).eps / float(settings.get("lr", 1)) < _ROUNDING else 1

    def steps(self, settings: dict[str, Any], *, reload: bool) -> Observation:
        """Take steps on the same gradients; halfway, with ``reload``, a new optimizer goes on from the saved state."""
        seeded(self.seed)
        parameters = [torch.randn(shape, dtype=torch.float64).to(self.dtype) for shape in _SHAPES]
        count = self.searches(settings) if self.info.step_requires_closure else _STEPS
        gradients = [[self.gradient(shape) for shape in _SHAPES] for _ in range(count)]

        def call(settings: dict[str, Any], parameters: Any, gradients: Any) -> Any:
            leaves = [torch.nn.Parameter(tensor) for tensor in parameters]
            optimizer = self.info.optim_cls(leaves, **copy.deepcopy(settings))
            for i, step in enumerate(gradients):
                if self.info.step_requires_closure:
                    optimizer.step(partial(_slope, leaves, gradients[0], settings.get("maximize", False)))
                else:
                    for leaf, gradient in zip(leaves, step, strict=True):
                        leaf.grad = gradient.clone()
                    optimizer.step(lambda: sum((leaf.detach().abs() ** 2).sum() for leaf in leaves))
                if reload and i == (count - 1) // 2:
                    saved = copy.deepcopy(optimizer.state_dict())
                    optimizer = self.info.optim_cls(leaves, **copy.deepcopy(settings))
                    optimizer.load_state_dict(saved)
            return [leaf.detach() for leaf in leaves], _state(optimizer)

        return self.checker.both(
            partial(call, self.on_cpu(settings)),
            (parameters, gradients),
            on_device=partial(call, settings),
            rules=Rules(strides=False, aliases=False, near=not self.implementation.startswith("capturable")),
        )

    def gradient(self, shape: tuple[int, ...]) -> torch.Tensor:
        gradient = torch.randn(shape, dtype=torch.complex128).to(self.dtype) if self.dtype.is_complex else None
        if gradient is None:
            gradient = torch.randn(shape, dtype=torch.float64).to(self.dtype)
        return gradient.to_sparse() if self.info.only_supports_sparse_grads else gradient

    def on_cpu(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings for the CPU, which has no capturable optimizers and where torch would choose the for-loop.

        The device's default is foreach, as CUDA's, and not always the for-loop's equal: that of RAdam divides 0 by 0
        where the square of a float16 underflows.
        """
        chosen = {"default", "capturable"} & {self.implementation} and "foreach" in self.info.supported_impls
        foreach = settings.get("foreach", bool(chosen))
        if not settings.get("capturable"):
            tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(settings))
            return settings if tensors or not foreach else {**settings, "foreach": True}
        if foreach:  # without capturable it takes no tensor for a number
            settings = tree_map(_number, settings)
        return {**settings, "capturable": False, "foreach": foreach}

    def refuse(self, wrong: Any) -> Observation:
        def call(parameters: Any) -> None:
            self.info.optim_cls(parameters, **copy.deepcopy(wrong.kwargs))

        parameters = wrong.params if wrong.params is not None else [torch.nn.Parameter(torch.ones(2, 2))]
        return self.checker.both(call, (parameters,))


def _slope(leaves: list[torch.nn.Parameter], goals: list[torch.Tensor], maximize: bool) -> torch.Tensor:
    """The loss of an optimizer that searches, with its gradient: an ellipsoid around the goals.

    It is turned over for one that looks for a maximum: where there is none, rounding decides where a line search ends.
    """
    sign = -1 if maximize else 1
    loss = torch.zeros((), dtype=torch.float64, device=leaves[0].device)
    for leaf, goal in zip(leaves, goals, strict=True):
        distance = leaf.detach() - goal
        weight = torch.linspace(1, 4, leaf.numel(), device=leaf.device).view(leaf.shape).to(leaf.dtype)
        leaf.grad = sign * weight * distance
        loss += sign * (weight.abs().double() * distance.abs().double() ** 2).sum() / 2
    return loss


def _state(optimizer: torch.optim.Optimizer) -> Any:
    """The state, with single numbers as such: torch keeps them on the CPU or on the device, as it needs."""

    def leaf(value: Any) -> Any:
        return _number(value) if isinstance(value, torch.Tensor) and value.dim() == 0 else value

    return tree_map(leaf, optimizer.state_dict()["state"])


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


class OptimizersSuite(DatabaseSuite):
    """One case is a dtype of an implementation of an optimizer of ``optim_db``, such as ``Adam/fused``."""

    name = "optimizers"
    checks = OptimizersRun
    dtypes = ("float32", "float64", "bfloat16", "float16", "complex64")

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The optimizers with their implementations, by the names of both."""
        from torch.testing._internal.common_optimizers import optim_db

        pairs = ((info, implementation) for info in optim_db for implementation in _implementations(info))
        return {f"{_name(info)}/{implementation}": (info, implementation) for info, implementation in pairs}

    def has(self, entry: Any, dtype: torch.dtype) -> bool:
        """Complex numbers only if the database has them, and never fused."""
        info, implementation = entry
        is_known = str(dtype).removeprefix("torch.") in self.dtypes
        return is_known and (not dtype.is_complex or (info.supports_complex and implementation != "fused"))
