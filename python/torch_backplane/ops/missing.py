"""The error of an operator without a kernel: it names the operator, the device, and the line to add."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch

from torch_backplane import _backend, compat
from torch_backplane.ops import registry, signature


def explain_missing_kernels(op: torch._ops.OpOverload) -> None:
    """Raise this error instead of torch's, which lists dispatch keys. A CPU fallback runs first, with its own error."""
    compat.set_missing_kernel_error(op, functools.partial(_raise, registry.name_of(op), op._schema))


def _raise(name: str, schema: Any, key: str) -> NoReturn:
    if key == "Undefined":
        raise NotImplementedError(
            f"{name} got no tensor (an empty list?), and so no device to choose its kernel by. "
            "An operator that makes tensors takes `device: torch.device`"
        )
    device = {"PrivateUse1": _backend.device, "CPU": "cpu", "CUDA": "cuda", "Meta": "meta"}.get(key)
    what = f"{name} has no kernel for {device or f'the dispatch key {key}'}"
    if device is None:
        raise NotImplementedError(what)
    method = {"cpu": "reference", "meta": "register_fake"}.get(device, f'register_kernel("{device}")')
    function = name.partition("::")[2].replace(".", "_")
    raise NotImplementedError(
        f"{what}. Add one:\n"
        f'    @torch_backplane.ops.get("{name}").{method}\n'
        f"    def {function}({signature.parameters_of(schema)}): ..."
    )
