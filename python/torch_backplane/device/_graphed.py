"""Callables that run their forward and backward passes as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_backplane import _backend


@dataclass(eq=False, repr=False)
class _Part:
    """One callable: what it reads, and what its two graphs write."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...] = ()  # the arguments' tensors, into which each run copies its own
    parameters: tuple[torch.Tensor, ...] = ()
    forward: Any = None
    backward: Any = None  # None: nothing in it has a gradient
    outputs: tuple[torch.Tensor, ...] = ()
    spec: Any = None
    given: tuple[torch.Tensor | None, ...] = ()  # gradients of the outputs, into which each run copies its own
    gradients: list[torch.Tensor | None] = field(default_factory=list)  # of inputs and parameters

    def __post_init__(self) -> None:
        leaves = pytree.tree_leaves(self.arguments)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise TypeError("sample_args of make_graphed_callables must hold only tensors")
        self.inputs = tuple(leaves)
        if not isinstance(self.function, torch.nn.Module):
            return
        module = self.function
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise RuntimeError(
                "a module passed to make_graphed_callables must have no hooks yet; register them on the result"
            )
        if any(buffer.requires_grad for buffer in module.buffers()):
            raise RuntimeError("a module passed to make_graphed_callables may train only parameters, and no buffers")
        self.parameters = tuple(module.parameters())

    @property
    def reads(self) -> tuple[torch.Tensor, ...]:
        return self.inputs + self.parameters

    def gradients_of(
        self, outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor | None], allow_unused: bool
    ) -> list[torch.Tensor | None]:
        """The gradients of what is read; None where there is none."""
        wanted = [tensor for tensor in self.reads if tensor.requires_grad]
        pairs = [(out, grad) for out, grad in zip(outputs, given, strict=True) if grad is not None]
        if not wanted or not pairs:
            return [None] * len(self.reads)
        found = iter(
            torch.autograd.grad(
                [out for out, _ in pairs],
                wanted,
                [grad for _, grad in pairs],
                allow_unused=allow_unused,
            )
        )
        return [next(found) if tensor.requires_grad else None for tensor in self.reads]

    def warm_up(self, rounds: int, allow_unused: bool) -> None:
        for _ in range(rounds):
            outputs = pytree.tree_leaves(self.function(*self.arguments))
            self.gradients_of(outputs, _like(outputs), allow_unused)

    def capture_forward(self, module: Any, pool: tuple[int, int]) -> None:
        self.forward = module.CUDAGraph()
        with module.graph(self.forward, pool=pool):
            result = self.function(*self.arguments)
        leaves, self.spec = pytree.tree_flatten(result)
        self.outputs = tuple(leaves)

    def capture_backward(self, module: Any, pool: tuple[int, int], allow_unused: bool) -> None:
        self.given = _like(self.outputs)
        if all(one is None for one in self.given) or not any(one.requires_grad for one in self.reads):
            self.gradients = [None] * len(self.reads)
            return
        self.backward = module.CUDAGraph()
        with module.graph(self.backward, pool=pool):
            self.gradients = self.gradients_of(self.outputs, self.given, allow_unused)

    def run(self, arguments: tuple[Any, ...]) -> Any:
        leaves, spec = pytree.tree_flatten(arguments)
        if len(leaves) != len(self.inputs) or spec != pytree.tree_structure(self.arguments):
            raise ValueError("a graphed callable takes arguments of the same structure as its sample_args")
        for i, (mine, sample) in enumerate(zip(leaves, self.inputs, strict=True)):
            if mine.shape != sample.shape or mine.dtype != sample.dtype or mine.device != sample.device:
                raise ValueError(
                    f"tensor {i} of a graphed callable is {tuple(mine.shape)}, {mine.dtype} on {mine.device}; "
                    f"its graph was captured for {tuple(sample.shape)}, {sample.dtype} on {sample.device}"
                )
        outputs = _Run.apply(self, *leaves, *self.parameters)
        return pytree.tree_unflatten(list(outputs), self.spec)


def _like(outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """Memory for the gradients of outputs; None for those without."""
    return tuple(torch.empty_like(out) if out.requires_grad else None for out in outputs)


class _Run(torch.autograd.Function):
    """One node of autograd: a run of the forward graph, and one of the backward graph."""

    @staticmethod
    def forward(ctx: Any, part: _Part, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.part = part
        with torch.no_grad():
            for mine, sample in zip(tensors, part.inputs, strict=False):
                if mine.data_ptr() != sample.data_ptr():
                    sample.copy_(mine)
        part.forward.replay()
        return tuple(out.detach() for out in part.outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        part: _Part = ctx.part
        for place, mine in zip(part.given, gradients, strict=True):
            if place is None:
                continue
            if mine is None:
                place.zero_()
            elif mine.data_ptr() != place.data_ptr():
                place.copy_(mine)
        if part.backward is not None:
            part.backward.replay()
        return None, *(None if one is None else one.detach() for one in part.gradients)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Let functions and modules run as graphs: one for the forward pass, one for the backward pass.

    A module is changed, and returned: it runs its graphs while it is in the mode, train or eval, in which it was
    captured, and runs without them in the other. Shapes, dtypes and the structure of the arguments are those of
    ``sample_args``. The next run overwrites the results; there are no gradients of higher order.

    Args:
        callables: a function or module, or a tuple of them in the order in which they will run; they share a pool.
        sample_args: a tuple of tensors for each: a tuple, or a tuple of tuples. Those that require a gradient do so in
            each run.
        num_warmup_iters: runs before the capture, in which kernels are compiled and gradients get their memory.
        allow_unused_input: whether outputs may be independent of an input, whose gradient is then None.
        pool: the memory pool of all graphs, as in :meth:`CUDAGraph.capture_begin`.
    """
    if torch.is_autocast_enabled(_backend.device) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables under autocast would record its cache of weights: use autocast(cache_enabled=False)"
        )
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    arguments = sample_args if several else (sample_args,)
    if len(functions) != len(arguments):
        raise ValueError(f"{len(functions)} callables, but sample_args for {len(arguments)}")
    parts = [_Part(function, tuple(args)) for function, args in zip(functions, arguments, strict=True)]
    module = torch.get_device_module(_backend.device)
    shared = module.graph_pool_handle() if pool is None else pool

    side = module.Stream()
    side.wait_stream(module.current_stream())
    with module.stream(side):
        for part in parts:
            part.warm_up(num_warmup_iters, allow_unused_input)
    module.current_stream().wait_stream(side)

    # In the order of their runs, since one may reuse what the one before has freed: all forwards, then the backwards.
    for part in parts:
        part.capture_forward(module, shared)
    for part in reversed(parts):
        part.capture_backward(module, shared, allow_unused_input)

    results = tuple(_graphed(part) for part in parts)
    return results if several else results[0]


def _graphed(part: _Part) -> Any:
    if not isinstance(part.function, torch.nn.Module):
        return lambda *arguments: part.run(arguments)
    module, without, mode = part.function, part.function.forward, part.function.training

    def forward(*arguments: Any, **keywords: Any) -> Any:
        if module.training != mode:
            return without(*arguments, **keywords)
        if keywords:
            raise ValueError("a graphed module takes no keyword arguments: pass them in the order of sample_args")
        return part.run(arguments)

    module.forward = forward
    return module
