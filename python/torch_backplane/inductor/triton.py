"""Kernels of Triton in a compiled program: whether torch may use them, and how it measures them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.compat import replaces


def is_usable() -> bool:
    """Whether Triton is installed and runs kernels on the device, by the SDK's backend of it or a vendor's."""
    from torch.utils._triton import has_triton_package

    if not has_triton_package():
        return False
    from triton.backends import backends

    known = backends.get(_backend.device)
    return known is not None and bool(known.driver.is_active())


def why_none() -> str:
    """Why a compiled program has no kernels of Triton that Inductor writes, and what to do; "" if it may have."""
    if torch.__version__ < "2.13":
        return f"torch {torch.__version__} is older than 2.13"
    if importlib.util.find_spec("triton") is None:
        from torch_backplane.triton import releases

        return f"Triton is not installed: pip install '{releases.requirement()}'"
    if not is_usable():
        return f"Triton runs no kernels on {_backend.device}: `torch-backplane doctor` reports why"
    return ""


def answer_by_device() -> None:
    """Let ``torch.utils._triton.has_triton`` be true if Triton runs on the device; torch has a list of devices.

    Seen on 2.11 to 2.14. From 2.15 on it queries the interfaces of devices, which is registered when a program is
    compiled (docs/upstream.md).
    """
    import torch.utils._triton as of_torch

    @replaces(of_torch, "has_triton")
    def has_triton(known: Callable[..., bool], **which: bool) -> bool:
        if not is_usable():
            return known(**which)
        from torch._inductor import config

        return not getattr(config, "triton_disable_device_detection", False)


def register() -> None:
    """Let Inductor measure kernels by the device's events; its default is CUDA's."""
    from torch._inductor.runtime import benchmarking

    def measure(benchmarker: Any, call: Callable[[], Any], **settings: Any) -> Any:
        return benchmarker.benchmark_gpu(call, **{"device_type": _backend.device, **settings})

    if hasattr(benchmarking, "register_benchmarker"):
        benchmarking.register_benchmarker(_backend.device, measure, override=True)
