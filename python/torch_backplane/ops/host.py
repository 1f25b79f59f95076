"""Kernels written for the host, by numpy or a C library: they get CPU tensors, and results are copied back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["bind", "host_kernel"]


def host_kernel(function: Callable[..., Any] | None = None, *, mutates_args: Iterable[str] | None = None) -> Any:
    """Make a function of CPU tensors the kernel of a device: a decorator.

    Device tensors are copied to the CPU, and the results, tensors or numpy arrays, to the device of the arguments;
    arguments that the function writes are copied back. With only CPU tensors it is called directly. A call waits for
    the device twice: use it until the operator has a device kernel.

    Args:
        function: takes CPU tensors and lists of them, and the operator's other arguments.
        mutates_args: arguments that it writes. :func:`custom_op` and :meth:`Op.register_kernel` take them from the
            operator's schema.

    Example::

        @torch_backplane.ops.custom_op("vendor::sort_rows", mutates_args=())
        @torch_backplane.ops.host_kernel
        def sort_rows(x: Tensor) -> Tensor:
            return numpy.sort(x.numpy(), axis=1)
    """
    if function is None:
        return functools.partial(host_kernel, mutates_args=mutates_args)
    names = list(inspect.signature(function).parameters)
    mutates = None if mutates_args is None else tuple(mutates_args)
    if wrong := [name for name in mutates or () if name not in names]:
        raise ValueError(f"host_kernel(mutates_args=...) names {wrong}, and the function has {names}")
    call: Any = staged(function, mutates or (), names)
    call._host_function, call._mutates_args = function, mutates
    return call


def bind(function: Any, schema: Any, mutated: Sequence[str]) -> Callable[..., Any]:
    """The function as the kernel of an operator; returned unchanged if it is not a host kernel.

    Raises:
        ValueError: its ``mutates_args`` are not the schema's.
    """
    if not hasattr(function, "_host_function"):
        return cast("Callable[..., Any]", function)
    given = function._mutates_args
    if given is not None and set(given) != set(mutated):
        raise ValueError(f"host_kernel(mutates_args={list(given)}) and the schema '{schema}' differ: leave it out")
    return staged(function._host_function, mutated, [argument.name for argument in schema.arguments])


def staged(function: Callable[..., Any], mutates: Sequence[str], names: Sequence[str]) -> Callable[..., Any]:
    """The function of CPU tensors as a function of device tensors.

    Args:
        function: called with copies on the CPU.
        mutates: the arguments whose copies are copied back.
        names: of all arguments, by position.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(names, args, strict=False)) | kwargs
        device = _device_of(named)
        if device is None:
            return tree_map(_as_tensor, function(*args, **kwargs))
        originals: dict[int, torch.Tensor] = {}  # by the identity of their copies
        copies: dict[int, torch.Tensor] = {}  # by the identity of their originals

        def to_host(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                if id(leaf) not in copies:
                    copies[id(leaf)] = leaf.detach().cpu()
                    originals[id(copies[id(leaf)])] = leaf
                return copies[id(leaf)]
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

        on_host = tree_map(to_host, named)
        result = function(*(on_host[name] for name in names[: len(args)]), **{name: on_host[name] for name in kwargs})
        written = {id(leaf) for leaf in tree_leaves([on_host.get(name) for name in mutates])} & originals.keys()
        for host in [copy for copy in copies.values() if id(copy) in written]:
            original = originals[id(host)]
            if original.shape != host.shape:
                original.resize_(host.shape)
            original.copy_(host)

        def to_device(leaf: Any) -> Any:
            """A written argument that is returned is the argument itself."""
            if not isinstance(leaf := _as_tensor(leaf), torch.Tensor):
                return leaf
            return originals[id(leaf)] if id(leaf) in written else leaf.to(device)

        return tree_map(to_device, result)

    return call


def _device_of(tree: Any) -> torch.device | None:
    """The device for results: of the first tensor that is not on the CPU, or an argument that is a device."""
    leaves = tree_leaves(tree)
    found = [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]
    found += [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    return next((device for device in found if device.type != "cpu"), None)


def _as_tensor(leaf: Any) -> Any:
    is_array = type(leaf).__module__ == "numpy" and hasattr(leaf, "__array__")
    return torch.as_tensor(leaf) if is_array else leaf
