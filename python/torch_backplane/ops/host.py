"""Kernels written for the host, by numpy or a C library: they get CPU tensors, and results are copied back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

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
    return _staged(function, None if mutates_args is None else tuple(mutates_args))


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
    return _staged(function._host_function, tuple(mutated), [argument.name for argument in schema.arguments])


def _staged(
    function: Callable[..., Any], mutates: tuple[str, ...] | None, names: Sequence[str] | None = None
) -> Callable[..., Any]:
    if names is None:
        names = list(inspect.signature(function).parameters)
        if wrong := [name for name in mutates or () if name not in names]:
            raise ValueError(f"host_kernel(mutates_args=...) names {wrong}, and the function has {list(names)}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(names, args, strict=False)) | kwargs
        device = _device_of(named.values())
        if device is None:
            return _as_tensors(function(*args, **kwargs))
        made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        on_host = {name: _to_host(value, made) for name, value in named.items()}
        result = function(*(on_host[name] for name in names[: len(args)]), **{name: on_host[name] for name in kwargs})
        written = [on_host[name] for name in mutates or ()]
        for host in _tensors(written):
            original, _ = made[id(host)]
            if original is not host:
                original.copy_(host)
        same = {id(host): made[id(host)][0] for host in _tensors(written)}
        return _to_device(_as_tensors(result), device, same)

    call._host_function = function  # type: ignore[attr-defined]
    call._mutates_args = mutates  # type: ignore[attr-defined]
    return call


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _device_of(values: Iterable[Any]) -> torch.device | None:
    """The device for results: of the first tensor that is not on the CPU, or an argument that is a device."""
    values = list(values)
    named = [value for value in values if isinstance(value, torch.device)]
    return next((d for d in [*(t.device for t in _tensors(values)), *named] if d.type != "cpu"), None)


def _to_host(value: Any, made: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Copy to the CPU; ``made`` has the copies, by identity, with their originals."""
    if isinstance(value, torch.Tensor):
        host = next((host for original, host in made.values() if original is value), None)
        if host is None:
            host = value.detach().cpu()
            made[id(host)] = (value, host)
        return host
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return type(value)(_to_host(one, made) for one in value) if isinstance(value, list | tuple) else value


def _as_tensors(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "__array__"):
        return torch.as_tensor(value)
    return type(value)(_as_tensors(one) for one in value) if isinstance(value, list | tuple) else value


def _to_device(value: Any, device: torch.device, same: dict[int, torch.Tensor]) -> Any:
    """Copy to the device; a written argument that is returned is the argument itself."""
    if isinstance(value, torch.Tensor):
        return same[id(value)] if id(value) in same else value.to(device)
    return type(value)(_to_device(one, device, same) for one in value) if isinstance(value, list | tuple) else value
